// Runs before the first paint, so that a chosen theme never flashes.
(function () {
  let chosen = null;
  try {
    chosen = localStorage.getItem("weft-theme");
  } catch {
    /* storage is off: as the system */
  }
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
})();
