// Shares over time, as lines over one soft area.

import { duration, s } from "./util.js";

const WIDTH = 720;
const HEIGHT = 190;
const LEFT = 38;
const BOTTOM = 22;

export function areaChart(samples, names) {
  const last = samples.at(-1)?.now_s ?? 0;
  const span = Math.max(30, last - (samples[0]?.now_s ?? 0));
  const x = (at) => LEFT + ((at - (last - span)) / span) * (WIDTH - LEFT - 6);
  const y = (share) => 8 + (1 - Math.min(1.05, share)) * (HEIGHT - BOTTOM - 8);
  const grid = [0, 0.5, 1].map((share) => [
    s("line", { class: "grid", x1: LEFT, x2: WIDTH - 6, y1: y(share), y2: y(share) }),
    s("text", { x: LEFT - 7, y: y(share) + 4, "text-anchor": "end" }, `${share * 100} %`),
  ]);
  const marks = [1, 0.5].map((part) =>
    s(
      "text",
      {
        x: x(last - span * part),
        y: HEIGHT - 5,
        "text-anchor": part === 1 ? "start" : "middle",
      },
      `${duration(span * part)} ago`,
    ),
  );
  const lines = names.map((name, i) => {
    const points = samples.map(
      (one) => `${x(one.now_s).toFixed(1)},${y(one.shares[name] ?? 0).toFixed(1)}`,
    );
    const colour = `var(--chart-${(i % 6) + 1})`;
    if (!points.length) return null;
    const area = `${x(samples[0].now_s).toFixed(1)},${y(0)} ${points.join(" ")} ${x(last).toFixed(1)},${y(0)}`;
    return [
      i === 0 && s("polygon", { points: area, style: { fill: colour, opacity: 0.1 } }),
      s("polyline", {
        points: points.join(" "),
        fill: "none",
        "stroke-width": 1.75,
        "stroke-linejoin": "round",
        style: { stroke: colour },
      }),
    ];
  });
  const ends = names.map(
    (name) => `${name} ${Math.round(100 * (samples.at(-1)?.shares[name] ?? 0))} percent`,
  );
  return s(
    "svg",
    {
      class: "chart",
      viewBox: `0 0 ${WIDTH} ${HEIGHT}`,
      role: "img",
      "aria-label": `Allocated shares over the last ${duration(span)}; now ${ends.join(", ")}`,
    },
    grid,
    marks,
    s("text", { x: WIDTH - 6, y: HEIGHT - 5, "text-anchor": "end" }, "now"),
    lines,
  );
}
