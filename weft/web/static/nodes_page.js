// Nodes: a map of how full each is, the list, and one node with what it runs.

import { addressFilters, choices, searchBox } from "./apps_page.js";
import { Table } from "./table.js";
import {
  ago,
  amount,
  asked,
  badge,
  change,
  count,
  duration,
  h,
  hideTip,
  meter,
  moment,
  percent,
  resourceName,
  s,
  shortName,
  showTip,
  timeOf,
} from "./util.js";

const CELL = 15;
const STEP = 18;
const ROW_CELLS = 62;

/** A row of the server's short form as an object. */
function unpack(row, types, now) {
  const [
    name, state, rack, labels, containers, capacity, allocated, use, beat, address, health, lacking,
  ] = row;
  const shares = capacity.map((total, i) => (total ? allocated[i] / total : 0));
  return {
    name,
    state,
    rack,
    labels,
    containers,
    capacity,
    allocated,
    use,
    beat,
    address,
    health,
    lacking,
    types,
    now,
    share: Math.max(0, ...shares),
    shares,
    measured: use.some((value) => value > 0),
  };
}

const isUp = (node) => node.state === "RUNNING";

const GROUPS = [
  ["all", "All", () => true],
  ["up", "Running", isUp],
  ["busy", "Full", (node) => isUp(node) && node.share > 0.9],
  ["idle", "Idle", (node) => isUp(node) && node.containers === 0],
  ["leaving", "Leaving", (node) => node.state.startsWith("DECOMM")],
  ["down", "Not running", (node) => !isUp(node)],
];

/** Allocated as a bar, with a mark at what was measured. */
function held(node, i) {
  const name = node.types[i];
  const measured = node.capacity[i] ? node.use[i] / node.capacity[i] : 0;
  const used = node.measured ? `, ${amount(name, node.use[i])} used` : "";
  const text = `${resourceName(name)}: ${amount(name, node.allocated[i])} of ${amount(name, node.capacity[i])} allocated${used}`;
  return h(
    "div",
    { class: "with-meter", title: text },
    meter(node.shares[i], text, "", node.measured ? measured : -1),
    h("span", { class: "text" }, percent(node.shares[i])),
  );
}

function columns(types) {
  return [
    {
      key: "name",
      title: "Node",
      value: (n) => n.name,
      class: "name",
      cell: (n) =>
        h("a", { href: `/cluster/node/${encodeURIComponent(n.name)}`, tabindex: -1, title: n.name }, shortName(n.name)),
    },
    { key: "state", title: "State", value: (n) => n.state, cell: (n) => badge(n.state) },
    { key: "rack", title: "Rack", rank: 3, value: (n) => n.rack, cell: (n) => n.rack },
    {
      key: "labels",
      title: "Labels",
      rank: 3,
      value: (n) => n.labels.join(),
      cell: (n) => n.labels.join(", ") || "–",
    },
    {
      key: "containers",
      title: "Containers",
      rank: 2,
      num: true,
      value: (n) => n.containers,
      cell: (n) => count(n.containers),
    },
    ...types.slice(0, 4).map((name, i) => ({
      key: name,
      title: resourceName(name),
      rank: i > 2 ? 3 : i > 0 ? 2 : 1,
      value: (n) => n.shares[i],
      cell: (n) => held(n, i),
    })),
    {
      key: "beat",
      title: "Last heartbeat",
      rank: 3,
      num: true,
      value: (n) => n.now - n.beat,
      cell: (n) => ago(n.now - n.beat),
    },
  ];
}

/** One small square a node, darker the fuller; where there are racks, a row for each. */
function map(nodes, go) {
  const racks = new Map();
  for (const node of nodes) racks.set(node.rack, [...(racks.get(node.rack) ?? []), node]);
  return h(
    "div",
    { class: "racks" },
    [...racks].sort(([a], [b]) => a.localeCompare(b, "en", { numeric: true })).map(([rack, members]) => {
      const wide = Math.min(ROW_CELLS, members.length);
      const high = Math.ceil(members.length / wide);
      const cells = members.map((node, i) =>
        cell(node, (i % wide) * STEP, Math.floor(i / wide) * STEP),
      );
      const up = members.filter(isUp).length;
      const svg = s(
        "svg",
        {
          width: wide * STEP,
          height: high * STEP,
          viewBox: `0 0 ${wide * STEP} ${high * STEP}`,
          role: "img",
          "aria-label": `${rack}: ${up} of ${members.length} nodes run`,
        },
        cells,
      );
      svg.addEventListener("pointermove", (event) => {
        const node = members[event.target.dataset?.at];
        if (node)
          showTip(
            event,
            `${node.name}, ${node.state.toLowerCase()}\n${percent(node.share)} full, ${count(node.containers)} containers`,
          );
        else hideTip();
      });
      svg.addEventListener("pointerleave", hideTip);
      svg.addEventListener("click", (event) => {
        const node = members[event.target.dataset?.at];
        if (node) go(`/cluster/node/${encodeURIComponent(node.name)}`);
      });
      cells.forEach((element, i) => {
        element.dataset.at = i;
      });
      return h("div", { class: "rack" }, h("span", { title: rack }, rack), svg);
    }),
  );
}

function cell(node, x, y) {
  const place = { x: x + 0.5, y: y + 0.5, width: CELL, height: CELL, rx: 3.5 };
  if (!isUp(node))
    return s("rect", {
      ...place,
      class: `heat-cell ${node.state === "LOST" || node.state === "UNHEALTHY" ? "heat-bad" : "heat-off"}`,
    });
  if (node.share < 0.005) return s("rect", { ...place, class: "heat-cell heat-rest" });
  const mix = Math.round(22 + 78 * Math.min(1, node.share));
  return s("rect", {
    ...place,
    class: "heat-cell",
    style: { fill: `color-mix(in srgb, var(--bar-running) ${mix}%, var(--bar-rest))` },
  });
}

export function nodesPage({ go }) {
  let data = { nodes: [], types: [], now_s: 0 };
  let table = null;
  let drawn = "";
  const filters = addressFilters(go, () => apply());
  const search = searchBox(filters, "Filter by name, rack or label");
  const states = choices(GROUPS, "State", filters, "state");
  const place = h("div");
  const heat = h("div");
  const element = h(
    "div",
    { class: "page" },
    h("div", { class: "head" }, h("h1", null, "Nodes"), h("span", { class: "grow" }), search),
    states.element,
    h(
      "section",
      { class: "panel", "aria-labelledby": "n-map" },
      h(
        "header",
        null,
        h("h2", { id: "n-map" }, "How full each node is"),
        h("span", { class: "grow" }),
        legend(),
      ),
      heat,
    ),
    h("section", { class: "panel flush", "aria-label": "Nodes" }, place),
  );

  function apply() {
    if (!table) return;
    const text = filters.get("q").toLowerCase();
    const open = data.nodes
      .map((row) => unpack(row, data.types, data.now_s))
      .filter(
        (n) => !text || `${n.name} ${n.rack} ${n.labels.join(" ")}`.toLowerCase().includes(text),
      );
    states.draw(Object.fromEntries(GROUPS.map(([key, , test]) => [key, open.filter(test).length])));
    const rows = open.filter(GROUPS.find(([key]) => key === states.chosen())[2]);
    table.set(rows);
    const picture = rows
      .map((n) => `${n.name}${n.state}${Math.round(n.share * 50)}${n.containers}`)
      .join();
    if (picture !== drawn) {
      drawn = picture;
      heat.replaceChildren(map(rows, go));
    }
  }

  return {
    title: "Nodes",
    path: "/api/nodes",
    element,
    draw(fresh) {
      if (!table || fresh.types.join() !== data.types.join()) {
        table = new Table({
          columns: columns(fresh.types),
          rowKey: (n) => n.name,
          label: "Nodes",
          sort: ["name"],
          open: (n) => go(`/cluster/node/${encodeURIComponent(n.name)}`),
          empty: "No node passes these filters",
        });
        place.replaceChildren(table.element);
      }
      data = fresh;
      apply();
    },
  };
}

function legend() {
  const swatch = (fill, text) => h("span", null, h("i", { class: "swatch", style: fill }), text);
  return h(
    "div",
    { class: "legend" },
    swatch({ background: "var(--bar-rest)" }, "idle"),
    swatch({ background: "color-mix(in srgb, var(--bar-running) 55%, var(--bar-rest))" }, "half"),
    swatch({ background: "var(--bar-running)" }, "full"),
    swatch({ background: "var(--bar-failed)" }, "lost or unhealthy"),
    swatch({ border: "1px solid var(--line-strong)" }, "gone"),
  );
}

/** A task by the numbers that its command and `weft logs` know, from 0; until its node tells it, its stage. */
const taskName = ({ stageName, stage, number, attempt }) =>
  (stageName || `stage ${stage}`) +
  (number < 0 ? "" : `[${number}]`) +
  (attempt > 0 ? `, try ${attempt}` : "");

export function nodePage({ argument, go, refresh }) {
  const facts = h("dl", { class: "facts" });
  const uses = h("div", { class: "uses" });
  const state = h("span");
  const note = h("p", { class: "empty", hidden: true });
  const actions = h("span", { class: "actions" });
  const body = h("div");
  const path = `/api/nodes/${encodeURIComponent(argument)}`;
  const table = new Table({
    columns: [
      {
        key: "app",
        title: "Application",
        value: (r) => r.app,
        class: "name",
        cell: (r) => h("a", { href: `/cluster/app/${r.app}`, tabindex: -1, title: r.name }, shortName(r.name)),
      },
      {
        key: "task",
        title: "Container",
        rank: 2,
        value: (r) => r.container,
        cell: (r) =>
          h(
            "span",
            { class: "mono", title: r.container },
            r.container.replace(/^container_(e\d+_)?\d+_/, ""),
          ),
      },
      {
        key: "kind",
        title: "Runs",
        value: (r) => `${String(r.stage).padStart(6)} ${String(r.number).padStart(9)}`,
        cell: (r) =>
          r.stage < 0
            ? "the master"
            : h("a", { href: `/cluster/app/${r.app}/stage/${r.stage}` }, taskName(r)),
      },
      {
        key: "since",
        title: "Since",
        num: true,
        value: (r) => r.since,
        cell: (r) => [duration(r.since), h("span", { class: "sub clock" }, timeOf(r.now - r.since))],
      },
      {
        key: "log",
        title: "Log",
        cell: (r) =>
          r.logs
            ? h(
                "a",
                { href: `/node/${argument}/containerlogs/${r.container}/-`, target: "_blank" },
                "log",
              )
            : "–",
      },
    ],
    rowKey: (r) => r.container,
    label: "Containers",
    sort: ["since", "desc"],
    empty: "Nothing runs here",
    open: (r) => go(`/cluster/app/${r.app}`),
  });
  const leave = h("button", { class: "button danger", type: "button" }, "Decommission");
  leave.addEventListener("click", async () => {
    const field = h("input", { type: "number", min: 0, step: 1, value: 3600, required: true });
    const text =
      "Nothing new starts there. What still runs after so many seconds is stopped, and runs elsewhere:";
    const seconds = await asked(`Take ${argument} out of service?`, text, field, "Decommission");
    if (seconds === null || !field.checkValidity()) return;
    if (await change(`${path}/decommission`, "POST", { timeout_s: Number(seconds) })) refresh();
  });
  const back = h("button", { class: "button", type: "button" }, "Put back into service");
  back.addEventListener("click", async () => {
    if (await change(`${path}/recommission`, "POST", {})) refresh();
  });
  const element = h(
    "div",
    { class: "page" },
    h(
      "div",
      { class: "head" },
      h("a", { href: "/cluster/nodes" }, "Nodes"),
      h("span", { class: "faint" }, "/"),
      h("h1", null, argument),
      state,
      h("span", { class: "grow" }),
      actions,
    ),
    note,
    body,
  );
  body.append(
    h(
      "div",
      { class: "cols" },
      h(
        "section",
        { class: "panel flush", "aria-labelledby": "n-held" },
        h("header", null, h("h2", { id: "n-held" }, "Containers")),
        table.element,
      ),
      h(
        "section",
        { class: "panel", "aria-labelledby": "n-use" },
        h("header", null, h("h2", { id: "n-use" }, "Allocated and used")),
        uses,
        facts,
      ),
    ),
  );
  return {
    title: argument,
    path,
    element,
    missing(text) {
      note.hidden = false;
      note.textContent = text;
      body.hidden = true;
      actions.replaceChildren();
    },
    draw(data) {
      const node = unpack(data.row, data.types, data.now_s);
      state.replaceChildren(badge(node.state));
      const leaves = node.state.startsWith("DECOMM");
      if (actions.dataset.leaves !== String(leaves)) {
        actions.dataset.leaves = leaves;
        actions.replaceChildren(leaves ? back : leave);
      }
      uses.replaceChildren(
        ...node.types.map((name, i) =>
          h(
            "div",
            null,
            h(
              "div",
              { class: "line" },
              h("span", null, resourceName(name)),
              h(
                "span",
                { class: "sub" },
                `${amount(name, node.allocated[i])} of ${amount(name, node.capacity[i])}` +
                  (node.measured ? `, ${amount(name, node.use[i])} used` : ""),
              ),
            ),
            held(node, i),
          ),
        ),
      );
      const rows = [
        ["Rack", node.rack],
        ["Labels", node.labels.join(", ") || "–"],
        ["Last heartbeat", moment(node.beat, node.now)],
        ["Address", node.address || "–"],
        ["Health", node.health || "–"],
        ...(node.lacking ? [["Host lacks", node.lacking]] : []),
      ];
      facts.replaceChildren(
        ...rows.map(([name, text]) => h("div", null, h("dt", null, name), h("dd", null, text))),
      );
      table.set(
        data.containers.map(([app, name, stageName, stage, number, attempt, , start, , , container, logs]) => ({
          app,
          name,
          stage,
          stageName,
          number,
          attempt,
          container,
          logs,
          since: data.now_s - start,
          now: data.now_s,
        })),
      );
    },
  };
}
