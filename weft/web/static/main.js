// The frame: which page is shown, when it reads anew, and the keys.

import { pages } from "./pages.js";
import { cluster, h, hideTip, pace, read } from "./util.js";

const SLOW_MS = 5000; // times that grow by themselves are drawn anew so often
const FAST_MS = 900; // and what changes no more often than this
const main = document.getElementById("main");
const banner = document.getElementById("banner");
const live = document.getElementById("live");
let page = null;
let busy = false;
let again = false;
let lastRead = 0;
let waiting = 0;

const LISTED = new Set(["apps", "nodes", "queues", "events", "settings"]);
const PLAYED = document.documentElement.dataset.played !== undefined; // a run that is over
let player = null;

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

function route() {
  const [name = "", first = "", second = "", third = ""] = location.pathname
    .split("/")
    .slice(2)
    .map(decoded);
  if (name === "app" && second === "stage" && third) return ["stage", first, third];
  if (name === "app" && first && !second) return ["app", first];
  if (name === "node" && first && !second) return ["node", first];
  if (first) return ["nowhere", location.pathname];
  if (name === "play" && player) return ["play", ""];
  if (name === "") return ["overview", ""];
  if (name === "scheduler") return ["queues", ""];
  return LISTED.has(name) ? [name, ""] : ["nowhere", location.pathname];
}

/** Go to a path of these pages without loading the document again. */
export function go(path, replace = false) {
  history[replace ? "replaceState" : "pushState"](null, "", path);
  if (!replace) show();
}

async function show() {
  const [name, argument, more] = route();
  hideTip();
  await player?.enter(name);
  page?.close?.();
  page = pages[name]({ argument, more, go, refresh });
  document.title = `${page.title} · Weft`;
  const under = { app: "apps", stage: "apps", node: "nodes" }[name] ?? name;
  for (const link of document.querySelectorAll("#nav a")) {
    if (link.dataset.page === under) {
      link.setAttribute("aria-current", "page");
      // On a narrow screen the menu scrolls, and who is here sees where.
      link.scrollIntoView({ block: "nearest", inline: "nearest" });
    } else link.removeAttribute("aria-current");
  }
  main.replaceChildren(page.element);

  scrollTo(0, 0);
  await refresh();
}

async function refresh() {
  clearTimeout(waiting);
  if (!page.path) {
    main.removeAttribute("aria-busy");
    return;
  }
  if (busy) {
    again = true;
    return;
  }
  const shown = page;
  busy = true;
  lastRead = Date.now();
  try {
    const data = await read(shown.path);
    if (shown === page) {
      shown.draw(data);
      document.title = `${shown.title} · Weft`;
      tellPace();
      main.removeAttribute("aria-busy");
      say(missing());
    }
  } catch (error) {
    if (shown === page) failed(shown, error);
  }
  busy = false;
  if (again) {
    again = false;
    await refresh();
  }
}

/** Durations are by a clock that may run faster than the reader's: then the page's head says so. */
function tellPace() {
  const element = document.getElementById("pace");
  element.hidden = pace() === 1;
  element.textContent = `Clock × ${Number(pace().toPrecision(3))}`;
}

/** What a router's members that are gone have is told to be missing. */
function missing() {
  if (!cluster.missing) return "";
  return `Did not answer, and what they have is not shown: member ${cluster.missing}.`;
}

function failed(shown, error) {
  if (error.status === 404 || error.status === 400) {
    const words = error.message.replace(/^java\.lang\.\w+: /, "");
    if (shown.missing) shown.missing(words);
    else say(words);
    main.removeAttribute("aria-busy");
    return;
  }
  say(`${error.message ?? error}. What is shown may be old; trying again.`);
}

function say(text) {
  banner.hidden = !text;
  if (banner.textContent !== text) banner.textContent = text;
}

function later() {
  if (document.hidden) {
    again = false;
    return;
  }
  const left = FAST_MS - (Date.now() - lastRead);
  clearTimeout(waiting);
  if (left <= 0) refresh();
  else waiting = setTimeout(refresh, left);
}

function state(kind, text) {
  live.className = `live ${kind}`;
  if (live.lastChild.textContent !== text) live.lastChild.textContent = text;
}

function follow() {
  const stream = new EventSource("/api/live");
  stream.onmessage = (event) => {
    const told = JSON.parse(event.data);
    state(told.reachable ? "on" : "off", told.reachable ? "Live" : "No manager");
    later();
  };
  stream.onerror = () => {
    state("off", "Offline");
    if (stream.readyState === EventSource.CLOSED) setTimeout(follow, 3000);
  };
  addEventListener("pagehide", () => stream.close(), { once: true });
}

// -- theme --------------------------------------------------------------------------------------

const THEMES = ["system", "light", "dark"];

function theme() {
  const root = document.documentElement;
  const now = root.dataset.theme ?? "system";
  const next = THEMES[(THEMES.indexOf(now) + 1) % THEMES.length];
  if (next === "system") delete root.dataset.theme;
  else root.dataset.theme = next;
  try {
    localStorage.setItem("weft-theme", next);
  } catch {
    /* storage is off: this page only */
  }
  named();
}

function named() {
  const now = document.documentElement.dataset.theme ?? "system";
  const words = { system: "as the system", light: "light", dark: "dark" }[now];
  document.getElementById("theme").setAttribute("aria-label", `Theme: ${words}`);
  document.getElementById("theme").title = `Theme: ${words} (t)`;
}

// -- keys ---------------------------------------------------------------------------------------

const PLACES = { o: "/cluster", a: "/cluster/apps", n: "/cluster/nodes", q: "/cluster/queues", e: "/cluster/events", s: "/cluster/settings" };
let chord = 0;

function rowStep(by) {
  const rows = [...main.querySelectorAll("tbody tr[tabindex]")];
  if (!rows.length) return;
  const at = rows.indexOf(document.activeElement);
  rows[
    at < 0 ? (by > 0 ? 0 : rows.length - 1) : Math.max(0, Math.min(rows.length - 1, at + by))
  ].focus();
}

function onKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]"))
    return;
  if (event.target.closest("input, select, textarea") && event.target.type !== "range") {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  const after = Date.now() - chord < 1200;
  chord = 0;
  const pressed = event.key === " " && event.target.closest("button, a, summary");
  if (player && !pressed && !after && player.key(event)) {
    event.preventDefault();
    return;
  }
  if (after && PLACES[event.key]) go(PLACES[event.key]);
  else if (event.key === "g") chord = Date.now();
  else if (event.key === "/") main.querySelector("input[type=search]")?.focus();
  else if (event.key === "j") rowStep(1);
  else if (event.key === "k") rowStep(-1);
  else if (event.key === "[") main.querySelector("[data-table]")?.turn(-1);
  else if (event.key === "]") main.querySelector("[data-table]")?.turn(1);
  else if (event.key === "t") theme();
  else if (event.key === "?") document.getElementById("keys").showModal();
  else return;
  event.preventDefault();
}

function onClick(event) {
  const link = event.target.closest("a[href]");
  const plain = event.button === 0 && !event.ctrlKey && !event.metaKey && !event.shiftKey;
  if (!link || !plain || link.origin !== location.origin || link.target) return;
  if (!link.pathname.startsWith("/cluster") || link.hash) return;
  event.preventDefault();
  go(link.pathname + link.search);
}

document.getElementById("theme").addEventListener("click", theme);
document
  .getElementById("help")
  .addEventListener("click", () => document.getElementById("keys").showModal());
document.addEventListener("keydown", onKey);
document.addEventListener("click", onClick);
document.addEventListener("visibilitychange", () => {
  if (!document.hidden) refresh();
});
addEventListener("popstate", show);
named();
main.setAttribute("aria-busy", "true");
main.append(h("p", { class: "empty" }, "Loading"));
if (PLAYED) {
  state("", "A run that is over");
  for (const name of ["events", "settings"]) document.querySelector(`#nav [data-page=${name}]`).remove();
  try {
    await play();
    show();
  } catch (error) {
    say(`The run cannot be read: ${error.message}`);
  }
} else {
  setInterval(() => {
    if (!document.hidden && Date.now() - lastRead > SLOW_MS) refresh();
  }, 1000);
  show();
  follow();
}

/** Put the player beside the pages. */
async function play() {
  const { openPlayer } = await import("/static/play.js");
  player = await openPlayer({ refresh });
  pages.play = () => player.page();
  PLACES.p = "/cluster/play";
  document
    .getElementById("nav")
    .prepend(h("a", { href: "/cluster/play", "data-page": "play" }, "Player"));
}
