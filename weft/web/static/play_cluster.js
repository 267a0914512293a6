// The cluster as a chart: who ran where and when, node by node, and what each node holds now.

import { duration, hideTip, middle, resourceName, showTip, textWidth, tickText, ticks } from "./util.js";

const FONT = "11.5px system-ui, sans-serif";
const SMALL = "11px system-ui, sans-serif";
const TOP = 26;
const GAP = 14;
const HIGH_MAX = 46; // px of a node
const HIGH_MIN = 9;
const BAD = new Set(["FAILED", "OUT_OF_MEMORY", "LOST", "PREEMPTED", "KILLED"]);
const HUE = 137.508; // golden angle: neighbours differ most

/** A calm colour for a job, by its place. */
export const jobColour = (job) =>
  `hsl(${((job * HUE + 214) % 360).toFixed(1)} var(--stage-sat) calc(var(--stage-light) + ${((job % 3) - 1) * 6}%))`;

/** Containers of each node in rows that do not overlap. */
function packed(film) {
  const ends = film.nodes.map(() => []);
  const lane = new Int16Array(film.start.length);
  film.start.forEach((start, row) => {
    const rows = ends[film.node[row]];
    let at = rows.findIndex((end) => end <= start + 1e-9);
    if (at < 0) at = rows.length;
    rows[at] = film.end[row] < 0 ? Infinity : film.end[row];
    lane[row] = at;
  });
  return { lane, depth: ends.map((rows) => Math.max(1, rows.length)) };
}

/** Draws one run; `span` is that of the time axis, s. */
export class ClusterView {
  constructor(film, span, wanted) {
    this.film = film;
    this.span = span;
    this.wanted = wanted; // px of all nodes, if that goes
    this.chosen = -1; // a job that stands out
    this.lit = -1; // the container of the decision that is looked at
    Object.assign(this, packed(film));
    const names = [...film.nodes.keys()];
    const key = new Intl.Collator("en", { numeric: true });
    this.order = names.sort((a, b) => key.compare(film.nodes[a].name, film.nodes[b].name));
    this.byNode = film.nodes.map(() => []);
    film.node.forEach((node, row) => this.byNode[node].push(row));
    this.canvas = document.createElement("canvas");
    this.canvas.className = "cluster";
    this.canvas.setAttribute("role", "img");
    this.canvas.addEventListener("pointermove", (event) => this._point(event));
    this.canvas.addEventListener("pointerleave", hideTip);
    this.canvas.addEventListener("click", (event) => this._click(event));
    this.onPick = null; // told of a job that was clicked, and of the time
  }

  /** Fit into so many pixels; what does not move is drawn once. */
  layout(wide) {
    const { film } = this;
    this.wide = Math.max(280, wide);
    const each = Math.floor(this.wanted / Math.max(1, film.nodes.length));
    this.high = Math.max(HIGH_MIN, Math.min(HIGH_MAX, each));
    const longest = Math.max(24, ...film.nodes.map((node) => textWidth(node.name, FONT)));
    this.left = this.high >= 12 ? Math.min(110, longest + 12) : 8;
    this.kinds = this.wide < 460 ? [0] : film.types.map((_, r) => r).slice(0, 4);
    const nowWide = Math.min(0.36 * this.wide, this.kinds.length * 92);
    this.nowLeft = this.wide - nowWide;
    this.right = this.nowLeft - GAP;
    this.total = TOP + this.high * film.nodes.length + 4;
    const dots = devicePixelRatio || 1;
    this.dots = dots;
    this.canvas.width = Math.round(this.wide * dots);
    this.canvas.height = Math.round(this.total * dots);
    this.canvas.style.width = `${this.wide}px`;
    this.canvas.style.height = `${this.total}px`;
    this._colours();
    this._still();
  }

  _colours() {
    const style = getComputedStyle(document.documentElement);
    const probe = document.createElement("i");
    document.body.append(probe);
    const of = (name) => style.getPropertyValue(name).trim();
    this.colour = {
      text: of("--text"), soft: of("--soft"), line: of("--line"), band: of("--raised"),
      rest: of("--bar-rest"), accent: of("--accent"), bad: of("--bar-failed"), panel: of("--panel"),
      master: of("--line-strong"),
    };
    this.jobs = this.film.jobs.map((_, job) => {
      probe.style.color = jobColour(job);
      return getComputedStyle(probe).color;
    });
    probe.remove();
  }

  x(t) {
    return this.left + (t / this.span) * (this.right - this.left);
  }

  y(place) {
    return TOP + place * this.high;
  }

  _still() {
    const { film, colour } = this;
    const make = () => {
      const canvas = document.createElement("canvas");
      canvas.width = this.canvas.width;
      canvas.height = this.canvas.height;
      const pen = canvas.getContext("2d");
      pen.setTransform(this.dots, 0, 0, this.dots, 0, 0);
      return [canvas, pen];
    };
    const [ground, pen] = make();
    pen.font = FONT;
    this.order.forEach((node, place) => {
      const y = this.y(place);
      if (place % 2 === 0) {
        pen.fillStyle = colour.band;
        pen.globalAlpha = 0.55;
        pen.fillRect(0, y, this.wide, this.high);
        pen.globalAlpha = 1;
      }
      if (this.high >= 12) {
        pen.fillStyle = colour.text;
        const name = middle(film.nodes[node].name, this.left - 10, FONT);
        pen.fillText(name, 4, y + Math.min(this.high / 2, 22) + 4);
      }
    });
    pen.font = SMALL;
    pen.fillStyle = colour.soft;
    pen.strokeStyle = colour.line;
    for (const at of ticks(this.span, this.right - this.left, 76)) {
      const x = Math.round(this.x(at)) + 0.5;
      pen.beginPath();
      pen.moveTo(x, TOP - 5);
      pen.lineTo(x, this.total);
      pen.stroke();
      pen.textAlign = at === 0 ? "left" : x > this.right - 20 ? "right" : "center";
      pen.fillText(tickText(at), x, 14);
    }
    pen.textAlign = "left";
    this.kinds.forEach((r, i) => {
      const [x, wide] = this._nowBox(i);
      pen.fillText(middle(resourceName(film.types[r]), wide, SMALL), x, 14);
    });
    this.ground = ground;
    const [bars, draw] = make();
    this._bars(draw);
    this.bars = bars;
  }

  _nowBox(i) {
    const each = (this.wide - this.nowLeft) / this.kinds.length;
    return [this.nowLeft + i * each, each - 10];
  }

  _box(row) {
    const { film } = this;
    const node = film.node[row];
    const bar = (this.high - 3) / this.depth[node];
    const x = this.x(film.start[row] - film.first_s);
    const end = film.end[row] < 0 ? film.last_s : film.end[row];
    const wide = Math.max(0.8, this.x(end - film.first_s) - x - (bar > 3 ? 0.6 : 0));
    const y = this.y(this.places[node]) + 1.5 + this.lane[row] * bar;
    return [x, y, wide, Math.max(0.7, bar - (bar > 3 ? 0.8 : 0))];
  }

  _bars(pen) {
    const { film } = this;
    this.places = new Int32Array(film.nodes.length);
    this.order.forEach((node, place) => {
      this.places[node] = place;
    });
    for (let row = 0; row < film.start.length; row += 1) {
      const [x, y, wide, high] = this._box(row);
      const dim = this.chosen >= 0 && film.job[row] !== this.chosen;
      pen.globalAlpha = dim ? 0.14 : film.stage[row] < 0 ? 0.5 : 1;
      pen.fillStyle = film.stage[row] < 0 ? this.colour.master : this.jobs[film.job[row]];
      pen.fillRect(x, y, wide, high);
      if (BAD.has(film.outcomes[film.outcome[row]]) && film.stage[row] >= 0) {
        pen.fillStyle = this.colour.bad;
        pen.fillRect(x + Math.max(0, wide - 2.5), y, Math.min(2.5, wide), high);
      }
    }
    pen.globalAlpha = 1;
  }

  /** Stress a job, or none. */
  choose(job) {
    this.chosen = job;
    if (this.wide) this._still();
  }

  /** Draw the moment at which the film stands. */
  paint() {
    if (!this.wide) return;
    const pen = this.canvas.getContext("2d");
    const { film, dots } = this;
    const now = this.x(film.now.t - film.first_s);
    const { width, height } = this.canvas;
    pen.setTransform(1, 0, 0, 1, 0, 0);
    pen.clearRect(0, 0, width, height);
    pen.drawImage(this.ground, 0, 0);
    const cut = Math.max(1, Math.min(width, Math.round(now * dots)));
    pen.drawImage(this.bars, 0, 0, cut, height, 0, 0, cut, height);
    if (cut < width) {
      pen.globalAlpha = 0.13;
      pen.drawImage(this.bars, cut, 0, width - cut, height, cut, 0, width - cut, height);
      pen.globalAlpha = 1;
    }
    pen.setTransform(dots, 0, 0, dots, 0, 0);
    this.order.forEach((node, place) => this._now(pen, node, place));
    pen.strokeStyle = this.colour.accent;
    pen.lineWidth = 1.5;
    pen.beginPath();
    pen.moveTo(now, TOP - 6);
    pen.lineTo(now, this.total);
    pen.stroke();
    if (this.lit >= 0) this._ring(pen);
    pen.lineWidth = 1;
  }

  _ring(pen) {
    const [x, y, wide, high] = this._box(this.lit);
    const place = this.places[this.film.node[this.lit]];
    pen.strokeStyle = this.colour.accent;
    pen.lineWidth = 1;
    pen.globalAlpha = 0.6;
    pen.strokeRect(0.5, this.y(place) + 0.5, this.wide - 1, this.high - 1);
    pen.globalAlpha = 1;
    pen.strokeStyle = this.colour.text;
    pen.lineWidth = 1.75;
    pen.strokeRect(x - 1, y - 1, Math.max(wide, 3) + 2, Math.max(high, 3) + 2);
  }

  /** What a node holds now of each resource, in the colours of the jobs. */
  _now(pen, node, place) {
    const { film, colour } = this;
    const top = this.y(place) + Math.max(1, this.high * 0.2);
    const high = Math.max(3, this.high * 0.6);
    const capacity = film.now.capacity[node];
    const rows = [...film.now.onNode[node]].sort((a, b) => film.job[a] - film.job[b] || a - b);
    const down = film.now.nodeState[node] !== "RUNNING";
    this.kinds.forEach((r, i) => {
      const [x, wide] = this._nowBox(i);
      pen.fillStyle = colour.rest;
      pen.globalAlpha = down ? 0.35 : 1;
      pen.fillRect(x, top, wide, high);
      if (!(capacity[r] > 0)) return;
      let at = x;
      for (const row of rows) {
        const share = (film.demands[film.demand[row]][r] ?? 0) / capacity[r];
        if (share <= 0) continue;
        const part = Math.min(share * wide, x + wide - at);
        const dim = this.chosen >= 0 && film.job[row] !== this.chosen;
        pen.globalAlpha = dim ? 0.2 : 1;
        pen.fillStyle = film.stage[row] < 0 ? colour.master : this.jobs[film.job[row]];
        pen.fillRect(at, top, Math.max(0.5, part - (part > 3 ? 0.7 : 0)), high);
        at += part;
      }
      pen.globalAlpha = 1;
    });
  }

  // -- the pointer -------------------------------------------------------------------------------

  _at(event) {
    const box = this.canvas.getBoundingClientRect();
    const scale = this.wide / box.width;
    const [px, py] = [(event.clientX - box.left) * scale, (event.clientY - box.top) * scale];
    const place = Math.floor((py - TOP) / this.high);
    const node = place >= 0 && place < this.order.length ? this.order[place] : -1;
    return { px, py, node };
  }

  _hit({ px, py, node }) {
    if (node < 0 || px > this.right + 2) return -1;
    const rows = this.byNode[node];
    for (let i = rows.length - 1; i >= 0; i -= 1) {
      const [x, y, wide, high] = this._box(rows[i]);
      if (px >= x - 1 && px <= x + wide + 1 && py >= y - 0.5 && py <= y + high + 0.5) return rows[i];
    }
    return -1;
  }

  _point(event) {
    const at = this._at(event);
    const row = this._hit(at);
    if (row >= 0) showTip(event, this._told(row));
    else if (at.node >= 0 && at.px > this.right) showTip(event, this._toldNode(at.node));
    else hideTip();
  }

  _told(row) {
    const { film } = this;
    const from = film.start[row] - film.first_s;
    const ended = film.end[row] >= 0;
    const held = (ended ? film.end[row] : film.last_s) - film.start[row];
    const ran = film.ran[row] > 0 ? `, ran ${duration(film.ran[row])}` : "";
    const outcome = ended ? film.outcomes[film.outcome[row]] : "still running at the end";
    const node = film.nodes[film.node[row]].name;
    return `${film.told(row)}\non ${node} from ${from.toFixed(2)} s, held ${duration(held)}${ran}\n${outcome.toLowerCase()}`;
  }

  _toldNode(node) {
    const { film } = this;
    const held = film.types.map(() => 0);
    for (const row of film.now.onNode[node])
      film.demands[film.demand[row]].forEach((amount, r) => (held[r] += amount));
    const lines = film.types.map((name, r) => {
      const of = film.now.capacity[node][r] ?? 0;
      return `${resourceName(name)} ${Number(held[r].toFixed(2))} of ${of}`;
    });
    return [`${film.nodes[node].name}: ${film.now.onNode[node].size} containers`, ...lines].join("\n");
  }

  _click(event) {
    const at = this._at(event);
    const row = this._hit(at);
    const inside = at.px >= this.left && at.px <= this.right;
    const t = ((at.px - this.left) / (this.right - this.left)) * this.span;
    this.onPick?.(row >= 0 ? this.film.job[row] : -1, inside && row < 0 ? t : -1);
  }
}
