// Values over time as lines, drawn at the width that there is: letters keep their size.

import { ago, duration, h, pace, s, timeOf } from "./util.js";

const HEIGHT = 200;
const LEFT = 46;
const BOTTOM = 24;
const TOP = 10;

/**
 * Buttons for how far back a chart reaches. The server knows the spans, in s of the cluster's clock;
 * they are told by the reader's, as all that is some time ago is.
 */
export function rangeChoice(changed) {
  const element = h("div", { class: "choice", role: "group", "aria-label": "How far back" });
  const range = { element, chosen: 0, draw };
  let drawn = "";
  function draw(spans) {
    const key = `${spans.join()};${range.chosen};${pace()}`;
    if (key === drawn) return;
    drawn = key;
    element.replaceChildren(
      ...spans.map((span, i) =>
        h(
          "button",
          {
            type: "button",
            "aria-pressed": String(i === range.chosen),
            onclick: () => {
              range.chosen = i;
              changed();
            },
          },
          duration(span / pace()).replace(/ 0 (s|min|h)$/, ""),
        ),
      ),
    );
  }
  return range;
}

/**
 * lines: {name, values: one a sample, colour, dashed, area}; low and high bound the values,
 * `tick(value)` writes them. `label` says in words what is seen.
 */
export function lineChart({ times, lines, low = 0, high = 1, marks, tick, width, label }) {
  const wide = Math.max(260, width || 720);
  const last = times.at(-1) ?? 0;
  const span = Math.max(30, last - (times[0] ?? 0));
  const x = (at) => LEFT + ((at - (last - span)) / span) * (wide - LEFT - 6);
  const clamp = (value) => Math.max(low, Math.min(high, value));
  const y = (value) =>
    TOP + (1 - (clamp(value) - low) / (high - low || 1)) * (HEIGHT - BOTTOM - TOP);
  const grid = marks.map((value) => [
    s("line", { class: "grid", x1: LEFT, x2: wide - 6, y1: y(value), y2: y(value) }),
    s("text", { x: LEFT - 7, y: y(value) + 4, "text-anchor": "end" }, tick(value)),
  ]);
  const past = (wide > 420 ? [1, 0.5] : [1]).map((part) =>
    s(
      "text",
      {
        x: x(last - span * part),
        y: HEIGHT - 6,
        "text-anchor": part === 1 ? "start" : "middle",
      },
      [ago(span * part), timeOf(last - span * part)].filter(Boolean).join(", "),
    ),
  );
  const drawn = lines.map((line) => {
    const points = [];
    const path = []; // with a gap where there is no value
    line.values.forEach((value, i) => {
      if (value === undefined) return;
      points.push(`${x(times[i]).toFixed(1)},${y(value).toFixed(1)}`);
      path.push(`${i && line.values[i - 1] !== undefined ? "L" : "M"}${points.at(-1)}`);
    });
    if (!points.length) return null;
    if (points.length === 1) {
      const [cx, cy] = points[0].split(",");
      const dot = { cx, cy, r: line.dashed ? 2 : 2.75, style: { fill: line.colour } };
      return s("circle", dot, s("title", null, line.name));
    }
    const base = y(Math.max(low, 0));
    const area = `${x(times[0]).toFixed(1)},${base} ${points.join(" ")} ${x(last).toFixed(1)},${base}`;
    return [
      line.area && s("polygon", { points: area, style: { fill: line.colour, opacity: 0.1 } }),
      s(
        "path",
        {
          d: path.join(" "),
          fill: "none",
          "stroke-width": line.dashed ? 1.25 : 1.75,
          "stroke-linejoin": "round",
          "stroke-dasharray": line.dashed ? "3 3" : null,
          style: { stroke: line.colour },
        },
        s("title", null, line.name),
      ),
    ];
  });
  return s(
    "svg",
    {
      class: "chart",
      width: wide,
      height: HEIGHT,
      role: "img",
      "aria-label": `${label} over the last ${duration(span / pace())}`,
    },
    grid,
    past,
    s("text", { x: wide - 6, y: HEIGHT - 6, "text-anchor": "end" }, "now"),
    drawn,
    times.length === 0 &&
      s("text", { x: wide / 2, y: HEIGHT / 2, "text-anchor": "middle" }, "No sample yet"),
  );
}

export const chartColour = (i) => `var(--chart-${(i % 6) + 1})`;

/** Allocated shares by resource, and what was measured of them. */
export function areaChart(samples, names, width) {
  const lines = names.flatMap((name, i) => [
    {
      name,
      colour: chartColour(i),
      area: i === 0,
      values: samples.map((one) => one.shares[name] ?? 0),
    },
    ...(samples.some((one) => name in one.use)
      ? [
          {
            name: `${name}, measured`,
            colour: chartColour(i),
            dashed: true,
            values: samples.map((one) => one.use[name]),
          },
        ]
      : []),
  ]);
  const ends = names.map(
    (name) => `${name} ${Math.round(100 * (samples.at(-1)?.shares[name] ?? 0))} percent now`,
  );
  return lineChart({
    times: samples.map((one) => one.now_s),
    lines,
    marks: [0, 0.5, 1],
    tick: (share) => `${share * 100} %`,
    width,
    label: `Allocated shares, ${ends.join(", ")}`,
  });
}
