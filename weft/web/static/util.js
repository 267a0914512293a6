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

/** A part of a page that scrolls by itself: keys scroll what has the focus. */
export const scrolling = (name, label, ...children) =>
  h("div", { class: name, tabindex: 0, role: "region", "aria-label": label }, ...children);

const whole = new Intl.NumberFormat("en");
const gigabytes = new Intl.NumberFormat("en", { maximumSignificantDigits: 3 });
export const count = (number) => whole.format(Math.round(number));
export const plural = (number, word) => `${count(number)} ${word}${number === 1 ? "" : "s"}`;

/** 100 % only where nothing is missing, and 0 % only where there is nothing. */
export function percent(share, digits = 0) {
  const step = 10 ** -digits;
  let value = Number((100 * share).toFixed(digits));
  if (share < 1 && value >= 100) value = 100 - step;
  if (share > 0.00005 && value <= 0) return `< ${step.toFixed(digits)} %`;
  return `${value.toFixed(digits)} %`;
}

/** 0.4 s, 12 s, 3 min 20 s, 2 h 5 min, 3 d 4 h: rounded to seconds as on the command line. */
export function duration(seconds) {
  if (!(seconds >= 0)) return "–";
  if (seconds > 0 && seconds < 0.095) return `${Math.ceil(seconds * 1000)} ms`;
  if (seconds < 9.95) return `${seconds.toFixed(1)} s`;
  const all = Math.round(seconds);
  if (all < 60) return `${all} s`;
  const minutes = Math.floor(all / 60);
  if (minutes < 60) return `${minutes} min ${all % 60} s`;
  const hours = Math.floor(minutes / 60);
  if (hours < 24) return `${hours} h ${minutes % 60} min`;
  return `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

const clock = { now_s: 0, now_ms: 0, scale: 1 }; // of the last answer; 0 ms: no time of day

/** The time of day of a moment on the cluster's clock; null where it has none. */
export function dated(at) {
  if (!clock.now_ms || !(at > 0)) return null;
  return new Date(clock.now_ms - ((clock.now_s - at) * 1000) / clock.scale);
}

const HOUR = new Intl.DateTimeFormat("en-GB", { timeStyle: "medium" });
const DAY = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short" });

/** How long ago, and at what time of day, with the date where that was not today. */
export function moment(at, now) {
  const date = dated(at);
  if (!date) return ago(now - at);
  const today = date.toDateString() === new Date().toDateString();
  return h(
    "time",
    { datetime: date.toISOString(), title: date.toLocaleString() },
    ago(now - at),
    h("span", { class: "sub clock" }, `${today ? "" : `${DAY.format(date)} `}${HOUR.format(date)}`),
  );
}

/** The time of day of a moment alone, "" where it has none. */
export function timeOf(at) {
  const date = dated(at);
  return date ? HOUR.format(date) : "";
}

/** How long ago by the reader's clock: all other durations are by the cluster's. */
export function ago(seconds) {
  const real = seconds / clock.scale;
  return real < 1 ? "now" : `${duration(real)} ago`;
}

/** How many times as fast as the reader's clock the cluster's runs. */
export const pace = () => clock.scale;

/** Round moments of an axis of `span` s that is `width` wide, `apart` from each other at least. */
export function ticks(span, width, apart) {
  const rough = (span / width) * apart;
  const power = 10 ** Math.floor(Math.log10(rough));
  const nice =
    span > 90
      ? [15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 43200, 86400]
      : [1, 2, 5, 10].map((n) => n * power);
  const step = nice.find((n) => n >= rough) ?? rough;
  return Array.from({ length: Math.floor(span / step + 1e-9) + 1 }, (_, i) => i * step);
}

export const tickText = (at) =>
  at < 60 ? `${Number(at.toPrecision(3))} s` : duration(at).replace(/ 0 (s|min|h)$/, "");

/** A resource's amount with its unit, from the name that ends in it. */
export function amount(name, value) {
  const digits = value % 1 ? (value < 10 ? 2 : value < 100 ? 1 : 0) : 0;
  const text = new Intl.NumberFormat("en", { maximumFractionDigits: digits }).format(value);
  if (name.endsWith("_mb"))
    return value >= 10240 ? `${gigabytes.format(value / 1024)} GB` : `${text} MB`;
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
  RECOVERING: "pending",
  DECOMMISSIONING: "pending",
  REBOOTED: "pending",
};
export const kindOf = (state) => KINDS[state] ?? "killed";

/** A state in words and colour: never by colour alone. */
export function badge(state) {
  const words = state.charAt(0) + state.slice(1).toLowerCase().replaceAll("_", " ");
  return h("span", { class: `badge ${kindOf(state)}` }, words);
}

/**
 * An application's state; of one that is over, how it ended. One that had a master and waits for
 * its word, or for another's, is recovering: its tasks go on.
 */
export const appState = (app) =>
  app.state === "FINISHED" && app.final
    ? app.final
    : app.state === "ACCEPTED" && app.started_s > 0
    ? "RECOVERING"
    : app.state;

/** A horizontal meter of a share, 0 to 1; a mark at what was measured, if that is not below 0. */
export function meter(share, label, kind = "", mark = -1) {
  const at = (part) => `${Math.max(0, Math.min(1, part)) * 100}%`;
  const width = at(share);
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
    mark >= 0 && h("div", { class: "mark", style: { left: `calc(${at(mark)} - 1.5px)` } }),
  );
}

const HUES = [214, 172, 36, 340, 262, 96, 196, 14, 292, 58, 150, 236];

/** A calm, stable colour for the stage at a position. */
export function stageColour(position) {
  const turn = Math.floor(position / HUES.length) * 8;
  return `hsl(${(HUES[position % HUES.length] + turn) % 360} var(--stage-sat) var(--stage-light))`;
}

/** The numbers of members that did not answer, as text; of the newest answer. */
export const cluster = { missing: "" };

/** Read JSON; throws with the server's own words. */
export async function read(path, options) {
  const response = await fetch(path, { headers: { Accept: "application/json" }, ...options });
  const text = await response.text();
  cluster.missing = response.headers.get("Weft-Missing-Members") ?? "";
  const data = text ? JSON.parse(text) : {};
  if (!response.ok) {
    const error = new Error(data.RemoteException?.message ?? response.statusText);
    error.status = response.status;
    throw error;
  }
  if (data.now_ms !== undefined)
    Object.assign(clock, { now_s: data.now_s, now_ms: data.now_ms, scale: data.time_scale });
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

/** Demands or holdings in words: "vcores 0.25, memory 64 MB". */
export const amounts = (table, least = 0) =>
  Object.entries(table)
    .filter(([, value]) => value > least)
    .map(([name, value]) => `${resourceName(name)} ${amount(name, value)}`)
    .join(", ");

/** Change something; a refusal is shown in the server's words. Answers whether it was done. */
export async function change(path, method, body) {
  try {
    await read(path, {
      method,
      headers: { "Content-Type": "application/json", Accept: "application/json" },
      body: JSON.stringify(body),
    });
    return true;
  } catch (error) {
    const dialog = document.getElementById("refused");
    document.getElementById("refused-text").textContent = error.message;
    dialog.showModal();
    return false;
  }
}

/** Ask for one value: `field` is the input or select. Answers its value, or null. */
export function asked(title, text, field, action) {
  const dialog = document.getElementById("ask");
  document.getElementById("ask-title").textContent = title;
  document.getElementById("ask-text").textContent = text;
  document.getElementById("ask-yes").textContent = action;
  document.getElementById("ask-field").replaceChildren(field);
  field.setAttribute("aria-labelledby", "ask-title");
  dialog.returnValue = "";
  dialog.showModal();
  field.focus();
  return new Promise((resolve) => {
    const done = () => resolve(dialog.returnValue === "yes" ? field.value : null);
    dialog.addEventListener("close", done, { once: true });
  });
}

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

const TITLE_FONT = "600 12.5px system-ui, sans-serif";
const canvas = document.createElement("canvas").getContext("2d");

/** How wide a text is drawn, px. */
export function textWidth(text, font = TITLE_FONT) {
  canvas.font = font;
  return canvas.measureText(text).width;
}

/** A text that fits so many pixels, cut in its middle: what tells names apart is at their ends. */
export function middle(text, room, font = TITLE_FONT) {
  if (textWidth(text, font) <= room) return text;
  let [low, high] = [1, text.length - 1];
  const cut = (keep) =>
    `${text.slice(0, Math.ceil(keep / 3))}…${text.slice(text.length - Math.floor((2 * keep) / 3))}`;
  while (low < high) {
    const half = Math.ceil((low + high) / 2);
    if (textWidth(cut(half), font) <= room) low = half;
    else high = half - 1;
  }
  return cut(low);
}

/** A name in a table, px wide: its middle goes, not the end that tells it from the others. */
export const shortName = (text, room = 264, narrow = 84) =>
  middle(text, innerWidth > 720 ? room : narrow);

/** A text cut so that what tells it from others that look alike is left. */
export function apart(text, others, room, font = TITLE_FONT) {
  const differs = (other) => {
    let at = 0;
    while (at < text.length && text[at] === other[at]) at += 1;
    return at;
  };
  const from = Math.max(0, Math.min(...others.map(differs)) - 1);
  let keep = text.length - from;
  const cut = () => `…${text.slice(from, from + keep)}${from + keep < text.length ? "…" : ""}`;
  while (keep > 3 && textWidth(cut(), font) > room) keep -= 1;
  return cut();
}
