// What an application's page is made of: facts, reasons, and its stages in numbers.

import { isEnded, took } from "./apps_page.js";
import { stageState } from "./dag.js";
import { drawReasons, inHours } from "./reasons.js";
import { Table } from "./table.js";
import {
  amounts,
  appState,
  badge,
  count,
  duration,
  h,
  kindOf,
  meter,
  moment,
  percent,
  plural,
  shortName,
  stageColour,
} from "./util.js";

export function frame(id) {
  const parts = {
    title: h("h1"),
    state: h("span"),
    facts: h("dl", { class: "facts" }),
    whole: h("div"),
    diagnostics: h("p", { class: "diagnostics", hidden: true }),
    why: h("ul", { class: "why" }),
    dag: h("div"),
    tools: h("div"),
    chosen: h("p", { class: "sub chosen-line", hidden: true }),
    move: h("button", { class: "button", type: "button" }, "Move"),
    priority: h("button", { class: "button", type: "button" }, "Priority"),
    part: h("p", { class: "sub", hidden: true }),
    zoom: h("span"),
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
  parts.actions = h("span", { class: "actions" }, parts.move, parts.priority, parts.kill);
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
      h(
        "header",
        null,
        h("h2", { id: "a-dag" }, "Stages"),
        h("span", { class: "grow" }),
        parts.tools,
      ),
      parts.dag,
      parts.chosen,
      legend(),
    ),
    h(
      "section",
      { class: "panel", "aria-labelledby": "a-time" },
      h(
        "header",
        null,
        h("h2", { id: "a-time" }, "Tasks over time"),
        h("span", { class: "grow" }),
        parts.zoom,
        parts.by,
      ),
      parts.part,
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
      parts.actions,
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
      "Lines: solid waits for all tasks, dashed goes task by task, dash and dots by listed pairs of tasks, dotted takes the whole output",
    ),
  );
}

/** What passed from the master's container to the first task's: it starts, plans, and waits for room. */
function untilFirst({ app, spans, spans_whole: whole, now_s: now }) {
  if (!app.started_s || !whole) return [];
  const first = Math.min(...spans.map((span) => span[4]));
  const over = isEnded(app) ? app.finished_s : now;
  const text = duration(Math.min(first, over) - app.started_s);
  return [["From its master to its first task", first === Infinity ? `${text}, none yet` : text]];
}

export function drawHead(parts, data) {
  const { app, now_s: now } = data;
  const over = isEnded(app);
  parts.title.textContent = app.name;
  parts.state.replaceChildren(badge(appState(app)));
  parts.actions.hidden = over;
  const share = app.tasks ? app.finished / app.tasks : 0;
  const words = `${count(app.finished)} of ${count(app.tasks)} tasks finished`;
  parts.whole.replaceChildren(
    h("div", { class: "line spread sub" }, h("span", null, words), h("span", null, percent(share))),
    meter(share, words, over ? kindOf(appState(app)) : ""),
  );
  const rows = [
    ["Took", duration(took(app, now))],
    ["Submitted", moment(app.submitted_s, now)],
    ...(app.finished_s ? [["Ended", moment(app.finished_s, now)]] : []),
    [
      "Waited for its master",
      app.started_s ? duration(app.started_s - app.submitted_s) : "still waits",
    ],
    ...untilFirst(data),
    ["Queue", app.queue],
    ["User", app.user || "–"],
    ["Priority", String(app.priority)],
    [
      "Containers",
      `${count(app.running)} running, ${count(app.pending)} asked for` +
        (app.preempted ? `, ${count(app.preempted)} preempted` : ""),
    ],
    ["Holds", amounts(app.allocated, 0.005) || "nothing"],
    ["Held so far", inHours(app.held_s) || "nothing"],
    ["Attempt", app.attempts ? String(app.attempts) : "none yet"],
    [
      "Master on",
      app.master_node ? h("a", { href: `/cluster/node/${app.master_node}` }, app.master_node) : "–",
    ],
  ];
  parts.facts.replaceChildren(
    ...rows.map(([name, value]) => h("div", null, h("dt", null, name), h("dd", null, value))),
  );
  parts.diagnostics.hidden = !app.diagnostics;
  parts.diagnostics.textContent = app.diagnostics;
  parts.diagnostics.style.marginTop = "14px";
}

/** Why its stages wait. */
export function drawWhy(parts, { explain, app }) {
  const stages = explain.stages.filter((stage) => stage.pending > 0);
  parts.whyBox.hidden = isEnded(app) || (!stages.length && app.state === "RUNNING");
  drawReasons(parts.why, stages, explain.text);
}

export function stageTable(open) {
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
            h(
              "a",
              { href: r.href, title: `${r.name}: its tasks` },
              shortName(r.short, 260, 84),
            ),
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
        rank: 2,
        num: true,
        value: (r) => r.running,
        cell: (r) => count(r.running),
      },
      {
        key: "pending",
        title: "Asked for",
        rank: 2,
        num: true,
        value: (r) => r.pending,
        cell: (r) => count(r.pending),
      },
      {
        key: "failed",
        title: "Failed attempts",
        rank: 2,
        num: true,
        value: (r) => r.failed,
        cell: (r) => count(r.failed),
      },
      {
        key: "duration",
        title: "Estimate",
        rank: 3,
        num: true,
        value: (r) => r.duration_s,
        cell: (r) => duration(r.duration_s),
      },
      {
        key: "demand",
        title: "One task takes",
        rank: 3,
        class: "sub",
        cell: (r) => amounts(r.demand) || "nothing",
      },
    ],
    rowKey: (r) => r.name,
    label: "Stages",
    sort: ["position"],
    open,
  });
}
