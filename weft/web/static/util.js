// Elements, numbers and words that every page uses.

const SVG = "http://www.w3.org/2000/svg";

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "style")
      Object.assign(element.style, value); // by script: no inline styles
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  for (const child of children.flat(Infinity)) {
    if (child !== null && child !== undefined && child !== false) element.append(child);
  }
  return element;
}

/** An HTML element; text children are text, never markup. */
export const h = (tag, attributes, ...children) =>
  fill(document.createElement(tag), attributes, children);

/** An SVG element. */
export const s = (tag, attributes, ...children) =>
  fill(document.createElementNS(SVG, tag), attributes, children);

const whole = new Intl.NumberFormat("en");
export const count = (number) => whole.format(Math.round(number));
export const plural = (number, word) => `${count(number)} ${word}${number === 1 ? "" : "s"}`;
export const percent = (share, digits = 0) => `${(100 * share).toFixed(digits)} %`;

/** 0.4 s, 12 s, 3 min 20 s, 2 h 5 min, 3 d 4 h. */
export function duration(seconds) {
  if (!(seconds >= 0)) return "–";
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  if (seconds < 60) return `${Math.floor(seconds)} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes} min ${Math.floor(seconds % 60)} s`;
  const hours = Math.floor(minutes / 60);
  if (hours < 48) return `${hours} h ${minutes % 60} min`;
  return `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

export const ago = (seconds) => (seconds < 1 ? "now" : `${duration(seconds)} ago`);

/** A resource's amount with its unit, from the name that ends in it. */
export function amount(name, value) {
  const digits = value % 1 && value < 100 ? 1 : 0;
  const text = new Intl.NumberFormat("en", { maximumFractionDigits: digits }).format(value);
  if (name.endsWith("_mb")) return value >= 10240 ? `${count(value / 1024)} GB` : `${text} MB`;
  if (name.endsWith("_mbps")) return `${text} MB/s`;
  return text;
}

export const resourceName = (name) => name.replace(/_(mb|mbps)$/, "");

const KINDS = {
  RUNNING: "running",
  FINISHED: "finished",
  SUCCEEDED: "finished",
  FAILED: "failed",
  LOST: "failed",
  UNHEALTHY: "failed",
  KILLED: "killed",
  NEW: "pending",
  SUBMITTED: "pending",
  ACCEPTED: "pending",
  DECOMMISSIONING: "pending",
  REBOOTED: "pending",
};
export const kindOf = (state) => KINDS[state] ?? "killed";

/** A state in words and colour: never by colour alone. */
export function badge(state) {
  const words = state.charAt(0) + state.slice(1).toLowerCase().replaceAll("_", " ");
  return h("span", { class: `badge ${kindOf(state)}` }, words);
}

/** An application's state; an end that failed says so. */
export const appState = (app) =>
  app.state === "FINISHED" && app.final !== "SUCCEEDED" ? app.final : app.state;

/** A horizontal meter of a share, 0 to 1. */
export function meter(share, label, kind = "") {
  const width = `${Math.max(0, Math.min(1, share)) * 100}%`;
  return h(
    "div",
    {
      class: "meter",
      role: "meter",
      "aria-label": label,
      "aria-valuemin": 0,
      "aria-valuemax": 100,
      "aria-valuenow": Math.round(100 * share),
    },
    h("div", { class: `fill ${kind}`, style: { width } }),
  );
}

const HUES = [214, 172, 36, 340, 262, 96, 196, 14, 292, 58, 150, 236];

/** A calm, stable colour for the stage at a position. */
export function stageColour(position) {
  const turn = Math.floor(position / HUES.length) * 8;
  return `hsl(${(HUES[position % HUES.length] + turn) % 360} var(--stage-sat) var(--stage-light))`;
}

/** Read JSON; throws with the server's own words. */
export async function read(path, options) {
  const response = await fetch(path, { headers: { Accept: "application/json" }, ...options });
  const text = await response.text();
  const data = text ? JSON.parse(text) : {};
  if (!response.ok) {
    const error = new Error(data.RemoteException?.message ?? response.statusText);
    error.status = response.status;
    throw error;
  }
  return data;
}

const tip = () => document.getElementById("tip");

/** Show a text beside the pointer. */
export function showTip(event, text) {
  const box = tip();
  box.textContent = text;
  box.hidden = false;
  const { offsetWidth: width, offsetHeight: height } = box;
  const left = Math.min(event.clientX + 14, innerWidth - width - 8);
  const below = event.clientY + 16;
  box.style.left = `${Math.max(8, left)}px`;
  box.style.top = `${below + height > innerHeight - 8 ? event.clientY - height - 12 : below}px`;
}

export const hideTip = () => {
  tip().hidden = true;
};

/** Ask before something that cannot be undone. */
export function confirmed(title, text, action) {
  const dialog = document.getElementById("confirm");
  document.getElementById("confirm-title").textContent = title;
  document.getElementById("confirm-text").textContent = text;
  document.getElementById("confirm-yes").textContent = action;
  dialog.returnValue = "no";
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => resolve(dialog.returnValue === "yes"), { once: true });
  });
}
