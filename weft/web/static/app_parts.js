// What an application's page is made of: facts, reasons, and its stages in numbers.

import { isEnded, took } from "./apps_page.js";
import { stageState } from "./dag.js";
import { Table } from "./table.js";
import {
  ago,
  amount,
  appState,
  badge,
  count,
  duration,
  h,
  kindOf,
  meter,
  percent,
  plural,
  resourceName,
  stageColour,
} from "./util.js";

const WHY_MAX = 12;
const NAMES_MAX = 20;

export function frame(id) {
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

export function drawHead(parts, { app, now_s: now }) {
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
export function drawWhy(parts, { explain, app }) {
  const stages = explain.stages.filter((stage) => stage.pending > 0);
  parts.whyBox.hidden = isEnded(app) || (!stages.length && app.state === "RUNNING");
  const nodes = (stage) => Object.entries(stage.reasons).filter(([, number]) => number > 0);
  const blamed = stages.filter((stage) => nodes(stage).length);
  const most = Math.max(1, ...blamed.flatMap((stage) => nodes(stage).map(([, number]) => number)));
  const items = blamed.slice(0, WHY_MAX).map((stage) =>
    whyItem(
      stage.stage,
      plural(stage.pending, "task") + (stage.altruistic ? `, ${stage.altruistic} may wait` : ""),
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
