// Events: what the manager said happened, newest first.

import { addressFilters, searchBox } from "./apps_page.js";
import { Table } from "./table.js";
import { h, moment, plural, shortName } from "./util.js";

/** A phone has no columns for where it was and the rest. */
const below = (e) => h("span", { class: "sub below" }, [e.node, e.rest].filter(Boolean).join(": "));

const COLUMNS = [
  {
    key: "number",
    title: "When",
    value: (e) => e.number,
    cell: (e) => moment(e.at, e.now),
  },
  { key: "kind", title: "What", value: (e) => e.kind, class: "words", cell: (e) => [e.kind, below(e)] },
  {
    key: "app",
    title: "Application",
    value: (e) => e.name || e.app,
    cell: (e) =>
      e.app
        ? h("a", { href: `/cluster/app/${e.app}`, title: e.name || e.app }, shortName(e.name || e.app.replace(/^application_/, "")))
        : "–",
  },
  {
    key: "node",
    title: "Node",
    rank: 2,
    value: (e) => e.node,
    cell: (e) =>
      e.node ? h("a", { href: `/cluster/node/${encodeURIComponent(e.node)}` }, e.node) : "–",
  },
  { key: "rest", title: "Details", rank: 2, class: "words", value: (e) => e.rest, cell: (e) => e.rest },
];

export function eventsPage({ go }) {
  let data = { events: [], now_s: 0 };
  const filters = addressFilters(go, () => apply());
  const search = searchBox(filters, "Filter by name or words");
  const kind = h("select", { "aria-label": "Kind of event" });
  kind.addEventListener("change", () => filters.put("kind", kind.value));
  const sub = h("p", { class: "sub" });
  const table = new Table({
    columns: COLUMNS,
    rowKey: (row) => row.number,
    label: "Events",
    sort: ["number", "desc"],
    empty: "No event passes these filters",
    size: 50,
  });

  function drawKinds() {
    const wanted = ["", ...new Set(data.events.map((e) => e.kind))].sort();
    if (String([...kind.options].map((o) => `:${o.value}`)) === String(wanted.map((o) => `:${o}`))) return;
    kind.replaceChildren(
      ...wanted.map((one) =>
        h("option", { value: one, selected: one === filters.get("kind") }, one || "All kinds"),
      ),
    );
  }

  function apply() {
    const [text, only] = [filters.get("q").toLowerCase(), filters.get("kind")];
    const found = data.events.filter(
      (e) =>
        (!only || e.kind === only) &&
        (!text || `${e.app} ${e.name} ${e.node} ${e.rest}`.toLowerCase().includes(text)),
    );
    sub.textContent = `${plural(data.events.length, "event")} since these pages listen, the newest 2,000`;
    table.empty = data.events.length ? "No event passes these filters" : "Nothing has happened since these pages listen";
    table.set(found);
  }

  return {
    title: "Events",
    path: "/api/events",
    element: h(
      "div",
      { class: "page" },
      h("div", { class: "head" }, h("h1", null, "Events"), sub, h("span", { class: "grow" }), kind, search),
      h("section", { class: "panel flush", "aria-label": "Events" }, table.element),
    ),
    draw(fresh) {
      data = {
        ...fresh,
        events: fresh.events.map(([number, at, what, app, name, node, rest]) => ({
          ...{ number, at, kind: what, app, name, node, rest },
          now: fresh.now_s,
        })),
      };
      drawKinds();
      apply();
    },
  };
}
