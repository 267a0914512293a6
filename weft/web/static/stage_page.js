// One stage: how long its tasks take, which of them straggle or failed, and where each attempt ran.

import { stageState } from "./dag.js";
import { choices, isEnded } from "./apps_page.js";
import { drawReasons } from "./reasons.js";
import { Table } from "./table.js";
import { amounts, count, duration, h, kindOf, meter, percent, plural, s, scrolling } from "./util.js";

const STRAGGLES = 1.5; // times the median, as the masters' own rule (straggler_factor)
const BINS = 40;
const SHARES = [
  ["Least", 0],
  ["25th", 0.25],
  ["Median", 0.5],
  ["75th", 0.75],
  ["95th", 0.95],
  ["Most", 1],
];

/** The value that a share of sorted values does not pass, between neighbours in a line. */
export function percentile(sorted, share) {
  const at = (sorted.length - 1) * share;
  const [low, high] = [Math.floor(at), Math.ceil(at)];
  return sorted[low] + (sorted[high] - sorted[low]) * (at - low);
}

/** Rows of the server as objects, with how each compares with the median. */
function unpack(data) {
  const over = isEnded(data.app) ? data.app.finished_s : data.now_s;
  const rows = data.tries.map(
    ([task, attempt, node, start, end, state, id, exit, run, message]) => {
      const held = Math.max(0, (end || over) - start);
      const running = !end;
      const { logs } = data;
      return {
        ...{ task, attempt, node, state, id, exit, message, running, held, logs },
        after: start - data.app.submitted_s,
        ran: running ? held : run || held,
      };
    },
  );
  const right = rows.filter((row) => row.state === "SUCCEEDED");
  const times = right.map((row) => row.ran).sort((a, b) => a - b);
  const limit = times.length >= 4 ? STRAGGLES * percentile(times, 0.5) : Infinity;
  for (const row of rows) {
    row.factor = times.length ? row.ran / percentile(times, 0.5) : 0;
    row.straggles = row.ran > limit && (row.running || row.state === "SUCCEEDED");
  }
  return { rows, times, held: right.map((row) => row.held).sort((a, b) => a - b), limit };
}

const FAILED = new Set(["FAILED", "OUT_OF_MEMORY", "LOST"]);
const GROUPS = [
  ["all", "All", () => true],
  ["running", "Running", (row) => row.running],
  ["done", "Succeeded", (row) => row.state === "SUCCEEDED"],
  ["failed", "Failed", (row) => FAILED.has(row.state)],
  ["slow", "Stragglers", (row) => row.straggles],
];

const words = (state) => state.toLowerCase().replaceAll("_", " ");

function columns(open) {
  return [
    {
      key: "task",
      title: "Task",
      num: true,
      value: (r) => (r.task < 0 ? Infinity : r.task),
      cell: (r) => (r.task < 0 ? "–" : count(r.task)),
    },
    {
      key: "try",
      title: "Attempt",
      num: true,
      rank: 2,
      value: (r) => r.attempt,
      cell: (r) => (r.task < 0 ? "–" : r.attempt),
    },
    {
      key: "state",
      title: "State",
      value: (r) => r.state,
      cell: (r) =>
        h(
          "span",
          {
            class: `badge ${kindOf(r.running ? "RUNNING" : r.state === "OUT_OF_MEMORY" ? "FAILED" : r.state)}`,
            title: r.message || null,
          },
          words(r.state),
        ),
    },
    {
      key: "exit",
      title: "Exit code",
      num: true,
      rank: 2,
      value: (r) => r.exit,
      cell: (r) => (r.running ? "–" : r.exit),
    },
    {
      key: "node",
      title: "Node",
      value: (r) => r.node,
      cell: (r) => h("a", { href: `/cluster/node/${encodeURIComponent(r.node)}` }, r.node),
    },
    {
      key: "after",
      title: "Granted after",
      num: true,
      rank: 2,
      value: (r) => r.after,
      cell: (r) => duration(r.after),
    },
    {
      key: "ran",
      title: "Ran",
      num: true,
      value: (r) => r.ran,
      cell: (r) =>
        r.straggles
          ? h(
              "strong",
              { class: "late", title: "a straggler" },
              `${duration(r.ran)}, ${r.factor.toFixed(1)} ×`,
            )
          : duration(r.ran),
    },
    {
      key: "held",
      title: "Held",
      num: true,
      rank: 2,
      value: (r) => r.held,
      cell: (r) => duration(r.held),
    },
    {
      key: "log",
      title: "Log",
      cell: (r) =>
        r.logs
          ? h(
              "a",
              { href: `/node/${encodeURIComponent(r.node)}/containerlogs/${r.id}/-`, target: "_blank" },
              "log",
            )
          : "–",
    },
    {
      key: "why",
      title: "Why it ended",
      rank: 2,
      class: "sub wrap",
      value: (r) => r.message,
      cell: (r) => r.message,
    },
  ];
}

export function stagePage({ argument, more, go, refresh }) {
  const query = new URLSearchParams(location.search);
  let data = null;
  const filters = {
    get: (name) => query.get(name) ?? "",
    put(name, value) {
      if (value) query.set(name, value);
      else query.delete(name);
      go(location.pathname + (String(query) ? `?${query}` : ""), true);
      draw();
    },
  };
  const parts = {
    app: h("a", { href: `/cluster/app/${argument}` }, argument),
    title: h("h1"),
    state: h("span"),
    whole: h("div"),
    facts: h("dl", { class: "facts" }),
    why: h("ul", { class: "why" }),
    times: h("div"),
    note: h("p", { class: "empty", hidden: true }),
    part: h("p", { class: "sub", hidden: true }),
  };
  const groups = choices(GROUPS, "Attempts", filters, "show");
  const table = new Table({
    columns: columns(),
    rowKey: (r) => r.id,
    label: "Attempts",
    sort: ["task"],
    size: 50,
    empty: "No attempt passes this filter",
  });
  parts.whyBox = h(
    "section",
    { class: "panel", "aria-labelledby": "s-why", hidden: true },
    h("header", null, h("h2", { id: "s-why" }, "Why it is waiting")),
    parts.why,
  );
  const body = [
    h("section", { class: "panel", "aria-label": "Facts" }, parts.whole, parts.facts),
    parts.whyBox,
    h(
      "section",
      { class: "panel", "aria-labelledby": "s-times" },
      h("header", null, h("h2", { id: "s-times" }, "How long tasks took")),
      parts.times,
    ),
    h(
      "section",
      { class: "panel flush", "aria-labelledby": "s-tries" },
      h(
        "header",
        null,
        h("h2", { id: "s-tries" }, "Attempts"),
        h("span", { class: "grow" }),
        groups.element,
      ),
      parts.part,
      table.element,
    ),
  ];
  const element = h(
    "div",
    { class: "page" },
    h(
      "div",
      { class: "head" },
      h("a", { href: "/cluster/apps" }, "Applications"),
      h("span", { class: "faint" }, "/"),
      parts.app,
      h("span", { class: "faint" }, "/"),
      parts.title,
      parts.state,
    ),
    parts.note,
    body,
  );

  function draw() {
    const { stage, app, positions } = data;
    const { rows, times, held, limit } = unpack(data);
    parts.app.textContent = app.name;
    parts.title.textContent = stage.name;
    const state = stageState({ ...stage, over: isEnded(app) });
    parts.state.replaceChildren(h("span", { class: `badge ${state}` }, state));
    const share = stage.tasks ? stage.finished / stage.tasks : 0;
    const done = `${count(stage.finished)} of ${count(stage.tasks)} tasks finished`;
    parts.whole.replaceChildren(
      h(
        "div",
        { class: "line spread sub" },
        h("span", null, done),
        h("span", null, percent(share)),
      ),
      meter(share, done, share >= 1 ? "finished" : isEnded(app) ? kindOf(app.state) : ""),
    );
    const link = (name) =>
      h("a", { href: `/cluster/app/${argument}/stage/${positions[name]}` }, name);
    const list = (names) =>
      names.length
        ? names
            .slice(0, 8)
            .flatMap((name, i) => [i ? ", " : "", link(name)])
            .concat(names.length > 8 ? ` and ${names.length - 8} more` : [])
        : "none";
    const slow = rows.filter((row) => row.straggles).length;
    const facts = [
      ["Running", count(stage.running)],
      ["Asked for", count(stage.pending)],
      ["Failed attempts", count(stage.failed)],
      ["Stragglers", limit === Infinity ? "–" : `${count(slow)} over ${duration(limit)}`],
      ["Estimate of a task", duration(stage.duration_s)],
      ["One task takes", amounts(stage.demand) || "nothing"],
      ["Waits for", list(stage.parents.map((p) => p.stage))],
      ["Is waited for by", list(data.children)],
    ];
    parts.facts.replaceChildren(
      ...facts.map(([name, value]) => h("div", null, h("dt", null, name), h("dd", null, value))),
    );
    parts.whyBox.hidden = isEnded(app) || !data.explain.length;
    drawReasons(parts.why, data.explain);
    parts.times.replaceChildren(...timesOf(times, held, limit, parts.times.clientWidth));
    groups.draw(Object.fromEntries(GROUPS.map(([key, , test]) => [key, rows.filter(test).length])));
    table.set(rows.filter(GROUPS.find(([key]) => key === groups.chosen())[2]));
    const shown =
      rows.length < data.tries_known
        ? `The newest ${count(rows.length)} of ${plural(data.tries_known, "attempt")}. `
        : "";
    const missing = data.whole
      ? ""
      : "Not all of it was watched: attempts that ended before are missing.";
    parts.part.hidden = !(shown || missing);
    parts.part.textContent = shown + missing;
  }

  const sizes = new ResizeObserver(() => data && draw());
  sizes.observe(parts.times);
  const timer = setInterval(() => {
    if (data && !isEnded(data.app) && !document.hidden) refresh();
  }, 2000);
  return {
    get title() {
      return data ? `${data.stage.name} · ${data.app.name}` : "Stage";
    },
    path: `/api/apps/${encodeURIComponent(argument)}/stages/${encodeURIComponent(more)}`,
    element,
    close() {
      clearInterval(timer);
      sizes.disconnect();
    },
    missing(text) {
      parts.title.textContent = "There is no such stage";
      parts.note.hidden = false;
      parts.note.textContent = text;
      for (const part of body) part.hidden = true;
    },
    draw(fresh) {
      data = fresh;
      draw();
    },
  };
}

/** Percentiles in a table, and the durations as bars with the line that stragglers pass. */
function timesOf(times, held, limit, width) {
  if (!times.length) return [h("p", { class: "sub" }, "No task has succeeded yet")];
  const row = (name, sorted, title) =>
    h(
      "tr",
      null,
      h("th", { scope: "row", title }, h("span", null, name)),
      SHARES.map(([, share]) =>
        h("td", { class: shareClass(share) }, duration(percentile(sorted, share))),
      ),
    );
  const head = h(
    "tr",
    null,
    h("th", { scope: "col" }, h("span", null, plural(times.length, "task"))),
    SHARES.map(([name, share]) =>
      h("th", { scope: "col", class: shareClass(share) }, h("span", null, name)),
    ),
  );
  return [
    scrolling(
      "scroll",
      "Percentiles",
      h(
        "table",
        { class: "plain", "aria-label": "Percentiles" },
        h("thead", null, head),
        h(
          "tbody",
          null,
          row("Ran", times, "from the command's start to its end"),
          row("Held", held, "from the grant of its container to its end"),
        ),
      ),
    ),
    histogram(times, limit, Math.max(260, width)),
  ];
}

const shareClass = (share) => (share === 0.25 || share === 0.75 ? "num rank2" : "num");
const HIGH = 96;

function histogram(times, limit, width) {
  const most = times.at(-1) || 1;
  const bins = new Array(BINS).fill(0);
  for (const time of times) bins[Math.min(BINS - 1, Math.floor((time / most) * BINS))] += 1;
  const tallest = Math.max(...bins);
  const wide = width / BINS;
  const bars = bins.map((number, i) => {
    const high = number ? Math.max(2, (number / tallest) * (HIGH - 10)) : 0;
    const [low, top] = [(i / BINS) * most, ((i + 1) / BINS) * most];
    return s(
      "rect",
      {
        class: low >= limit ? "late" : "bin",
        x: (i * wide).toFixed(1),
        y: (HIGH - high).toFixed(1),
        width: Math.max(1, wide - 1).toFixed(1),
        height: high.toFixed(1),
      },
      s("title", null, `${duration(low)} to ${duration(top)}: ${plural(number, "task")}`),
    );
  });
  const at = (limit / most) * width;
  return s(
    "svg",
    {
      class: "chart bins",
      width,
      height: HIGH + 20,
      role: "img",
      "aria-label": `Durations of ${plural(times.length, "task")}, up to ${duration(most)}`,
    },
    bars,
    s("line", { class: "grid", x1: 0, x2: width, y1: HIGH, y2: HIGH }),
    at < width &&
      s(
        "line",
        { class: "limit", x1: at, x2: at, y1: 0, y2: HIGH },
        s("title", null, "stragglers are beyond"),
      ),
    s("text", { x: 0, y: HIGH + 15 }, "0 s"),
    s("text", { x: width, y: HIGH + 15, "text-anchor": "end" }, duration(most)),
  );
}
