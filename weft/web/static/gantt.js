// Tasks over time in lanes, by stage or node. Bars of one colour are one path: many are cheap.

import { count, duration, hideTip, middle, s, showTip, stageColour, tickText, ticks } from "./util.js";

const LEFT = 112;
const TOP = 24;
const LANE_FONT = "11.5px system-ui, sans-serif";
const LANE = { most: 96, least: 16, pad: 4 };
const BAR = { most: 11, least: 1.5 };

/** Bars grouped into lanes, packed without overlap; a bar is {stage, task, node, start, end, ...}. */
export function lanes(bars, keyOf) {
  const found = new Map();
  for (const bar of bars) {
    const key = keyOf(bar);
    if (!found.has(key)) found.set(key, []);
    found.get(key).push(bar);
  }
  for (const [key, list] of found) {
    list.sort((a, b) => a.start - b.start);
    const ends = [];
    for (const bar of list) {
      let row = ends.findIndex((end) => end <= bar.start + 1e-6);
      if (row < 0) row = ends.length;
      ends[row] = bar.end;
      bar.row = row;
    }
    found.set(key, { bars: list, depth: Math.max(1, ends.length) });
  }
  return found;
}

const rectangle = (x, y, wide, high) =>
  `M${x.toFixed(1)} ${y.toFixed(1)}h${wide.toFixed(1)}v${high.toFixed(1)}h${(-wide).toFixed(1)}z`;
const barHeight = (depth) =>
  Math.max(BAR.least, Math.min(BAR.most, (LANE.most - LANE.pad) / depth));
const laneHeight = (depth) => Math.max(LANE.least, barHeight(depth) * depth + LANE.pad);

/**
 * keys: the lanes in order with their labels; depths: how many bars each holds at once;
 * marks: {at, kind, text} vertical lines; chosen: the stage to stress, -1 for none.
 */
export function gantt({
  keys,
  depths,
  found,
  span,
  width,
  marks = [],
  chosen = -1,
  label,
  tell,
  colourOf,
}) {
  const x = (at) => LEFT + (at / span) * (width - LEFT - 10);
  const parts = [];
  const boxes = [];
  const paths = new Map();
  let y = TOP;
  keys.forEach(([key, name], number) => {
    const depth = depths.get(key) ?? 1;
    const high = laneHeight(depth);
    if (number % 2 === 0) parts.push(s("rect", { class: "band", x: 0, y, width, height: high }));
    parts.push(
      s(
        "text",
        { class: "lane", x: 4, y: y + Math.min(high / 2, 40) + 4 },
        s("title", null, name),
        middle(name, LEFT - 12, LANE_FONT),
      ),
    );
    const bar = barHeight(depth);
    for (const one of found.get(key)?.bars ?? []) {
      const left = x(one.start);
      const wide = Math.max(1, x(one.end) - left - (bar > 4 ? 0.75 : 0));
      const top = y + LANE.pad / 2 + one.row * bar;
      const group = `${one.stage}|${one.kind}`;
      if (!paths.has(group)) paths.set(group, []);
      paths.get(group).push(rectangle(left, top, wide, Math.max(1, bar - (bar > 4 ? 1 : 0))));
      boxes.push([left, left + wide, top, top + bar, one]);
    }
    y += high;
  });
  const height = y + 4;
  const grid = ticks(span, width - LEFT, 90).map((at) => [
    s("line", { class: "grid", x1: x(at), x2: x(at), y1: TOP - 4, y2: height }),
    s(
      "text",
      {
        x: x(at),
        y: 13,
        "text-anchor": at === 0 ? "start" : x(at) > width - 24 ? "end" : "middle",
      },
      tickText(at),
    ),
  ]);
  const drawn = [...paths].map(([group, pieces]) => {
    const [stage, kind] = group.split("|");
    const dim = chosen >= 0 && Number(stage) !== chosen ? "dim" : "";
    return s("path", {
      class: `${kind} ${dim}`,
      d: pieces.join(""),
      style:
        kind === "bad" || kind === "lost" ? {} : { fill: stageColour(colourOf(Number(stage))) },
    });
  });
  const lines = marks
    .filter((mark) => mark.at <= span)
    .map((mark) =>
      s(
        "line",
        { class: mark.kind, x1: x(mark.at), x2: x(mark.at), y1: TOP - 4, y2: height },
        s("title", null, mark.text),
      ),
    );
  const svg = s(
    "svg",
    {
      class: "gantt",
      width,
      height,
      viewBox: `0 0 ${width} ${height}`,
      role: "img",
      "aria-label": label,
    },
    parts,
    grid,
    drawn,
    lines,
  );
  svg.addEventListener("pointermove", (event) => {
    const place = svg.getBoundingClientRect();
    const [px, py] = [event.clientX - place.left, event.clientY - place.top];
    const hit = boxes.find(
      ([x1, x2, y1, y2]) => px >= x1 - 1 && px <= x2 + 1 && py >= y1 && py < y2,
    );
    if (hit) showTip(event, tell(hit[4]));
    else hideTip();
  });
  svg.addEventListener("pointerleave", hideTip);
  return svg;
}

/** The words of a chart that only shows. */
export function summary(bars, what) {
  if (!bars.length) return `${what}: no task yet`;
  const end = Math.max(...bars.map((bar) => bar.end));
  return `${what}: ${count(bars.length)} tasks over ${duration(end)}`;
}
