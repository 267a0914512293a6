// Applications: filter, sort and page through all of them.

import { Table } from "./table.js";
import {
  appState,
  badge,
  count,
  duration,
  h,
  kindOf,
  meter,
  moment,
  percent,
  shortName,
  timeOf,
} from "./util.js";

const ENDED = new Set(["FINISHED", "FAILED", "KILLED"]);
export const isEnded = (app) => ENDED.has(app.state);

/** How long an application took, or takes so far, from its submission. */
export const took = (app, now) => (isEnded(app) ? app.finished_s : now) - app.submitted_s;

function progress(app) {
  const share = app.tasks ? app.finished / app.tasks : 0;
  const text = `${count(app.finished)} of ${count(app.tasks)} tasks finished`;
  return h(
    "div",
    { class: "with-meter", title: text },
    meter(share, text, isEnded(app) ? kindOf(appState(app)) : ""),
    h("span", { class: "text" }, percent(share)),
  );
}

/** A name; where there is no room for the columns of id and time they stand below it. */
function nameLink(app, room) {
  const link = { href: `/cluster/app/${app.id}`, tabindex: -1, title: app.name };
  return [
    h("a", link, shortName(app.name, room)),
    h("span", { class: "sub below id" }, app.id.replace(/^.*_/, "")),
    h("span", { class: "sub below when" }, timeOf(app.submitted_s)),
  ];
}

export const appColumns = [
  {
    key: "id",
    title: "Application",
    rank: 3,
    value: (a) => a.number,
    cell: (a) =>
      h(
        "a",
        { href: `/cluster/app/${a.id}`, class: "mono", tabindex: -1 },
        a.id.replace(/^application_/, ""),
      ),
  },
  {
    key: "name",
    title: "Name",
    value: (a) => a.name,
    class: "name",
    cell: (a) => nameLink(a),
  },
  { key: "user", rank: 3, title: "User", value: (a) => a.user, cell: (a) => a.user || "–" },
  {
    key: "queue",
    title: "Queue",
    rank: 2,
    value: (a) => a.queue,
    cell: (a) => a.queue.replace(/^root\./, ""),
  },
  { key: "state", title: "State", value: (a) => appState(a), cell: (a) => badge(appState(a)) },
  {
    key: "progress",
    title: "Done",
    value: (a) => (a.tasks ? a.finished / a.tasks : 0),
    cell: progress,
  },
  {
    key: "tasks",
    title: "Tasks",
    rank: 3,
    num: true,
    value: (a) => a.tasks,
    cell: (a) => count(a.tasks),
  },
  {
    key: "running",
    title: "Containers",
    rank: 3,
    num: true,
    value: (a) => a.running,
    // Nodes have yet to tell what it holds.
    cell: (a) => (!a.running && appState(a) === "RECOVERING" ? "–" : count(a.running)),
  },
  {
    key: "submitted",
    title: "Submitted",
    rank: 3,
    num: true,
    value: (a) => a.submitted_s,
    cell: (a) => moment(a.submitted_s, a.now_s),
  },
  {
    key: "took",
    title: "Took",
    num: true,
    value: (a) => took(a, a.now_s),
    cell: (a) => duration(took(a, a.now_s)),
  },
];

/** What half a page has room for. */
export const fewColumns = appColumns
  .filter((c) => !["user", "running", "id", "tasks"].includes(c.key))
  .map((c) => {
    if (c.key === "name") return { ...c, cell: (a) => nameLink(a, 150) };
    if (c.key !== "queue") return c;
    const short = (a) => shortName(a.queue.replace(/^root\./, ""), 92);
    return { ...c, cell: (a) => h("span", { title: a.queue }, short(a)) };
  });

const GROUPS = [
  ["all", "All", () => true],
  ["running", "Running", (a) => a.state === "RUNNING"],
  ["waiting", "Waiting", (a) => !isEnded(a) && a.state !== "RUNNING"],
  ["finished", "Succeeded", (a) => appState(a) === "SUCCEEDED"],
  ["failed", "Failed", (a) => appState(a) === "FAILED"],
  ["killed", "Killed", (a) => appState(a) === "KILLED"],
];

/** A row of filters whose values live in the page's address, so that a link keeps them. */
export function addressFilters(go, apply) {
  const query = new URLSearchParams(location.search);
  const put = (name, value) => {
    if (value) query.set(name, value);
    else query.delete(name);
    const text = query.toString();
    go(location.pathname + (text ? `?${text}` : ""), true);
    apply();
  };
  return { get: (name) => query.get(name) ?? "", put };
}

export function choices(groups, label, filters, name) {
  const buttons = new Map(
    groups.map(([key, title]) => {
      const number = h("span");
      const button = h(
        "button",
        { type: "button", onclick: () => filters.put(name, key === groups[0][0] ? "" : key) },
        title,
        number,
      );
      return [key, { button, number }];
    }),
  );
  const element = h(
    "div",
    { class: "choice", role: "group", "aria-label": label },
    [...buttons.values()].map((b) => b.button),
  );
  return {
    element,
    chosen: () => (buttons.has(filters.get(name)) ? filters.get(name) : groups[0][0]),
    draw(counts) {
      for (const [key, { button, number }] of buttons) {
        button.setAttribute("aria-pressed", String(key === this.chosen()));
        number.textContent = ` ${count(counts[key] ?? 0)}`;
      }
    },
  };
}

export function searchBox(filters, label) {
  const box = h("input", {
    type: "search",
    "aria-label": label,
    placeholder: `${label}  ( / )`,
    value: filters.get("q"),
  });
  box.addEventListener("input", () => filters.put("q", box.value.trim()));
  return box;
}

export function appsPage({ go }) {
  let data = { apps: [], now_s: 0 };
  const filters = addressFilters(go, () => apply());
  const search = searchBox(filters, "Filter by name, id or user");
  const states = choices(GROUPS, "State", filters, "state");
  const queue = h("select", { "aria-label": "Queue" });
  queue.addEventListener("change", () => filters.put("queue", queue.value));
  const table = new Table({
    columns: appColumns,
    rowKey: (row) => row.id,
    label: "Applications",
    sort: ["id", "desc"],
    open: (row) => go(`/cluster/app/${row.id}`),
    empty: "No application passes these filters",
  });
  const element = h(
    "div",
    { class: "page" },
    h(
      "div",
      { class: "head" },
      h("h1", null, "Applications"),
      h("span", { class: "grow" }),
      queue,
      search,
    ),
    states.element,
    h("section", { class: "panel flush", "aria-label": "Applications" }, table.element),
  );

  function drawQueues() {
    const names = [...new Set(data.apps.map((a) => a.queue))].sort();
    const wanted = ["", ...names];
    if (String([...queue.options].map((o) => `:${o.value}`)) === String(wanted.map((o) => `:${o}`))) return;
    queue.replaceChildren(
      ...wanted.map((name) =>
        h(
          "option",
          { value: name, selected: name === filters.get("queue") },
          name ? name.replace(/^root\./, "") : "All queues",
        ),
      ),
    );
  }

  function apply() {
    const text = filters.get("q").toLowerCase();
    const under = filters.get("queue");
    const open = data.apps.filter(
      (a) =>
        (!under || a.queue === under) &&
        (!text || `${a.name} ${a.id} ${a.user}`.toLowerCase().includes(text)),
    );
    states.draw(Object.fromEntries(GROUPS.map(([key, , test]) => [key, open.filter(test).length])));
    table.empty = data.apps.length ? "No application passes these filters" : "No application was submitted yet";
    const test = GROUPS.find(([key]) => key === states.chosen())[2];
    table.set(open.filter(test).map((a) => ({ ...a, now_s: data.now_s })));
  }

  return {
    title: "Applications",
    path: "/api/apps",
    element,
    draw(fresh) {
      data = fresh;
      drawQueues();
      apply();
    },
  };
}
