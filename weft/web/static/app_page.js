// One application: what it is, why it waits, its stages as a graph, its tasks over time.

import { isEnded, took } from "./apps_page.js";
import { Dag, stageState } from "./dag.js";
import { gantt, lanes, summary } from "./gantt.js";
import { Table } from "./table.js";
import {
  ago,
  amount,
  appState,
  badge,
  confirmed,
  count,
  duration,
  h,
  kindOf,
  meter,
  percent,
  plural,
  read,
  resourceName,
  stageColour,
} from "./util.js";

const LANES_MAX = 120;
const WHY_MAX = 12;
const NAMES_MAX = 20;

export function appPage({ argument, refresh }) {
  let data = null;
  let plan = null;
  let planNote = "";
  let asked = false;
  let chosen = -1;
  let by = "stage";
  const parts = frame(argument);
  const dag = new Dag((position) => {
    chosen = chosen === position ? -1 : position;
    redraw();
  });
  parts.dag.append(dag.element);
  const table = stageTable((row) => {
    chosen = chosen === row.position ? -1 : row.position;
    redraw();
  });
  parts.stages.append(table.element);
  for (const button of parts.by.children) {
    button.addEventListener("click", () => {
      by = button.value;
      redraw();
    });
  }
  parts.kill.addEventListener("click", async () => {
    if (
      !(await confirmed(
        `Kill ${data.app.name}?`,
        "Its running tasks end and what they did is lost. This cannot be undone.",
        "Kill it",
      ))
    )
      return;
    parts.kill.disabled = true;
    try {
      await read(`/ws/v1/cluster/apps/${argument}/state`, {
        method: "PUT",
        headers: { "Content-Type": "application/json", Accept: "application/json" },
        body: '{"state":"KILLED"}',
      });
    } catch (error) {
      parts.kill.disabled = false;
      throw error;
    }
    refresh();
  });

  async function askPlan() {
    asked = true;
    planNote = "Drawing the preferred schedule";
    try {
      plan = await read(`/api/apps/${argument}/plan`);
    } catch (error) {
      planNote = `No preferred schedule: ${error.message}`;
    }
    if (data) redraw();
  }

  function redraw() {
    drawHead(parts, data);
    drawWhy(parts, data);
    dag.draw(data.stages, chosen);
    table.set(
      data.stages.map((stage, position) => ({ ...stage, position, chosen: position === chosen })),
    );
    for (const button of parts.by.children)
      button.setAttribute("aria-pressed", String(button.value === by));
    drawTimes(parts, { data, plan, planNote, by, chosen });
  }

  const sizes = new ResizeObserver(() => {
    if (data) drawTimes(parts, { data, plan, planNote, by, chosen });
  });
  sizes.observe(parts.pair);
  const timer = setInterval(() => {
    if (data && !isEnded(data.app) && !document.hidden) refresh();
  }, 2000);
  return {
    get title() {
      return data?.app.name ?? "Application";
    },
    path: `/api/apps/${encodeURIComponent(argument)}`,
    element: parts.element,
    close() {
      clearInterval(timer);
      sizes.disconnect();
    },
    missing(text) {
      parts.note.hidden = false;
      parts.note.textContent = text;
      parts.rest.forEach((part) => {
        part.hidden = true;
      });
    },
    draw(fresh) {
      data = fresh;
      if (!asked) askPlan();
      redraw();
    },
  };
}

function frame(id) {
  const parts = {
    title: h("h1"),
    state: h("span"),
    facts: h("dl", { class: "facts" }),
    whole: h("div"),
    diagnostics: h("p", { class: "diagnostics", hidden: true }),
    why: h("ul", { class: "why" }),
    dag: h("div", { class: "dag-box" }),
    stages: h("div"),
    pair: h("div", { class: "pair" }),
    kill: h("button", { class: "button danger", type: "button" }, "Kill"),
    note: h("p", { class: "empty", hidden: true }),
    by: h(
      "div",
      { class: "choice", role: "group", "aria-label": "Lanes" },
      h("button", { type: "button", value: "stage" }, "By stage"),
      h("button", { type: "button", value: "node" }, "By node"),
    ),
  };
  parts.whyBox = h(
    "section",
    { class: "panel", "aria-labelledby": "a-why", hidden: true },
    h("header", null, h("h2", { id: "a-why" }, "Why it is waiting")),
    parts.why,
  );
  parts.rest = [
    h(
      "section",
      { class: "panel", "aria-label": "Facts" },
      parts.whole,
      parts.facts,
      parts.diagnostics,
    ),
    parts.whyBox,
    h(
      "section",
      { class: "panel", "aria-labelledby": "a-dag" },
      h("header", null, h("h2", { id: "a-dag" }, "Stages"), h("span", { class: "grow" }), legend()),
      parts.dag,
    ),
    h(
      "section",
      { class: "panel", "aria-labelledby": "a-time" },
      h(
        "header",
        null,
        h("h2", { id: "a-time" }, "Tasks over time"),
        h("span", { class: "grow" }),
        parts.by,
      ),
      parts.pair,
    ),
    h(
      "section",
      { class: "panel flush", "aria-labelledby": "a-list" },
      h("header", null, h("h2", { id: "a-list" }, "Stages in numbers")),
      parts.stages,
    ),
  ];
  parts.element = h(
    "div",
    { class: "page" },
    h(
      "div",
      { class: "head" },
      h("a", { href: "/cluster/apps" }, "Applications"),
      h("span", { class: "faint" }, "/"),
      parts.title,
      parts.state,
      h("span", { class: "mono sub" }, id),
      h("span", { class: "grow" }),
      parts.kill,
    ),
    parts.note,
    parts.rest,
  );
  return parts;
}

function legend() {
  const swatch = (colour, text) =>
    h("span", null, h("i", { class: "swatch", style: { background: colour } }), text);
  return h(
    "div",
    { class: "legend" },
    swatch("var(--bar-finished)", "finished"),
    swatch("var(--bar-running)", "running"),
    swatch("var(--bar-pending)", "asked for"),
    swatch("var(--bar-rest)", "not yet"),
    h(
      "span",
      null,
      "Lines: solid waits for all tasks, dashed goes task by task, dotted takes the whole output",
    ),
  );
}

function drawHead(parts, { app, now_s: now }) {
  const over = isEnded(app);
  parts.title.textContent = app.name;
  parts.state.replaceChildren(badge(appState(app)));
  parts.kill.hidden = over;
  const share = app.tasks ? app.finished / app.tasks : 0;
  const words = `${count(app.finished)} of ${count(app.tasks)} tasks finished`;
  parts.whole.replaceChildren(
    h(
      "div",
      {
        class: "line sub",
        style: { display: "flex", justifyContent: "space-between", marginBottom: "5px" },
      },
      h("span", null, words),
      h("span", null, percent(share)),
    ),
    meter(share, words, over ? kindOf(appState(app)) : ""),
  );
  const held = Object.entries(app.allocated)
    .filter(([, value]) => value >= 0.05)
    .map(([name, value]) => `${resourceName(name)} ${amount(name, value)}`);
  const rows = [
    ["Took", duration(took(app, now))],
    ["Submitted", ago(now - app.submitted_s)],
    [
      "Waited for its master",
      app.started_s ? duration(app.started_s - app.submitted_s) : "still waits",
    ],
    ["Queue", app.queue],
    ["User", app.user || "–"],
    ["Priority", String(app.priority)],
    ["Containers", `${count(app.running)} running, ${count(app.pending)} asked for`],
    ["Holds", held.join(", ") || "nothing"],
    ["Attempt", app.attempts ? String(app.attempts) : "none yet"],
    [
      "Master on",
      app.master_node ? h("a", { href: `/cluster/node/${app.master_node}` }, app.master_node) : "–",
    ],
  ];
  parts.facts.style.marginTop = "16px";
  parts.facts.replaceChildren(
    ...rows.map(([name, value]) => h("div", null, h("dt", null, name), h("dd", null, value))),
  );
  parts.diagnostics.hidden = !app.diagnostics;
  parts.diagnostics.textContent = app.diagnostics;
  parts.diagnostics.style.marginTop = "14px";
}

/** Stages that no node is to blame for are told together, by their reason. */
function drawWhy(parts, { explain, app }) {
  const stages = explain.stages.filter((stage) => stage.pending > 0);
  parts.whyBox.hidden = isEnded(app) || (!stages.length && app.state === "RUNNING");
  const nodes = (stage) => Object.entries(stage.reasons).filter(([, number]) => number > 0);
  const blamed = stages.filter((stage) => nodes(stage).length);
  const most = Math.max(1, ...blamed.flatMap((stage) => nodes(stage).map(([, number]) => number)));
  const items = blamed.slice(0, WHY_MAX).map((stage) =>
    whyItem(
      stage.stage,
      plural(stage.pending, "task"),
      nodes(stage)
        .sort((a, b) => b[1] - a[1])
        .map(([reason, number]) => {
          const text = `${plural(number, "node")}: ${reason}`;
          return h(
            "div",
            { class: "reason" },
            meter(number / most, text, "pending"),
            h("span", null, text),
          );
        }),
    ),
  );
  if (blamed.length > WHY_MAX) {
    items.push(h("li", { class: "sub" }, `and ${plural(blamed.length - WHY_MAX, "stage")} more`));
  }
  const others = new Map();
  for (const stage of stages.filter((one) => !blamed.includes(one))) {
    const reason = Object.keys(stage.reasons)[0] ?? "not known";
    others.set(reason, [...(others.get(reason) ?? []), stage]);
  }
  for (const [reason, list] of others) {
    const names = list
      .slice(0, NAMES_MAX)
      .map((stage) => stage.stage)
      .join(", ");
    const rest = list.length > NAMES_MAX ? ` and ${count(list.length - NAMES_MAX)} more` : "";
    const tasks = list.reduce((sum, stage) => sum + stage.pending, 0);
    items.push(
      whyItem(
        reason.charAt(0).toUpperCase() + reason.slice(1),
        plural(tasks, "task"),
        h("div", { class: "sub" }, names + rest),
      ),
    );
  }
  if (!stages.length) items.push(h("li", null, explain.text));
  parts.why.replaceChildren(...items);
}

const whyItem = (title, note, reasons) =>
  h(
    "li",
    null,
    h("div", null, h("strong", null, title), h("div", { class: "sub" }, note)),
    h("div", { class: "reasons" }, reasons),
  );

function stageTable(open) {
  return new Table({
    columns: [
      {
        key: "position",
        title: "Stage",
        value: (r) => r.position,
        class: "name",
        cell: (r) =>
          h(
            "span",
            { class: r.chosen ? "chosen" : "" },
            h("i", { class: "swatch", style: { background: stageColour(r.position) } }),
            r.name,
          ),
      },
      {
        key: "state",
        title: "State",
        value: (r) => stageState(r),
        cell: (r) => h("span", { class: `badge ${stageState(r)}` }, stageState(r)),
      },
      {
        key: "tasks",
        title: "Tasks",
        num: true,
        value: (r) => r.tasks,
        cell: (r) => count(r.tasks),
      },
      {
        key: "finished",
        title: "Finished",
        num: true,
        value: (r) => r.finished,
        cell: (r) => count(r.finished),
      },
      {
        key: "running",
        title: "Running",
        num: true,
        value: (r) => r.running,
        cell: (r) => count(r.running),
      },
      {
        key: "pending",
        title: "Asked for",
        num: true,
        value: (r) => r.pending,
        cell: (r) => count(r.pending),
      },
      {
        key: "failed",
        title: "Failed tries",
        num: true,
        value: (r) => r.failed,
        cell: (r) => count(r.failed),
      },
      {
        key: "duration",
        title: "Estimate",
        num: true,
        value: (r) => r.duration_s,
        cell: (r) => duration(r.duration_s),
      },
      {
        key: "demand",
        title: "One task takes",
        class: "sub",
        cell: (r) =>
          Object.entries(r.demand)
            .filter(([, v]) => v > 0)
            .map(([k, v]) => `${resourceName(k)} ${amount(k, v)}`)
            .join(", ") || "nothing",
      },
    ],
    rowKey: (r) => r.name,
    label: "Stages",
    sort: ["position"],
    open,
  });
}

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

function drawTimes(parts, { data, plan, planNote, by, chosen }) {
  const actual = actualBars(data);
  const wanted = plan ? planBars(plan) : [];
  const ends = [...actual, ...wanted].map((bar) => bar.end);
  const span =
    Math.max(
      1,
      ends.reduce((a, b) => Math.max(a, b), 0),
      plan?.bound_s ?? 0,
    ) * 1.01;
  const two = parts.pair.clientWidth > 760;
  const width = Math.max(300, two ? (parts.pair.clientWidth - 26) / 2 : parts.pair.clientWidth);
  const keyOf = by === "stage" ? (bar) => bar.stage : (bar) => bar.node;
  const [left, right] = [lanes(actual, keyOf), lanes(wanted, keyOf)];
  const now = isEnded(data.app)
    ? []
    : [{ at: actual.reduce((a, b) => Math.max(a, b.end), 0), kind: "now", text: "now" }];
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
          `${plan.planner}, ${duration(plan.makespan_s)}${plan.bound_s ? `, never under ${duration(plan.bound_s)}` : ""}`,
          wanted,
          right,
          left,
          plan.bound_s ? [{ at: plan.bound_s, kind: "bound", text: "lower bound" }] : [],
        )
      : h("div", null, h("h3", null, "As preferred"), h("p", { class: "sub" }, planNote)),
  ];
  const top = [...parts.pair.querySelectorAll(".gantt-box")].map((box) => box.scrollTop);
  parts.pair.replaceChildren(...charts);
  [...parts.pair.querySelectorAll(".gantt-box")].forEach((box, i) => {
    box.scrollTop = top[i] ?? 0;
  });

  function chart(title, note, bars, found, other, marks) {
    const head = h("h3", null, title, h("small", null, note));
    if (!bars.length)
      return h("div", null, head, h("p", { class: "sub" }, "No task has started yet"));
    const { keys, depths } = by === "stage" ? byStage(data.stages, found, other) : byNode(found);
    const label = summary(bars, title);
    const tell = (bar) =>
      [
        `${data.stages[bar.stage].name}${bar.task >= 0 ? ` task ${bar.task + 1}` : ""}`,
        `${typeof bar.node === "number" ? `machine ${bar.node + 1}` : bar.node}${bar.state ? `, ${bar.state.toLowerCase()}` : ""}${bar.attempt ? `, try ${bar.attempt + 1}` : ""}`,
        `${duration(bar.start)} to ${duration(bar.end)}: ${duration(bar.end - bar.start)}`,
      ].join("\n");
    return h(
      "div",
      null,
      head,
      h(
        "div",
        { class: "gantt-box" },
        gantt({ keys, depths, found, span, width, marks, chosen, label, tell }),
      ),
    );
  }
}

/** Both charts have the same lanes at the same height, so that they can be compared. */
function byStage(stages, found, other) {
  const shown = stages.map((stage, i) => [i, stage.name]).slice(0, LANES_MAX);
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
