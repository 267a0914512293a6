// A job's stages as a graph that can be zoomed and panned; many stages are grouped into few boxes.

import { boxes, counted } from "./dag_groups.js";
import { layout } from "./dag_layout.js";
import { count, h, middle, plural, s, stageColour, textWidth } from "./util.js";

const WIDE = { along: 184, across: 60, gapAlong: 52, gapAcross: 16, down: false };
const NARROW = { along: 60, across: 158, gapAlong: 34, gapAcross: 12, down: true };
const NARROW_PX = 640; // below, layers are rows
const READABLE = 0.85; // the first view is no smaller
const SCALES = { least: 0.005, most: 2, step: 1.25 };
const WORDS_FONT = "11px system-ui, sans-serif";
const FAR = 0.5; // below, boxes are without words

/** What a stage is doing, in one word. */
export function stageState(stage) {
  if (stage.finished >= stage.tasks) return "finished";
  if (stage.running > 0) return "running";
  if (stage.pending > 0) return "pending";
  if (stage.failed > 0) return "failed";
  return stage.over ? "not run" : "waiting";
}

const KINDS = {
  all_to_all: "after all tasks of",
  one_to_one: "task by task after",
  pairs: "each task after its own of",
  broadcast: "with the whole output of",
};

/** The dotted beginning that most names share: it tells nothing apart. */
function commonPrefix(names) {
  const found = new Map();
  for (const name of names) {
    for (let at = name.indexOf("."); at > 0; at = name.indexOf(".", at + 1)) {
      const prefix = name.slice(0, at + 1);
      found.set(prefix, (found.get(prefix) ?? 0) + 1);
    }
  }
  const most = [...found].filter(([, number]) => number > 3 && number > 0.6 * names.length);
  return most.map(([prefix]) => prefix).sort((a, b) => b.length - a.length)[0] ?? "";
}

/** choose(position) stresses a stage; the graph draws into `element`, its tools are `tools`. */
export class Dag {
  constructor(choose) {
    this.choose = choose;
    this.key = "";
    this.group = true;
    this.opened = new Set();
    this.scale = 0;
    this.parts = [];
    this.lines = [];
    this.svg = s("svg", {
      class: "dag",
      role: "group",
      "aria-label": "Stages and what they wait for",
    });
    this.element = h("div", { class: "dag-box", tabindex: 0 }, this.svg);
    this.element.setAttribute("aria-label", "Graph of stages: arrows move it, + and - zoom");
    this.element.setAttribute("role", "region");
    this.tools = this.makeTools();
    this.listen();
  }

  makeTools() {
    const button = (text, title, action) =>
      h("button", { type: "button", class: "button small", title, onclick: action }, text);
    this.grouping = button("Every stage", "Group like stages, or show each", () => {
      this.group = !this.group;
      this.opened.clear();
      this.again();
    });
    this.back = button("Close groups", "Close the groups that were opened", () => {
      this.opened.clear();
      this.again();
    });
    this.jump = button("What runs", "Go to the next box that runs (r)", () => this.toRunning());
    const zoom = h(
      "span",
      { class: "zoom", role: "group", "aria-label": "Zoom" },
      h(
        "button",
        {
          type: "button",
          class: "button small",
          "aria-label": "Smaller",
          title: "Smaller (-)",
          onclick: () => this.zoom(1 / SCALES.step),
        },
        "−",
      ),
      h(
        "button",
        {
          type: "button",
          class: "button small",
          "aria-label": "Larger",
          title: "Larger (+)",
          onclick: () => this.zoom(SCALES.step),
        },
        "+",
      ),
      button("Fit", "Show all of it (0)", () => this.fit()),
    );
    return h("div", { class: "dag-tools" }, this.grouping, this.back, this.jump, zoom);
  }

  listen() {
    const box = this.element;
    box.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      const keys = { "+": () => this.zoom(SCALES.step), "=": () => this.zoom(SCALES.step) };
      Object.assign(keys, { "-": () => this.zoom(1 / SCALES.step), 0: () => this.fit() });
      keys.r = () => this.toRunning();
      if (!keys[event.key]) return;
      keys[event.key]();
      event.preventDefault();
      event.stopPropagation();
    });
    box.addEventListener(
      "wheel",
      (event) => {
        if (!event.ctrlKey) return; // a plain wheel scrolls
        event.preventDefault();
        this.zoom(event.deltaY < 0 ? 1.12 : 1 / 1.12, event);
      },
      { passive: false },
    );
    let from = null;
    box.addEventListener("pointerdown", (event) => {
      if (event.pointerType !== "mouse" || event.button) return; // fingers scroll by themselves
      from = { x: event.clientX + box.scrollLeft, y: event.clientY + box.scrollTop, moved: false };
    });
    addEventListener("pointermove", (event) => {
      if (!from || !event.buttons) return;
      const [left, top] = [from.x - event.clientX, from.y - event.clientY];
      if (Math.abs(left - box.scrollLeft) + Math.abs(top - box.scrollTop) > 4) from.moved = true;
      if (!from.moved) return;
      box.classList.add("dragged");
      box.scrollTo(left, top);
    });
    addEventListener("pointerup", () => {
      setTimeout(() => box.classList.remove("dragged"));
      from = null;
    });
  }

  /** Draw anew after a change of what is grouped. */
  again() {
    this.key = "";
    this.draw(this.stages, this.chosen);
  }

  build(stages) {
    const narrow = this.room() < NARROW_PX;
    const shape = narrow ? NARROW : WIDE;
    this.narrow = narrow;
    this.prefix = commonPrefix(stages.map((stage) => stage.name));
    this.found = boxes(stages, { group: this.group, opened: this.opened });
    const placed = layout(
      this.found.map((box) => box.parents.map(([from]) => from)),
      shape,
    );
    this.size = { width: placed.width, height: placed.height };
    this.box = narrow
      ? { width: shape.across, height: shape.along }
      : { width: shape.along, height: shape.across };
    this.spots = placed.spots;
    this.lines = placed.edges.map((edge) => {
      const kind = new Map(this.found[edge.child].parents).get(edge.parent);
      return { ...edge, path: s("path", { class: `edge ${kind}`, d: edge.d }) };
    });
    this.parts = this.found.map((box, i) => this.part(box, placed.spots[i], stages));
    this.svg.setAttribute("viewBox", `0 0 ${placed.width} ${placed.height}`);
    this.svg.replaceChildren(
      ...this.lines.map((line) => line.path),
      ...this.parts.map((part) => part.group),
    );
    const grouped = this.found.length < stages.length;
    this.grouping.hidden = !grouped && this.group && !this.opened.size;
    this.grouping.textContent = this.group ? `All ${count(stages.length)} stages` : "Group them";
    this.back.hidden = !this.opened.size;
  }

  part(box, { x, y }, stages) {
    const { width, height } = this.box;
    const many = box.kind !== "stage";
    const room = width - 26;
    const title = s(
      "text",
      { class: "title", x: x + 14, y: y + 21 },
      many && box.kind === "siblings"
        ? `${middle(this.short(box.name), room - 44)} × ${count(box.members.length)}`
        : middle(this.short(box.name), room),
    );
    const text = s("text", { x: x + 14, y: y + 38 });
    const bars = ["done", "run", "ask"].map((name) =>
      s("rect", { class: name, x: x + 14, y: y + 46, height: 5 }),
    );
    const group = s(
      "g",
      { tabindex: 0, role: "button" },
      s("title", null, this.words(box, stages)),
      many &&
        s("rect", { class: "box under", x: x + 4, y: y - 4, width: width - 8, height, rx: 8 }),
      s("rect", { class: "box", x, y, width, height, rx: 8 }),
      s("rect", {
        x: x + 4,
        y: y + 9,
        width: 4,
        height: height - 18,
        rx: 2,
        style: { fill: stageColour(box.members[0]) },
      }),
      title,
      text,
      s("rect", { class: "rest", x: x + 14, y: y + 46, width: width - 28, height: 5, rx: 2.5 }),
      bars,
    );
    const act = () => (many ? this.open(box) : this.choose(box.members[0]));
    group.addEventListener("click", () => this.element.classList.contains("dragged") || act());
    group.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      act();
    });
    return { box, group, title, text, bars, x: x + 14, told: "" };
  }

  short(name) {
    return this.prefix ? name.replaceAll(this.prefix, "") : name;
  }

  words(box, stages) {
    if (box.kind === "siblings")
      return `${count(box.members.length)} stages like ${stages[box.members[0]].name}`;
    if (box.kind === "stage") return box.name;
    const what = box.kind === "chain" ? "One after the other" : "Beside each other";
    const names = box.steps.slice(0, 12).join("\n");
    return `${what}:\n${names}${box.steps.length > 12 ? "\n…" : ""}`;
  }

  /** Show what is in a group, and stay where it was. */
  open(box) {
    this.opened.add(box.key);
    this.again();
    const first = this.parts.findIndex((part) => part.box.members.includes(box.members[0]));
    this.show(Math.max(0, first));
    this.parts[first]?.group.focus({ preventScroll: true });
  }

  draw(stages, chosen) {
    this.stages = stages;
    this.chosen = chosen;
    const narrow = this.room() < NARROW_PX;
    const key = `${narrow};${stages.map((stage) => `${stage.name}<${stage.parents.map((p) => p.stage).join()}`).join(";")}`;
    const fresh = key !== this.key;
    if (fresh) {
      this.key = key;
      this.build(stages);
    }
    this.parts.forEach((part) => this.update(part, stages, chosen));
    const lit = this.parts.findIndex((part) => part.box.members.includes(chosen));
    for (const { parent, child, path } of this.lines)
      path.classList.toggle("lit", lit >= 0 && (parent === lit || child === lit));
    this.jump.hidden = !this.parts.some((part) => part.state === "running");
    if (fresh) this.first();
  }

  update(part, stages, chosen) {
    const { box, group, text, bars, x } = part;
    const sum = counted(box, stages);
    const state = stageState(sum);
    const pressed = box.members.length === 1 && box.members[0] === chosen;
    const told = `${Object.values(sum).join()},${pressed}`;
    if (told === part.told) return;
    part.told = told;
    part.state = state;
    group.setAttribute("class", `stage ${state}`);
    if (box.kind === "stage") group.setAttribute("aria-pressed", String(pressed));
    const words = [
      `${count(sum.finished)} / ${count(sum.tasks)}`,
      sum.running && `${count(sum.running)} ${this.narrow ? "run" : "running"}`,
      sum.pending && `${count(sum.pending)} asked`,
    ].filter(Boolean);
    while (words.length > 1 && textWidth(words.join(" · "), WORDS_FONT) > this.box.width - 24)
      words.pop();
    text.textContent = words.join(" · ");
    const told2 =
      `${state}: ${count(sum.finished)} of ${count(sum.tasks)} tasks finished, ` +
      `${count(sum.running)} running, ${count(sum.pending)} asked for`;
    const seen = `${part.title.textContent} ${text.textContent}`;
    const whole = `${this.label(box, stages)}, ${told2}${this.waits(box)}`;
    group.setAttribute("aria-label", `${seen}: ${whole}`);
    let left = x;
    const full = this.box.width - 28;
    [sum.finished, sum.running, sum.pending].forEach((number, i) => {
      const width = full * Math.min(1, number / sum.tasks);
      bars[i].setAttribute("x", left);
      bars[i].setAttribute("width", Math.max(0, Math.min(width, x + full - left)));
      left += width;
    });
  }

  label(box, stages) {
    if (box.kind === "stage") return `Stage ${box.name}`;
    const what = { siblings: "like", chain: "in a row,", beside: "beside each other," }[box.kind];
    const name = box.kind === "siblings" ? stages[box.members[0]].name : box.name;
    return `Group of ${plural(box.members.length, "stage")} ${what} ${name}`;
  }

  waits(box) {
    const list = box.parents.map(
      ([from, kind]) => `${KINDS[kind] ?? "after"} ${this.found[from].name}`,
    );
    return list.length ? `; ${list.join(", ")}` : "";
  }

  // -- the view ---------------------------------------------------------------------------------

  room() {
    return this.element.clientWidth || this.element.parentElement?.clientWidth || innerWidth;
  }

  /** All of it where that can be read; else at a size that can, at what runs or where it begins. */
  first() {
    const known = this.scale;
    const whole = Math.min(1, this.room() / this.size.width);
    this.setScale(known && known !== this.firstScale ? known : Math.max(READABLE, whole));
    if (!known) this.firstScale = this.scale;
    const runs = this.parts.findIndex((part) => part.state === "running");
    if (!known) this.show(runs < 0 ? this.begins() : runs);
  }

  /** The box in the middle of those it begins with: others are to all sides of it. */
  begins() {
    const [along, across] = this.narrow ? ["y", "x"] : ["x", "y"];
    const centre = (this.narrow ? this.size.width - this.box.width : this.size.height - this.box.height) / 2;
    const least = Math.min(...this.spots.map((spot) => spot[along]));
    const off = this.spots.map((spot) => (spot[along] > least ? Infinity : Math.abs(spot[across] - centre)));
    return Math.max(0, off.indexOf(Math.min(...off)));
  }

  setScale(scale) {
    this.scale = Math.max(SCALES.least, Math.min(SCALES.most, scale));
    this.svg.setAttribute("width", this.size.width * this.scale);
    this.svg.setAttribute("height", this.size.height * this.scale);
    this.svg.classList.toggle("far", this.scale < FAR);
  }

  /** Zoom about the pointer, or the middle of what is shown. */
  zoom(by, event) {
    const box = this.element;
    const place = box.getBoundingClientRect();
    const px = event ? event.clientX - place.left : box.clientWidth / 2;
    const py = event ? event.clientY - place.top : box.clientHeight / 2;
    const [x, y] = [(box.scrollLeft + px) / this.scale, (box.scrollTop + py) / this.scale];
    this.setScale(this.scale * by);
    box.scrollTo(x * this.scale - px, y * this.scale - py);
  }

  fit() {
    const tall = parseFloat(getComputedStyle(this.element).maxHeight) || 600;
    this.setScale(Math.min(1, this.room() / this.size.width, tall / this.size.height));
    this.element.scrollTo(0, 0);
  }

  /** Bring a box into the middle of the view. */
  show(i) {
    const spot = this.spots[i];
    if (!spot) return;
    const box = this.element;
    box.scrollTo(
      (spot.x + this.box.width / 2) * this.scale - box.clientWidth / 2,
      (spot.y + this.box.height / 2) * this.scale - box.clientHeight / 2,
    );
  }

  toRunning() {
    const running = this.parts.flatMap((part, i) => (part.state === "running" ? [i] : []));
    if (!running.length) return;
    const after = running.find((i) => i > (this.at ?? -1)) ?? running[0];
    this.at = after;
    if (this.scale < READABLE) this.setScale(READABLE);
    this.show(after);
    this.parts[after].group.focus({ preventScroll: true });
  }
}
