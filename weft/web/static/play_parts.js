// What stands beside the chart of a played run: figures, jobs, queues, and values over time.

import { clockText } from "./play_clock.js";
import { jobColour } from "./play_cluster.js";
import { badge, count, duration, h, percent, plural, resourceName, s, scrolling, shortName } from "./util.js";

const HIGH = 168;
const LEFT = 44;
const BOTTOM = 22;
const JOBS_MAX = 80;

const runColour = (n) => `var(--chart-${n + 1})`;

/** A mark by which a run is known everywhere on the page. */
export const runMark = (film, films) =>
  films.length > 1 &&
  h("i", { class: "runmark", style: { background: runColour(film.number) } }, film.number ? "B" : "A");

/** Counts of one run now. */
export class Figures {
  constructor(film) {
    this.film = film;
    this.values = new Map();
    const cell = (name, label) => {
      const value = h("dd", null, "0");
      this.values.set(name, value);
      return h("div", null, h("dt", null, label), value);
    };
    this.element = h(
      "dl",
      { class: "figures" },
      cell("running", "Running"),
      cell("waiting", "Waiting"),
      cell("jobs", "Jobs done"),
      cell("jct", "Mean JCT so far"),
      cell("use", "In use"),
    );
  }

  show() {
    const { film } = this;
    const { now } = film;
    const shares = film.shares();
    const top = shares.indexOf(Math.max(...shares));
    this._set("running", count(now.running));
    this._set("waiting", count(now.waiting));
    this._set("jobs", `${count(now.done)} of ${count(film.jobs.length)}`);
    this._set("jct", now.succeeded ? `${(now.jctSum / now.succeeded).toFixed(2)} s` : "–");
    this._set("use", `${percent(shares[top] ?? 0)} ${resourceName(film.types[top] ?? "")}`);
  }

  _set(name, text) {
    const value = this.values.get(name);
    if (value.textContent !== text) value.textContent = text;
  }
}

/** How far the jobs are: a row each, both runs in it. */
export class Jobs {
  constructor(films, pick) {
    this.films = films;
    const [first, second] = films;
    this.pairs = first.jobs.map((job, i) => [i, second ? paired(second, job, i) : -1]);
    const columns = ["Job", "Queue"];
    films.forEach((film, n) => {
      columns.push(films.length > 1 ? `Progress ${"AB"[n]}` : "Progress");
      columns.push(films.length > 1 ? `JCT ${"AB"[n]}` : "JCT");
    });
    if (second) columns.push("B − A");
    this.rows = this.pairs.slice(0, JOBS_MAX).map((pair) => this._row(pair, pick));
    this.element = scrolling(
      "scroll",
      "Jobs",
      h(
        "table",
        { class: "jobs" },
        h(
          "thead",
          null,
          h(
            "tr",
            null,
            columns.map((name) =>
              h(
                "th",
                { scope: "col", class: /^JCT|^B/.test(name) ? "num" : name === "Queue" ? "rank2" : "" },
                h("span", null, name),
              ),
            ),
          ),
        ),
        h("tbody", null, this.rows.map((row) => row.element)),
      ),
      this.pairs.length > JOBS_MAX &&
        h(
          "p",
          { class: "sub legendline" },
          `The first ${JOBS_MAX} of ${count(this.pairs.length)} jobs; `,
          h("a", { href: "/cluster/apps" }, "all of them"),
        ),
      second && this._unpaired(second),
    );
  }

  /** What jobs of the second run the first has not, and the other way round. */
  _unpaired(second) {
    const shared = new Set(this.pairs.map(([, job]) => job));
    const lacking = this.pairs.filter(([, job]) => job < 0).length;
    const own = second.jobs.filter((_, job) => !shared.has(job)).map((job) => job.name);
    const names = own.length > 6 ? [...own.slice(0, 6), "..."] : own;
    const words = [
      own.length && `${plural(own.length, "job")} of B ${own.length > 1 ? "are" : "is"} not in A: ${names.join(", ")}`,
      lacking && `${plural(lacking, "job")} of A ${lacking > 1 ? "are" : "is"} not in B`,
    ].filter(Boolean);
    return words.length > 0 && h("p", { class: "sub legendline" }, `${words.join("; ")}.`);
  }

  _row(pair, pick) {
    const [job] = pair;
    const told = this.films[0].jobs[job];
    const cells = this.films.map((film, n) => {
      const bar = h(
        "div",
        { class: "progress" },
        h("div", { class: "done" }),
        h("div", { class: "run" }),
        h("div", { class: "ask" }),
      );
      return { film, job: pair[n], bar, state: h("span"), jct: h("td", { class: "num" }), last: "" };
    });
    const gap = this.films.length > 1 ? h("td", { class: "num" }) : null;
    const queue = h("td", { class: "sub rank2" });
    const press = h(
      "button",
      {
        type: "button",
        class: "plainlink",
        "aria-pressed": "false",
        title: `${told.name}: show only its tasks`,
        onclick: () => pick(job),
      },
      h("i", { class: "swatch", style: { background: jobColour(job) } }),
      shortName(told.name, 190),
    );
    const element = h(
      "tr",
      null,
      h("td", { class: "name" }, press),
      queue,
      cells.map((cell) => [h("td", { class: "progresscell" }, cell.bar, cell.state), cell.jct]),
      gap,
    );
    return { element, cells, gap, press, pair, queue };
  }

  show(chosen) {
    for (const row of this.rows) {
      for (const cell of row.cells) this._cell(cell);
      if (row.gap) this._gap(row);
      this._queue(row);
      row.press.setAttribute("aria-pressed", String(row.pair[0] === chosen));
    }
  }

  _cell(cell) {
    const { film, job } = cell;
    if (job < 0) {
      cell.bar.classList.add("absent");
      return;
    }
    const { now } = film;
    const all = film.jobs[job].tasks || 1;
    const state = now.jobState[job];
    const parts = [now.jobFinished[job], now.jobRunning[job], now.jobWaiting[job]];
    const key = `${parts.join()};${state};${state && !ended(state) ? now.t.toFixed(1) : ""}`;
    if (key === cell.last) return;
    cell.last = key;
    [...cell.bar.children].forEach((child, i) => {
      child.style.width = `${(100 * Math.min(parts[i], all)) / all}%`;
    });
    cell.bar.title = `${parts[0]} of ${all} tasks done, ${parts[1]} running, ${parts[2]} waiting`;
    const done = ended(state);
    const { jct, submitted, final } = film.jobs[job];
    cell.jct.textContent = !state ? "" : done ? (jct >= 0 ? `${jct.toFixed(2)} s` : "–") : `${Math.max(0, now.t - submitted).toFixed(1)} s so far`;
    cell.jct.classList.toggle("faint", !done);
    const shown = done && final !== "SUCCEEDED" ? final : "";
    cell.state.replaceChildren(...(shown ? [badge(shown)] : []));
    cell.bar.classList.toggle("absent", !state);
  }

  _queue({ queue, pair }) {
    const [film] = this.films;
    const text = film.queues[film.now.queueOfJob[pair[0]]].replace(/^root\./, "");
    if (queue.textContent !== text) queue.textContent = text;
  }

  _gap({ gap, cells }) {
    const [a, b] = cells.map(({ film, job }) =>
      job >= 0 && ended(film.now.jobState[job]) ? film.jobs[job].jct : -1,
    );
    const known = a >= 0 && b >= 0;
    const text = known ? `${b - a > 0 ? "+" : ""}${(b - a).toFixed(2)} s` : "";
    if (gap.textContent !== text) gap.textContent = text;
    gap.classList.toggle("better", known && b < a - 1e-9);
    gap.classList.toggle("worse", known && b > a + 1e-9);
  }
}

const ended = (state) => state === "FINISHED" || state === "FAILED" || state === "KILLED";

function paired(film, job, i) {
  if (film.jobs[i]?.name === job.name) return i;
  return film.jobs.findIndex((other) => other.name === job.name);
}

/** What every leaf queue of the moment holds of its guarantee of then. */
export class Queues {
  constructor(films) {
    this.films = films;
    this.bars = [];
    this.shown = "";
    this.element = h("div", { class: "uses" });
  }

  show() {
    const states = this.films.map(leavesOf);
    const shown = JSON.stringify(states.map((leaves) => [...leaves]));
    if (shown !== this.shown) {
      this.shown = shown;
      this._lines(states);
    }
    for (const { film, place, fill, text, capacity } of this.bars) {
      const share = place < 0 ? 0 : Math.max(0, ...film.shares(place));
      fill.style.width = `${100 * Math.min(1, share)}%`;
      fill.classList.toggle("over", share > capacity + 1e-6);
      text.textContent = place < 0 ? "–" : percent(share);
    }
  }

  _lines(states) {
    this.bars = [];
    const paths = [...new Set(states.flatMap((leaves) => [...leaves.keys()]))];
    this.element.replaceChildren(...paths.map((path) => this._queue(path, states)));
  }

  _queue(path, states) {
    const guaranteed = new Set();
    const lines = this.films.map((film, n) => {
      const place = states[n].has(path) ? film.queues.indexOf(path) : -1;
      const capacity = states[n].get(path) ?? 0;
      if (place >= 0) guaranteed.add(percent(capacity));
      const fill = h("div", { class: "fill" });
      const text = h("span", { class: "sub num" });
      this.bars.push({ film, place, fill, text, capacity });
      const left = `calc(${100 * Math.min(1, capacity)}% - 2px)`;
      const own = h("div", { class: "own", style: { left } });
      return h("div", { class: "queueline" }, runMark(film, this.films), h("div", { class: "share" }, fill, own), text);
    });
    const told = `guaranteed ${[...guaranteed].join(" and ")}`;
    const line = h("div", { class: "line" }, h("span", null, path), h("span", { class: "sub" }, told));
    return h("div", null, line, lines);
  }
}

/** What the leaf queues of a moment are guaranteed, by path. */
const leavesOf = (film) =>
  new Map(film.leaves.map((queue) => [film.queues[queue], film.now.queue[queue].capacity]));

const MEASURES = [
  ["top", "In use", (value) => percent(value)],
  ["running", "Running", count],
  ["waiting", "Waiting", count],
  ["open", "Jobs in the system", count],
  ["done", "Jobs done", count],
];

/** Values over the run as lines with the moment in them; a click goes there. */
export class OverTime {
  constructor(films, span, seek) {
    Object.assign(this, { films, span, seek, measure: 0 });
    this.choice = h("div", { class: "choice", role: "group", "aria-label": "What is drawn" });
    this.legend = h("div", { class: "legend" });
    this.box = h("div", { class: "chart-box overtime" });
    this.box.addEventListener("click", (event) => {
      const box = this.box.getBoundingClientRect();
      this.seek(((event.clientX - box.left - LEFT) / (box.width - LEFT - 6)) * span);
    });
    this._buttons();
    this.element = h("div", null, this.legend, this.box);
  }

  _buttons() {
    this.choice.replaceChildren(
      ...MEASURES.map(([, name], i) =>
        h(
          "button",
          {
            type: "button",
            "aria-pressed": String(i === this.measure),
            onclick: () => {
              this.measure = i;
              this._buttons();
              this.layout();
            },
          },
          name,
        ),
      ),
    );
  }

  _lines() {
    const [key] = MEASURES[this.measure];
    if (this.films.length > 1)
      return this.films.map((film, n) => ({
        name: `${"AB"[n]}: ${film.scheduler}`, colour: runColour(n), values: film.chart[key], film,
      }));
    const [film] = this.films;
    if (key !== "top")
      return [{ name: MEASURES[this.measure][1], colour: runColour(0), values: film.chart[key], film }];
    return film.types.map((name, r) => ({
      name: resourceName(name), colour: `var(--chart-${(r % 6) + 1})`, values: film.chart.use[r], film,
    }));
  }

  layout() {
    const wide = Math.max(240, this.box.clientWidth || 600);
    const [key, name, tick] = MEASURES[this.measure];
    const lines = this._lines();
    const most = key === "top" ? 1 : Math.max(1, ...lines.flatMap((line) => line.values));
    const x = (t) => LEFT + (t / this.span) * (wide - LEFT - 6);
    const y = (value) => 8 + (1 - Math.min(1, value / most)) * (HIGH - BOTTOM - 8);
    const marks = [0, 0.5, 1].map((part) => part * most);
    this.line = s("line", { class: "now", y1: 4, y2: HIGH - BOTTOM });
    this.x = x;
    this.box.replaceChildren(
      s(
        "svg",
        {
          class: "chart",
          width: wide,
          height: HIGH,
          role: "img",
          "aria-label": `${name} over ${duration(this.span)}: ${lines.map((line) => line.name).join(", ")}`,
        },
        marks.map((value) => [
          s("line", { class: "grid", x1: LEFT, x2: wide - 6, y1: y(value), y2: y(value) }),
          s("text", { x: LEFT - 7, y: y(value) + 4, "text-anchor": "end" }, tick(value)),
        ]),
        [0, 0.5, 1].map((part) =>
          s(
            "text",
            {
              x: x(this.span * part),
              y: HIGH - 5,
              "text-anchor": part === 0 ? "start" : part === 1 ? "end" : "middle",
            },
            clockText(this.span * part),
          ),
        ),
        lines.map(({ values, colour, film }) =>
          s("polyline", {
            points: values
              .map((value, i) => `${x(film.chart.times[i]).toFixed(1)},${y(value).toFixed(1)}`)
              .join(" "),
            fill: "none",
            "stroke-width": 1.6,
            "stroke-linejoin": "round",
            style: { stroke: colour },
          }),
        ),
        this.line,
      ),
    );
    this.legend.replaceChildren(
      ...lines.map(({ name: text, colour }) =>
        h("span", null, h("i", { class: "swatch", style: { background: colour } }), text),
      ),
    );
  }

  show(t) {
    if (!this.line) return;
    const at = this.x(Math.min(t, this.span)).toFixed(1);
    this.line.setAttribute("x1", at);
    this.line.setAttribute("x2", at);
  }
}
