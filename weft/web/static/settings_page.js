// Settings: what the manager runs with, and what differs from the defaults.

import { addressFilters, choices, searchBox } from "./apps_page.js";
import { Table } from "./table.js";
import { h, moment } from "./util.js";

const GROUPS = [
  ["all", "All", () => true],
  ["set", "Set", (row) => row.value !== row.default],
  ["matcher", "Of the matcher", (row) => row.name.startsWith("matcher.")],
];

const COLUMNS = [
  {
    key: "place",
    title: "Setting",
    value: (row) => row.place,
    cell: (row) => h("span", { class: "mono" }, row.name),
  },
  {
    key: "value",
    title: "Value",
    class: "words",
    value: (row) => row.value,
    cell: (row) => (row.value === row.default ? row.value || "–" : h("strong", null, row.value || "–")),
  },
  { key: "default", title: "Default", rank: 2, class: "words", value: (row) => row.default, cell: (row) => row.default || "–" },
  { key: "text", title: "What it is for", rank: 2, class: "words", value: (row) => row.text, cell: (row) => row.text },
];

/** Where the journal is, where no store is shared. */
const stateFolder = (settings) =>
  settings.find((row) => row.name === "state_dir")?.value || "no folder: nothing survives a restart";

export function settingsPage({ go }) {
  let rows = [];
  const filters = addressFilters(go, () => apply());
  const search = searchBox(filters, "Filter by name or words");
  const groups = choices(GROUPS, "Which settings", filters, "which");
  const facts = h("dl", { class: "facts" });
  const table = new Table({
    columns: COLUMNS,
    rowKey: (row) => row.name,
    label: "Settings",
    sort: ["place", "asc"],
    empty: "No setting passes these filters",
    size: 100,
  });

  function apply() {
    const text = filters.get("q").toLowerCase();
    const open = rows.filter((row) => !text || `${row.name} ${row.value} ${row.text}`.toLowerCase().includes(text));
    groups.draw(Object.fromEntries(GROUPS.map(([key, , passes]) => [key, open.filter(passes).length])));
    const passes = GROUPS.find(([key]) => key === groups.chosen())[2];
    table.set(open.filter(passes));
  }

  return {
    title: "Settings",
    path: "/api/settings",
    element: h(
      "div",
      { class: "page" },
      h("div", { class: "head" }, h("h1", null, "Settings"), h("span", { class: "grow" }), search),
      h("section", { class: "panel", "aria-label": "The Resource Manager" }, facts),
      groups.element,
      h("section", { class: "panel flush", "aria-label": "Settings" }, table.element),
    ),
    missing(words) {
      facts.replaceChildren(h("div", null, h("dt", null, "Not shown"), h("dd", null, words)));
    },
    draw(data) {
      const about = [
        ["Resource Manager", data.address || "–"],
        ["Stands", data.standing.toLowerCase() || "–"],
        ["Began", moment(data.started_s, data.now_s)],
        ["Scheduler", data.scheduler],
        ["State in", data.store || stateFolder(data.settings)],
      ];
      facts.replaceChildren(
        ...about.map(([name, value]) => h("div", null, h("dt", null, name), h("dd", null, value))),
      );
      rows = data.settings.map((row, place) => ({ ...row, place }));
      apply();
    },
  };
}
