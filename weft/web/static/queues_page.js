// Queues: what each is promised, may take, holds, and is owed.

import { chartColour, lineChart, rangeChoice } from "./chart.js";
import { QueueForm } from "./queue_form.js";
import { amounts, count, h, percent, scrolling } from "./util.js";

const LINES_MAX = 6; // queues in a chart, the fullest

/** Used share over the largest allowed one, with a mark at the guaranteed. */
export function shareBar(queue) {
  const at = (share) => `${Math.max(0, Math.min(1, share)) * 100}%`;
  const text = `${queue.name}: ${percent(queue.used, 1)} used, ${percent(queue.capacity)} guaranteed, ${percent(queue.max)} at most`;
  return h(
    "div",
    { class: "share", role: "img", "aria-label": text, title: text },
    h("div", { class: "max", style: { width: at(queue.max) } }),
    h("div", {
      class: `fill ${queue.used > queue.capacity + 1e-6 ? "over" : ""}`,
      style: { width: at(queue.used) },
    }),
    h("div", { class: "own", style: { left: `calc(${at(queue.capacity)} - 2px)` } }),
  );
}

/** Numbers to the right; columns that a phone, or a tablet, has no room for say so. */
const classAt = (i) =>
  [i >= 2 && i <= 8 && "num", i >= 7 ? "rank3" : (i === 3 || i === 4 || i === 6) && "rank2"]
    .filter(Boolean)
    .join(" ") || null;

const TITLES = [
  "Queue",
  "Share of the cluster",
  "Used",
  "Guaranteed",
  "At most",
  "Deficit",
  "Running",
  "Waiting",
  "Asked for",
  "Holds",
];

/** Leaf queues that were ever fullest, with what they used and were owed over time. */
function histories(data) {
  const leaves = new Set();
  walkLeaves(data.root, leaves);
  const known = data.samples.filter((one) => one.queues);
  const most = (name) => Math.max(0, ...known.map((one) => one.queues[name]?.[0] ?? 0));
  const names = [...leaves].sort((a, b) => most(b) - most(a)).slice(0, LINES_MAX);
  const lines = (at) =>
    names.map((name, i) => ({
      name,
      colour: chartColour(i),
      values: known.map((one) => one.queues[name]?.[at] ?? 0),
    }));
  return { names, times: known.map((one) => one.now_s), used: lines(0), owed: lines(1) };
}

function walkLeaves(queue, into) {
  if (!queue.children.length) into.add(queue.name);
  for (const child of queue.children) walkLeaves(child, into);
}

function drawHistories(data, used, owed, legend) {
  const { names, times, ...lines } = histories(data);
  used.replaceChildren(
    lineChart({
      times,
      lines: lines.used,
      marks: [0, 0.5, 1],
      tick: (share) => `${share * 100} %`,
      width: used.clientWidth,
      label: "Used share of the cluster by queue",
    }),
  );
  const values = lines.owed.flatMap((line) => line.values);
  const most = Math.max(0.1, ...values.map(Math.abs));
  owed.replaceChildren(
    lineChart({
      times,
      lines: lines.owed,
      low: -most,
      high: most,
      marks: [-most, 0, most],
      tick: (value) => value.toPrecision(2).replace("0.0", "0"),
      width: owed.clientWidth,
      label: "Deficit by queue, above zero it is owed",
    }),
  );
  legend.replaceChildren(
    ...names.map((name, i) =>
      h(
        "span",
        null,
        h("i", { class: "swatch", style: { background: chartColour(i) } }),
        name.replace(/^root\./, ""),
      ),
    ),
  );
}

export function queuesPage({ refresh }) {
  const used = h("div", { class: "chart-box" });
  const owed = h("div", { class: "chart-box" });
  const names = h("div", { class: "legend" });
  const range = rangeChoice(() => refresh());
  let data = null;
  const sizes = new ResizeObserver(() => data && drawHistories(data, used, owed, names));
  sizes.observe(used);
  const body = h("tbody");
  const sub = h("p", { class: "sub" });
  const form = new QueueForm(() => refresh());
  const alter = h("button", { type: "button", class: "button", onclick: () => form.open() }, "Change queues");
  // A run that is over has none that could be changed.
  alter.hidden = document.documentElement.dataset.played !== undefined;
  const element = h(
    "div",
    { class: "page" },
    h("div", { class: "head" }, h("h1", null, "Queues"), sub, h("span", { class: "grow" }), alter),
    h(
      "section",
      { class: "panel flush", "aria-label": "Queues" },
      scrolling(
        "scroll",
        "Table of queues",
        h(
          "table",
          { "aria-label": "Queues" },
          h(
            "thead",
            null,
            h(
              "tr",
              null,
              TITLES.map((title, i) =>
                h("th", { scope: "col", class: classAt(i) }, h("span", null, title)),
              ),
            ),
          ),
          body,
        ),
      ),
    ),
    h(
      "section",
      { class: "panel", "aria-labelledby": "q-time" },
      h(
        "header",
        null,
        h("h2", { id: "q-time" }, "Over time"),
        h("span", { class: "grow" }),
        range.element,
      ),
      names,
      h(
        "div",
        { class: "pair" },
        h("div", null, h("h3", null, "Used share of the cluster"), used),
        h("div", null, h("h3", null, "Deficit", h("small", null, "above zero: owed")), owed),
      ),
    ),
    h(
      "div",
      { class: "legend" },
      h(
        "span",
        null,
        h("i", { class: "swatch", style: { background: "var(--bar-running)" } }),
        "used, within the guarantee",
      ),
      h(
        "span",
        null,
        h("i", { class: "swatch", style: { background: "var(--bar-pending)" } }),
        "used, above it",
      ),
      h(
        "span",
        null,
        h("i", { class: "swatch", style: { background: "var(--bar-rest)" } }),
        "at most",
      ),
      h(
        "span",
        null,
        h("i", { class: "swatch", style: { background: "var(--text)", width: "2px" } }),
        "guaranteed",
      ),
      h(
        "span",
        null,
        "Shares are of the whole cluster, by the resource that a queue holds most of. A deficit above zero is owed to the queue.",
      ),
    ),
    form.element,
  );
  return {
    title: "Queues",
    get path() {
      return `/api/queues?ring=${range.chosen}`;
    },
    element,
    close: () => sizes.disconnect(),
    draw(fresh) {
      data = fresh;
      range.draw(data.rings);
      drawHistories(data, used, owed, names);
      sub.textContent = `${data.scheduler} scheduler`;
      const rows = [];
      walk(data.root, 0, rows);
      const open = body.contains(document.activeElement);
      if (!open) body.replaceChildren(...rows.map(([queue, depth]) => row(queue, depth)));
    },
  };
}

function walk(queue, depth, rows) {
  rows.push([queue, depth]);
  for (const child of queue.children) walk(child, depth + 1, rows);
}

function row(queue, depth) {
  const name = queue.name.split(".").at(-1);
  const leaf = !queue.children.length;
  const held = amounts(queue.allocated, 0.005);
  const label = leaf
    ? h("a", { href: `/cluster/apps?queue=${encodeURIComponent(queue.name)}` }, name)
    : name;
  const cells = [
    percent(queue.used, 1),
    percent(queue.capacity, 1),
    percent(queue.max, 1),
    queue.deficit.toFixed(3),
    queue.most ? `${count(queue.running)} of ${count(queue.most)}` : count(queue.running),
    count(queue.waiting),
    count(queue.pending),
  ];
  return h(
    "tr",
    null,
    h(
      "td",
      { class: "tree", style: { paddingLeft: `${18 + depth * 22}px` } },
      depth ? h("span", { class: "twig", "aria-hidden": "true" }, "└") : null,
      label,
    ),
    h("td", null, shareBar(queue)),
    cells.map((text, i) => h("td", { class: classAt(i + 2) }, text)),
    h("td", { class: "sub wrap holds rank3" }, held || "–"),
  );
}
