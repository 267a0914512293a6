// Why stages wait: reasons counted over nodes.

import { count, h, meter, plural } from "./util.js";

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
