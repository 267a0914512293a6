// An application's tasks over time, as they run beside as they are preferred.

import { isEnded } from "./apps_page.js";
import { gantt, lanes, summary } from "./gantt.js";
import { count, duration, h, scrolling } from "./util.js";

const LANES_MAX = 120;

const KIND = { RUNNING: "live", SUCCEEDED: "ok", FAILED: "bad" };

/** Spans of the server as bars from the first task's start; masters are left out. */
function actualBars({ spans, now_s: now, app }) {
  const tasks = spans.filter(([stage]) => stage >= 0);
  const origin = Math.min(...tasks.map((t) => t[4]), Infinity);
  const over = isEnded(app) ? app.finished_s : now;
  return tasks.map(([stage, task, attempt, node, start, end, state]) => ({
    stage,
    task,
    attempt,
    node,
    state,
    start: start - origin,
    end: Math.max(0, (end || over) - origin),
    kind: end ? (KIND[state] ?? "lost") : "live",
  }));
}

function planBars(plan) {
  return plan.tasks.map(([stage, task, machine, start, end]) => ({
    stage,
    task,
    node: machine,
    start,
    end,
    kind: "ok",
    state: "",
  }));
}

/** The part of the time that both charts show, and the buttons and keys that change it. */
export class TimeView {
  constructor(redraw) {
    this.redraw = redraw;
    this.part = null; // all of it
    const button = (title, text, act) =>
      h("button", { type: "button", class: "button small", "aria-label": title, title, onclick: act }, text);
    this.whole = button("Show all of the time", "All", () => this.set(null));
    this.element = h(
      "span",
      { class: "zoom", role: "group", "aria-label": "Part of the time" },
      button("Zoom out", "−", () => this.by(2)),
      button("Zoom in", "+", () => this.by(0.5)),
      this.whole,
    );
    this.span = 1;
  }

  /** What is shown of `span` s. */
  of(span) {
    this.span = span;
    this.whole.disabled = this.part === null;
    if (this.part === null) return [0, span];
    const [from, to] = this.part;
    return from >= span ? [0, span] : [from, Math.min(to, span)];
  }

  by(factor) {
    const [from, to] = this.of(this.span);
    const [middle, half] = [(from + to) / 2, ((to - from) * factor) / 2];
    if (2 * half >= this.span) this.set(null);
    else if (2 * half > this.span / 2000) this.set([middle - half, middle + half]);
  }

  /** Move by a share of what is shown. */
  move(share) {
    const [from, to] = this.of(this.span);
    const wide = to - from;
    const start = Math.min(this.span - wide, Math.max(0, from + share * wide));
    if (wide < this.span) this.set([start, start + wide]);
  }

  set(part) {
    this.part = part && [Math.max(0, part[0]), Math.min(this.span, part[1])];
    this.redraw();
  }

  key(event) {
    const act = {
      "+": () => this.by(0.5),
      "-": () => this.by(2),
      0: () => this.set(null),
      ArrowLeft: () => this.move(-0.25),
      ArrowRight: () => this.move(0.25),
    }[event.key];
    if (!act || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    act();
  }
}

export function drawTimes(parts, { data, plan, planNote, by, chosen, groups, short }) {
  const actual = actualBars(data);
  const wanted = plan ? planBars(plan) : [];
  const ends = [...actual, ...wanted].map((bar) => bar.end);
  const span =
    Math.max(
      1,
      ends.reduce((a, b) => Math.max(a, b), 0),
      plan?.bound_s ?? 0,
    ) * 1.01;
  const view = parts.view.of(span);
  const zoom = (from, to) => parts.view.set([from, to]);
  const two = parts.pair.clientWidth > 760;
  const width = Math.max(300, two ? (parts.pair.clientWidth - 26) / 2 : parts.pair.clientWidth);
  const groupOf = new Map(groups.flatMap((one, i) => one.members.map((stage) => [stage, i])));
  const keyOf = by === "stage" ? (bar) => groupOf.get(bar.stage) : (bar) => bar.node;
  const colourOf = (stage) => groups[groupOf.get(stage)].members[0];
  const [left, right] = [lanes(actual, keyOf), lanes(wanted, keyOf)];
  const now = isEnded(data.app)
    ? []
    : [{ at: actual.reduce((a, b) => Math.max(a, b.end), 0), kind: "now", text: "now" }];
  const bound = plan?.bound_s ? `by estimates never under ${duration(plan.bound_s)}` : "";
  const charts = [
    chart(
      isEnded(data.app) ? "As it ran" : "As it runs",
      duration(ends.length && actual.length ? Math.max(...actual.map((bar) => bar.end)) : 0),
      actual,
      left,
      right,
      now,
    ),
    plan
      ? chart(
          "As preferred",
          [plan.planner, duration(plan.makespan_s), bound].filter(Boolean).join(", "),
          wanted,
          right,
          left,
          plan.bound_s ? [{ at: plan.bound_s, kind: "bound", text: "lower bound" }] : [],
        )
      : h("div", null, h("h3", null, "As preferred"), h("p", { class: "sub" }, planNote)),
  ];
  const focused = [...parts.pair.querySelectorAll(".gantt-box")].indexOf(document.activeElement);
  const top = [...parts.pair.querySelectorAll(".gantt-box")].map((box) => box.scrollTop);
  parts.pair.replaceChildren(...charts);
  [...parts.pair.querySelectorAll(".gantt-box")].forEach((box, i) => {
    box.scrollTop = top[i] ?? 0;
    box.addEventListener("keydown", (event) => parts.view.key(event));
    if (i === focused) box.focus({ preventScroll: true });
  });

  function chart(title, note, bars, found, other, marks) {
    const head = h("h3", null, title, h("small", null, note));
    if (!bars.length)
      return h("div", null, head, h("p", { class: "sub" }, "No task has started yet"));
    const { keys, depths } = by === "stage" ? byStage(groups, found, other, short) : byNode(found);
    const label = summary(bars, title);
    const tell = (bar) => words(bar, data.stages);
    return h(
      "div",
      null,
      head,
      scrolling(
        "gantt-box",
        title,
        gantt({ keys, depths, found, view, zoom, width, marks, chosen, label, tell, colourOf }),
      ),
    );
  }
}

/** What the pointer reads of a bar. */
function words(bar, stages) {
  const where = typeof bar.node === "number" ? `machine ${bar.node + 1}` : bar.node;
  return [
    stages[bar.stage].name + (bar.task >= 0 ? ` task ${bar.task}` : ""),
    where +
      (bar.state && `, ${bar.state.toLowerCase()}`) +
      (bar.attempt ? `, attempt ${bar.attempt}` : ""),
    `${duration(bar.start)} to ${duration(bar.end)}: ${duration(bar.end - bar.start)}`,
  ].join("\n");
}

/** Both charts have the same lanes at the same height, so that they can be compared. */
function byStage(groups, found, other, short) {
  const name = (one) =>
    one.kind === "siblings" ? `${short(one.name)} × ${count(one.members.length)}` : short(one.name);
  const shown = groups.map((one, i) => [i, name(one)]).slice(0, LANES_MAX);
  const depths = new Map(
    shown.map(([i]) => [i, Math.max(found.get(i)?.depth ?? 1, other.get(i)?.depth ?? 1)]),
  );
  return { keys: shown, depths };
}

function byNode(found) {
  const order = [...found.keys()].sort((a, b) =>
    String(a).localeCompare(String(b), "en", { numeric: true }),
  );
  const keys = order
    .slice(0, LANES_MAX)
    .map((key) => [key, typeof key === "number" ? `machine ${key + 1}` : key]);
  return { keys, depths: new Map(keys.map(([key]) => [key, found.get(key).depth])) };
}
