// A job's stages as a layered graph, left to right; each box shows how many of its tasks are where.

import { count, s, stageColour } from "./util.js";

const BOX = { width: 176, height: 58 };
const GAP = { x: 56, y: 18 };
const PAD = 8;

/** Layer by the longest path from a root, then order each layer by where its neighbours are. */
export function layout(stages) {
  const at = new Map(stages.map((stage, i) => [stage.name, i]));
  const parents = stages.map((stage) => stage.parents.map((p) => at.get(p.stage)));
  const children = stages.map(() => []);
  parents.forEach((list, child) => list.forEach((parent) => children[parent].push(child)));
  const layer = longest(parents, children);
  const layers = [];
  layer.forEach((number, i) => (layers[number] ??= []).push(i));
  for (let sweep = 0; sweep < 6; sweep += 1) {
    const down = sweep % 2 === 0;
    const order = down ? layers : [...layers].reverse();
    const place = new Map();
    for (const list of layers) list.forEach((i, row) => place.set(i, row - (list.length - 1) / 2));
    for (const list of order) {
      const key = new Map(list.map((i) => [i, mean(down ? parents[i] : children[i], place)]));
      list.sort((a, b) => key.get(a) - key.get(b));
      list.forEach((i, row) => place.set(i, row - (list.length - 1) / 2));
    }
  }
  const tall = Math.max(...layers.map((list) => list.length));
  const height = tall * (BOX.height + GAP.y) - GAP.y + 2 * PAD;
  const spots = [];
  layers.forEach((list, column) => {
    const own = list.length * (BOX.height + GAP.y) - GAP.y;
    list.forEach((i, row) => {
      spots[i] = { x: PAD + column * (BOX.width + GAP.x), y: (height - own) / 2 + row * (BOX.height + GAP.y) };
    });
  });
  return { spots, parents, width: layers.length * (BOX.width + GAP.x) - GAP.x + 2 * PAD, height };
}

function longest(parents, children) {
  const layer = parents.map(() => 0);
  const missing = parents.map((list) => list.length);
  const ready = missing.flatMap((n, i) => (n === 0 ? [i] : []));
  while (ready.length) {
    const stage = ready.pop();
    for (const child of children[stage]) {
      layer[child] = Math.max(layer[child], layer[stage] + 1);
      missing[child] -= 1;
      if (missing[child] === 0) ready.push(child);
    }
  }
  return layer;
}

function mean(neighbours, place) {
  const known = neighbours.map((i) => place.get(i)).filter((value) => value !== undefined);
  return known.length ? known.reduce((a, b) => a + b, 0) / known.length : 0;
}

/** What a stage is doing, in one word. */
export function stageState(stage) {
  if (stage.finished >= stage.tasks) return "finished";
  if (stage.running > 0) return "running";
  if (stage.pending > 0) return "pending";
  return stage.failed > 0 ? "failed" : "waiting";
}

const KINDS = { all_to_all: "after all tasks of", one_to_one: "task by task after", broadcast: "with the whole output of" };

export class Dag {
  constructor(choose) {
    this.choose = choose;
    this.key = "";
    this.boxes = [];
    this.edges = [];
    this.element = s("svg", { class: "dag", role: "group", "aria-label": "Stages and what they wait for" });
  }

  build(stages) {
    const { spots, parents, width, height } = layout(stages);
    this.element.setAttribute("viewBox", `0 0 ${width} ${height}`);
    this.element.setAttribute("width", width);
    this.element.setAttribute("height", height);
    this.edges = parents.flatMap((list, child) => list.map((parent, number) => {
      const [a, b] = [spots[parent], spots[child]];
      const [x1, y1, x2, y2] = [a.x + BOX.width, a.y + BOX.height / 2, b.x, b.y + BOX.height / 2];
      const bend = Math.max(24, (x2 - x1) / 2);
      const path = s("path", { class: `edge ${stages[child].parents[number].edge}`,
        d: `M${x1} ${y1}C${x1 + bend} ${y1} ${x2 - bend} ${y2} ${x2} ${y2}` });
      return { parent, child, path };
    }));
    this.boxes = stages.map((stage, i) => this.box(stage, i, spots[i]));
    this.element.replaceChildren(...this.edges.map((e) => e.path), ...this.boxes.map((b) => b.group));
  }

  box(stage, position, { x, y }) {
    const title = s("text", { class: "title", x: x + 14, y: y + 21 }, short(stage.name, 21));
    const text = s("text", { x: x + 14, y: y + 37 });
    const bars = ["done", "run", "ask"].map((name) => s("rect", { class: name, x: x + 14, y: y + 44, height: 5 }));
    const group = s("g", { class: "stage", tabindex: 0, role: "button", "aria-pressed": "false" },
      s("title", null, stage.name),
      s("rect", { class: "box", x, y, width: BOX.width, height: BOX.height, rx: 8 }),
      s("rect", { x: x + 4, y: y + 9, width: 4, height: BOX.height - 18, rx: 2, style: { fill: stageColour(position) } }),
      title, text, s("rect", { class: "rest", x: x + 14, y: y + 44, width: BOX.width - 28, height: 5, rx: 2.5 }), bars);
    group.addEventListener("click", () => this.choose(position));
    group.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      this.choose(position);
    });
    return { group, text, bars, x: x + 14 };
  }

  draw(stages, chosen) {
    const key = stages.map((stage) => `${stage.name}<${stage.parents.map((p) => p.stage).join()}`).join(";");
    if (key !== this.key) { this.key = key; this.build(stages); }
    stages.forEach((stage, i) => {
      const { group, text, bars, x } = this.boxes[i];
      const state = stageState(stage);
      group.setAttribute("class", `stage ${state}`);
      group.setAttribute("aria-pressed", String(i === chosen));
      const words = [`${count(stage.finished)} / ${count(stage.tasks)}`, stage.running && `${count(stage.running)} running`,
        stage.pending && `${count(stage.pending)} asked`].filter(Boolean).join(" · ");
      text.textContent = words;
      const waits = stage.parents.map((p) => `${KINDS[p.edge] ?? "after"} ${p.stage}`).join(", ");
      group.setAttribute("aria-label", `Stage ${stage.name}, ${state}: ${count(stage.finished)} of ${count(stage.tasks)} tasks finished, `
        + `${count(stage.running)} running, ${count(stage.pending)} asked for${waits ? `; ${waits}` : ""}`);
      let left = x;
      [stage.finished, stage.running, stage.pending].forEach((number, part) => {
        const width = (BOX.width - 28) * Math.min(1, number / stage.tasks);
        bars[part].setAttribute("x", left);
        bars[part].setAttribute("width", Math.max(0, Math.min(width, x + BOX.width - 28 - left)));
        left += width;
      });
    });
    for (const { parent, child, path } of this.edges) {
      path.classList.toggle("lit", parent === chosen || child === chosen);
    }
  }
}

const short = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);
