// Queues: what each is promised, may take, holds, and is owed.

import { amount, count, h, percent, resourceName } from "./util.js";

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

export function queuesPage() {
  const body = h("tbody");
  const sub = h("p", { class: "sub" });
  const numeric = (i) => i >= 2 && i <= 8;
  const element = h(
    "div",
    { class: "page" },
    h("div", { class: "head" }, h("h1", null, "Queues"), sub),
    h(
      "section",
      { class: "panel flush", "aria-label": "Queues" },
      h(
        "div",
        { class: "scroll" },
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
                h("th", { scope: "col", class: numeric(i) ? "num" : null }, h("span", null, title)),
              ),
            ),
          ),
          body,
        ),
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
  );
  return {
    title: "Queues",
    path: "/api/queues",
    element,
    draw(data) {
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
  const held = Object.entries(queue.allocated)
    .filter(([, value]) => value >= 0.05)
    .map(([key, value]) => `${resourceName(key)} ${amount(key, value)}`)
    .join(", ");
  const label = leaf
    ? h("a", { href: `/cluster/apps?queue=${encodeURIComponent(queue.name)}` }, name)
    : name;
  const cells = [
    percent(queue.used, 1),
    percent(queue.capacity, 1),
    percent(queue.max, 1),
    queue.deficit.toFixed(3),
    count(queue.running),
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
    cells.map((text) => h("td", { class: "num" }, text)),
    h("td", { class: "sub wrap holds" }, held || "–"),
  );
}
