// Tasks over time in lanes, by stage or node. Bars of one colour are one path: many are cheap.

import { count, duration, hideTip, middle, s, showTip, stageColour, tickText, ticks } from "./util.js";

const LEFT = 112;
const TOP = 24;
const LANE_FONT = "11.5px system-ui, sans-serif";
const LANE = { most: 96, least: 16, pad: 4 };
const CHOSEN_PX_MIN = 6; // less is a click
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
 * view: [from, to] in s; zoom(from, to) is called when somebody chose a part with the pointer;
 * marks: {at, kind, text} vertical lines; chosen: the stage to stress, -1 for none.
 */
export function gantt({
  keys,
  depths,
  found,
  view,
  zoom,
  width,
  marks = [],
  chosen = -1,
  label,
  tell,
  colourOf,
}) {
  const [first, last] = view;
  const right = width - 10;
  const x = (at) => LEFT + ((at - first) / (last - first)) * (right - LEFT);
  const time = (px) => first + ((px - LEFT) / (right - LEFT)) * (last - first);
  const inside = (at) => Math.min(right, Math.max(LEFT, x(at)));
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
      if (one.end < first || one.start > last) continue;
      const left = inside(one.start);
      const wide = Math.max(1, inside(one.end) - left - (bar > 4 ? 0.75 : 0));
      const top = y + LANE.pad / 2 + one.row * bar;
      const group = `${one.stage}|${one.kind}`;
      if (!paths.has(group)) paths.set(group, []);
      paths.get(group).push(rectangle(left, top, wide, Math.max(1, bar - (bar > 4 ? 1 : 0))));
      boxes.push([left, left + wide, top, top + bar, one]);
    }
    y += high;
  });
  const height = y + 4;
  const steps = ticks(last - first, width - LEFT, 90);
  const step = steps.length > 1 ? steps[1] : last - first;
  const begin = Math.ceil(first / step - 1e-9) * step;
  const grid = steps.map((at) => begin + at).filter((at) => at <= last).map((at) => [
    s("line", { class: "grid", x1: x(at), x2: x(at), y1: TOP - 4, y2: height }),
    s(
      "text",
      {
        x: x(at),
        y: 13,
        "text-anchor": x(at) < LEFT + 24 ? "start" : x(at) > width - 24 ? "end" : "middle",
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
    .filter((mark) => mark.at >= first && mark.at <= last)
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
  const band = s("rect", { class: "chosen", y: TOP - 4, height: height - TOP + 4, width: 0 });
  svg.append(band);
  let from = -1;
  const at = (event) => {
    const place = svg.getBoundingClientRect();
    const px = event.clientX - place.left;
    return [Math.min(right, Math.max(LEFT, px)), event.clientY - place.top, px];
  };
  svg.addEventListener("pointerdown", (event) => {
    const [px, , raw] = at(event);
    if (event.button !== 0 || event.pointerType === "touch" || raw < LEFT) return;
    from = px;
    svg.setPointerCapture(event.pointerId);
  });
  svg.addEventListener("pointerup", (event) => {
    const [to] = at(event);
    const [a, b] = [Math.min(from, to), Math.max(from, to)];
    const chose = from >= 0 && b - a >= CHOSEN_PX_MIN;
    from = -1;
    band.setAttribute("width", 0);
    hideTip();
    if (chose) zoom(time(a), time(b));
  });
  svg.addEventListener("pointermove", (event) => {
    const [edge, py, px] = at(event);
    if (from >= 0) {
      const [a, b] = [Math.min(from, edge), Math.max(from, edge)];
      band.setAttribute("x", a);
      band.setAttribute("width", b - a);
      const tasks = boxes.filter(([x1, x2]) => x2 > a && x1 < b).length;
      const told = `${duration(time(a))} to ${duration(time(b))}: ${duration(time(b) - time(a))}`;
      showTip(event, `${told}\n${count(tasks)} tasks run then; let go to see this part`);
      return;
    }
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
