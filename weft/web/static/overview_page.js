// The cluster at a glance: counts, how full it is and was, its queues, the newest applications.

import { areaChart, rangeChoice } from "./chart.js";
import { fewColumns } from "./apps_page.js";
import { shareBar } from "./queues_page.js";
import { Table } from "./table.js";
import { amount, count, duration, h, meter, percent, plural, resourceName } from "./util.js";

export function overviewPage({ go, refresh }) {
  const sub = h("p", { class: "sub" });
  const cards = {
    nodes: card("Nodes", "/cluster/nodes"),
    apps: card("Applications", "/cluster/apps"),
    containers: card("Containers"),
    load: card("Dominant share"),
  };
  const uses = h("div", { class: "uses" });
  const chart = h("div", { class: "chart-box" });
  const range = rangeChoice(() => refresh());
  const legend = h("div", { class: "legend" });
  const queues = h("div", { class: "uses" });
  const table = new Table({
    columns: fewColumns,
    rowKey: (row) => row.id,
    label: "Newest applications",
    sort: ["submitted", "desc"],
    open: (row) => go(`/cluster/app/${row.id}`),
    empty: "No application was submitted yet",
  });
  const element = h(
    "div",
    { class: "page" },
    h("div", { class: "head" }, h("h1", null, "Cluster"), sub),
    h(
      "div",
      { class: "cards" },
      Object.values(cards).map((c) => c.element),
    ),
    h(
      "div",
      { class: "cols" },
      h(
        "section",
        { class: "panel", "aria-labelledby": "o-time" },
        h(
          "header",
          null,
          h("h2", { id: "o-time" }, "Allocated over time"),
          h("span", { class: "grow" }),
          range.element,
        ),
        legend,
        chart,
      ),
      h(
        "section",
        { class: "panel", "aria-labelledby": "o-now" },
        h("header", null, h("h2", { id: "o-now" }, "Allocated and used now")),
        uses,
      ),
    ),
    h(
      "div",
      { class: "cols" },
      h(
        "section",
        { class: "panel flush", "aria-labelledby": "o-new" },
        h(
          "header",
          null,
          h("h2", { id: "o-new" }, "Newest applications"),
          h("span", { class: "grow" }),
          h("a", { href: "/cluster/apps" }, "All applications"),
        ),
        table.element,
      ),
      h(
        "section",
        { class: "panel", "aria-labelledby": "o-queues" },
        h(
          "header",
          null,
          h("h2", { id: "o-queues" }, "Queues"),
          h("span", { class: "grow" }),
          h("a", { href: "/cluster/queues" }, "Shares and deficits"),
        ),
        queues,
      ),
    ),
  );
  let data = null;
  const drawChart = () =>
    data &&
    chart.replaceChildren(areaChart(data.samples, Object.keys(data.capacity), chart.clientWidth));
  const sizes = new ResizeObserver(drawChart);
  sizes.observe(chart);
  return {
    title: "Cluster",
    get path() {
      return `/api/overview?ring=${range.chosen}`;
    },
    close: () => sizes.disconnect(),
    element,
    draw(fresh) {
      data = fresh;
      sub.textContent = `${data.scheduler} scheduler, up ${duration(data.now_s - data.started_s)}`;
      drawCards(cards, data);
      const names = Object.keys(data.capacity);
      uses.replaceChildren(...names.map((name) => use(name, data)));
      range.draw(data.rings);
      drawChart();
      legend.replaceChildren(
        ...names.map((name, i) =>
          h(
            "span",
            null,
            h("i", { class: "swatch", style: { background: `var(--chart-${(i % 6) + 1})` } }),
            resourceName(name),
          ),
        ),
        ...(data.samples.some((one) => Object.keys(one.use).length)
          ? [h("span", null, h("i", { class: "dash" }), "measured use")]
          : []),
      );
      queues.replaceChildren(
        ...leaves(data.queues)
          .slice(0, 8)
          .map((queue) =>
            h(
              "div",
              null,
              h(
                "div",
                { class: "line" },
                h("span", null, queue.name),
                h(
                  "span",
                  { class: "sub" },
                  `${percent(queue.used, 1)} used, ${queue.running} running, ${queue.waiting} waiting`,
                ),
              ),
              shareBar(queue),
            ),
          ),
      );
      table.now = data.now_s;
      table.set(data.recent.map((row) => ({ ...row, now_s: data.now_s })));
    },
  };
}

function card(label, href) {
  const value = h("div", { class: "value" });
  const more = h("div", { class: "more" });
  const title = href ? h("a", { href }, label) : label;
  return {
    element: h(
      "section",
      { class: "panel card" },
      h("div", { class: "label" }, title),
      value,
      more,
    ),
    value,
    more,
  };
}

function drawCards(cards, data) {
  const apps = (state) => data.apps[state] ?? 0;
  const up = data.nodes.RUNNING ?? 0;
  const others = Object.entries(data.nodes).filter(([state, n]) => n && state !== "RUNNING");
  set(
    cards.nodes,
    count(up),
    "running",
    others.map(([state, n]) => `${count(n)} ${state.toLowerCase()}`).join(", ") || "all of them",
  );
  const waiting = apps("NEW") + apps("SUBMITTED") + apps("ACCEPTED");
  // A job that failed is FINISHED to a manager as well, so only that they ended can be said.
  const over = apps("FINISHED") + apps("FAILED") + apps("KILLED");
  set(
    cards.apps,
    count(apps("RUNNING")),
    "running",
    [waiting && `${count(waiting)} waiting`, over && `${count(over)} ended`]
      .filter(Boolean)
      .join(", ") || "none has ended",
  );
  set(
    cards.containers,
    count(data.running),
    "running",
    data.pending ? `${count(data.pending)} asked for` : "nothing is asked for",
  );
  const shares = Object.entries(data.capacity).map(([name, total]) => [
    total ? (data.allocated[name] ?? 0) / total : 0,
    name,
  ]);
  const [share, name] = shares.sort((a, b) => b[0] - a[0])[0] ?? [0, ""];
  set(
    cards.load,
    percent(share),
    name && resourceName(name),
    share > 0.97 ? "the cluster is full" : "of the most used resource",
  );
}

function set({ value, more }, text, small, rest) {
  value.replaceChildren(text, h("small", null, small));
  more.textContent = rest;
}

function use(name, data) {
  const total = data.capacity[name];
  const held = data.allocated[name] ?? 0;
  const share = total ? held / total : 0;
  const used = data.use[name];
  const known = used !== undefined;
  return h(
    "div",
    null,
    h(
      "div",
      { class: "line" },
      h("span", null, resourceName(name)),
      h(
        "span",
        { class: "sub" },
        `${amount(name, held)} of ${amount(name, total)}, ${percent(share)}` +
          (known ? `; ${amount(name, used)} used` : ""),
      ),
    ),
    meter(
      share,
      `${resourceName(name)}: ${plural(Math.round(share * 100), "percent")} allocated`,
      "",
      known && total ? used / total : -1,
    ),
  );
}

function leaves(queue) {
  return queue.children.length ? queue.children.flatMap(leaves) : [queue];
}
