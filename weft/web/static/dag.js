// A job's stages as a layered graph, left to right; each box shows how many of its tasks are where.

import { count, s, stageColour } from "./util.js";

const BOX = { width: 176, height: 58 };
const GAP = { x: 56, y: 18 };
const PAD = 8;
const BEND = 8; // height of an edge's place in a layer that it passes
const SWEEPS = 8;
const SHRINK = 0.72; // a wide graph is drawn so small at the least; beyond, it scrolls

/**
 * Layer by the longest path from a root, then order each layer by where its neighbours are. An edge
 * over several layers gets a thin place in each, so that no line runs through a box.
 */
export function layout(stages) {
  const at = new Map(stages.map((stage, i) => [stage.name, i]));
  const parents = stages.map((stage) => stage.parents.map((p) => at.get(p.stage)));
  const children = stages.map(() => []);
  parents.forEach((list, child) => list.forEach((parent) => children[parent].push(child)));
  const layer = longest(parents, children);
  const layers = [];
  layer.forEach((number, i) => (layers[number] ??= []).push(i));
  const above = stages.map(() => []);
  const below = stages.map(() => []);
  const join = (a, b) => {
    below[a].push(b);
    above[b].push(a);
  };
  const edges = parents.flatMap((list, child) =>
    list.map((parent, number) => {
      const via = [];
      for (let step = layer[parent] + 1; step < layer[child]; step += 1) {
        const bend = above.push([]) - 1;
        below.push([]);
        layers[step].push(bend);
        via.push(bend);
      }
      [parent, ...via].forEach((one, i) => join(one, [...via, child][i]));
      return { parent, child, number, via };
    }),
  );
  order(layers, above, below);
  const high = (i) => (i < stages.length ? BOX.height : BEND);
  const heights = layers.map((list) => list.reduce((sum, i) => sum + high(i) + GAP.y, -GAP.y));
  const height = Math.max(...heights) + 2 * PAD;
  const spots = [];
  layers.forEach((list, column) => {
    let y = (height - heights[column]) / 2;
    for (const i of list) {
      spots[i] = { x: PAD + column * (BOX.width + GAP.x), y, middle: y + high(i) / 2 };
      y += high(i) + GAP.y;
    }
  });
  return { spots, edges, width: layers.length * (BOX.width + GAP.x) - GAP.x + 2 * PAD, height };
}

function order(layers, above, below) {
  for (let sweep = 0; sweep < SWEEPS; sweep += 1) {
    const down = sweep % 2 === 0;
    const place = new Map();
    const settle = (list) => list.forEach((i, row) => place.set(i, row - (list.length - 1) / 2));
    layers.forEach(settle);
    for (const list of down ? layers : [...layers].reverse()) {
      const key = new Map(list.map((i) => [i, mean(down ? above[i] : below[i], place)]));
      list.sort((a, b) => key.get(a) - key.get(b));
      settle(list);
    }
  }
}

/** A line from box to box through its thin places. */
function path(spots, { parent, child, via }) {
  let [x, y] = [spots[parent].x + BOX.width, spots[parent].middle];
  let text = `M${x} ${y}`;
  for (const stop of [...via, child]) {
    const [left, middle] = [spots[stop].x, spots[stop].middle];
    const bend = (left - x) / 2;
    text += `C${x + bend} ${y} ${left - bend} ${middle} ${left} ${middle}`;
    [x, y] = [left, middle];
    if (stop !== child) {
      x += BOX.width;
      text += `H${x}`;
    }
  }
  return text;
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

const KINDS = {
  all_to_all: "after all tasks of",
  one_to_one: "task by task after",
  broadcast: "with the whole output of",
};

export class Dag {
  constructor(choose) {
    this.choose = choose;
    this.key = "";
    this.boxes = [];
    this.edges = [];
    this.element = s("svg", {
      class: "dag",
      role: "group",
      "aria-label": "Stages and what they wait for",
    });
  }

  build(stages) {
    const { spots, edges, width, height } = layout(stages);
    this.size = { width, height };
    this.element.setAttribute("viewBox", `0 0 ${width} ${height}`);
    this.edges = edges.map((edge) => ({
      ...edge,
      path: s("path", {
        class: `edge ${stages[edge.child].parents[edge.number].edge}`,
        d: path(spots, edge),
      }),
    }));
    this.boxes = stages.map((stage, i) => this.box(stage, i, spots[i]));
    this.element.replaceChildren(
      ...this.edges.map((e) => e.path),
      ...this.boxes.map((b) => b.group),
    );
  }

  box(stage, position, { x, y }) {
    const title = s("text", { class: "title", x: x + 14, y: y + 21 }, short(stage.name, 21));
    const text = s("text", { x: x + 14, y: y + 37 });
    const bars = ["done", "run", "ask"].map((name) =>
      s("rect", { class: name, x: x + 14, y: y + 44, height: 5 }),
    );
    const group = s(
      "g",
      { class: "stage", tabindex: 0, role: "button", "aria-pressed": "false" },
      s("title", null, stage.name),
      s("rect", { class: "box", x, y, width: BOX.width, height: BOX.height, rx: 8 }),
      s("rect", {
        x: x + 4,
        y: y + 9,
        width: 4,
        height: BOX.height - 18,
        rx: 2,
        style: { fill: stageColour(position) },
      }),
      title,
      text,
      s("rect", { class: "rest", x: x + 14, y: y + 44, width: BOX.width - 28, height: 5, rx: 2.5 }),
      bars,
    );
    group.addEventListener("click", () => this.choose(position));
    group.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      this.choose(position);
    });
    return { group, text, bars, x: x + 14 };
  }

  draw(stages, chosen) {
    const key = stages
      .map((stage) => `${stage.name}<${stage.parents.map((p) => p.stage).join()}`)
      .join(";");
    if (key !== this.key) {
      this.key = key;
      this.build(stages);
    }
    stages.forEach((stage, i) => {
      const { group, text, bars, x } = this.boxes[i];
      const state = stageState(stage);
      group.setAttribute("class", `stage ${state}`);
      group.setAttribute("aria-pressed", String(i === chosen));
      const words = [
        `${count(stage.finished)} / ${count(stage.tasks)}`,
        stage.running && `${count(stage.running)} running`,
        stage.pending && `${count(stage.pending)} asked`,
      ]
        .filter(Boolean)
        .join(" · ");
      text.textContent = words;
      const waits = stage.parents.map((p) => `${KINDS[p.edge] ?? "after"} ${p.stage}`).join(", ");
      group.setAttribute(
        "aria-label",
        `Stage ${stage.name}, ${state}: ${count(stage.finished)} of ${count(stage.tasks)} tasks finished, ` +
          `${count(stage.running)} running, ${count(stage.pending)} asked for${waits ? `; ${waits}` : ""}`,
      );
      let left = x;
      [stage.finished, stage.running, stage.pending].forEach((number, part) => {
        const width = (BOX.width - 28) * Math.min(1, number / stage.tasks);
        bars[part].setAttribute("x", left);
        bars[part].setAttribute("width", Math.max(0, Math.min(width, x + BOX.width - 28 - left)));
        left += width;
      });
    });
    for (const { parent, child, path: line } of this.edges) {
      line.classList.toggle("lit", parent === chosen || child === chosen);
    }
    this.fit();
  }

  /** As wide as there is room for, within reason. */
  fit() {
    const room = this.element.parentElement?.clientWidth || this.size.width;
    const scale = Math.max(SHRINK, Math.min(1, room / this.size.width));
    this.element.setAttribute("width", this.size.width * scale);
    this.element.setAttribute("height", this.size.height * scale);
  }
}

const short = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);
