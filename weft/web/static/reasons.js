// Why stages wait: reasons counted over nodes.

import { figure, folded, label, meaning } from "./terms.js";
import { count, duration, h, meter, plural, scrolling, shortName } from "./util.js";

const WHY_MAX = 12;
const NAMES_MAX = 20;

/** Stages that no node is to blame for are told together, by their reason. */
export function drawReasons(element, stages, otherwise = "") {
  const nodes = (stage) => Object.entries(stage.reasons).filter(([, number]) => number > 0);
  const blamed = stages.filter((stage) => nodes(stage).length);
  const most = Math.max(1, ...blamed.flatMap((stage) => nodes(stage).map(([, number]) => number)));
  const items = blamed.slice(0, WHY_MAX).map((stage) =>
    item(
      stage.stage,
      plural(stage.pending, "task") +
        (stage.altruistic ? `, ${count(stage.altruistic)} may wait` : ""),
      [
        ...nodes(stage)
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
        stage.turn && whoGoesFirst(stage),
      ],
    ),
  );
  if (blamed.length > WHY_MAX)
    items.push(h("li", { class: "sub" }, `and ${plural(blamed.length - WHY_MAX, "stage")} more`));
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
      item(
        reason.charAt(0).toUpperCase() + reason.slice(1),
        plural(tasks, "task"),
        h("div", { class: "sub" }, names + rest),
      ),
    );
  }
  if (!stages.length && otherwise) items.push(h("li", null, otherwise));
  element.replaceChildren(...items);
}

const item = (title, note, reasons) =>
  h(
    "li",
    null,
    h("div", null, h("strong", null, title), h("div", { class: "sub" }, note)),
    h("div", { class: "reasons" }, reasons),
  );

/** Resource-seconds as hours: `1.2 vcore hours, 3 GB hours`; what is small in seconds. */
export function inHours(table) {
  const held = Object.entries(table)
    .filter(([name, value]) => value > 0 && (name === "vcores" || name === "memory_mb"))
    .map(([name, value]) => (name === "memory_mb" ? ["GB", value / 1024] : ["vcore", value]));
  const [unit, size] = held.some(([, value]) => value >= 360) ? ["hours", 3600] : ["seconds", 1];
  return held
    .map(([name, value]) => `${Number((value / size).toPrecision(3))} ${name} ${unit}`)
    .join(", ");
}

/** A narrow window has room for the first term, which mostly decides. */
const classAt = (i) => (i > 0 ? "num rank3" : "num");

/** A contender by its number too: many jobs may have one name. */
const named = (one, short = (text) => text) =>
  one.own
    ? "this application"
    : one.app_id
    ? `${String(one.app_id).padStart(4, "0")} ${short(one.name)}`
    : one.name || "another user’s";

/** Where a stage stands in the matcher's order: who is ahead, by what, and when it starts. */
function whoGoesFirst({ stage, pending, turn }) {
  const before = turn.asks
    ? `${turn.beyond ? "At least " : ""}${plural(turn.asks, "stage")} ${turn.asks === 1 ? "goes" : "go"} first ` +
      `(${plural(turn.containers, "container")}, ${inHours(turn.work) || "no work declared"})`
    : "It is next";
  const starts =
    turn.starts_in_s === null
      ? "when it starts is not foreseen"
      : `a container of it starts in about ${duration(turn.starts_in_s)}` +
        (turn.asks ? ", in room that they leave" : "") +
        (turn.if_it_lasts ? ", if this order lasts" : "");
  const own = { own: true, stage, pending, scores: turn.scores };
  const rows = turn.first.map((one, i) => [i + 1, one]);
  if (!turn.beyond) rows.push([turn.asks + 1, own]);
  for (const [, one] of rows) one.scores = folded(one.scores);
  const terms = [...new Set(rows.flatMap(([, one]) => Object.keys(one.scores)))];
  return h(
    "div",
    { class: "turn" },
    h("p", null, `${before}; ${starts}.`),
    rows.length > 1 &&
      scrolling(
        "scroll",
        `Who goes before ${stage}`,
        h(
          "table",
          null,
          h("caption", { class: "hide" }, `Who goes before ${stage}, by the order on ${turn.node_id}`),
          h(
            "thead",
            null,
            h(
              "tr",
              null,
              ["Turn", "Application", "Stage", "Tasks"].map((name) => h("th", { scope: "col" }, h("span", null, name))),
              terms.map((name, i) =>
                h("th", { scope: "col", class: classAt(i), title: meaning(name) }, h("span", null, label(name))),
              ),
            ),
          ),
          h(
            "tbody",
            null,
            rows.map(([place, one]) =>
              h(
                "tr",
                { class: one === own ? "own" : "" },
                h("td", null, String(place)),
                h("td", { title: named(one) }, named(one, (name) => shortName(name, 220, 64))),
                h("td", { title: one.stage }, shortName(one.stage, 160) || "–"),
                h("td", { class: "num" }, count(one.pending)),
                terms.map((name, i) =>
                  h("td", { class: classAt(i) }, one.scores[name] === undefined ? "–" : figure(one.scores[name])),
                ),
              ),
            ),
          ),
        ),
      ),
    turn.orders.map((line) => h("p", { class: "sub" }, `${line}.`)),
  );
}
