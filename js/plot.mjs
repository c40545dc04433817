// Lines between two levels, with a grid and a scale: the stats of a game, the losses of a training.

import { el, svg } from "./dom.mjs";

const [WIDTH, HEIGHT] = [400, 100]; // drawing units; a plot is stretched to its place, its strokes are not

/** The corners [x, y] of a line through `points` in a plot that shows these spans. A single point becomes a dash. */
export function cornersOf(points, [from, to], [low, high]) {
  const corners = points.map(([x, y]) => [
    rounded(((x - from) / Math.max(1, to - from)) * WIDTH),
    rounded(HEIGHT - ((y - low) / (high - low || 1)) * HEIGHT),
  ]);
  return corners.length === 1 ? [corners[0], [corners[0][0] + 2, corners[0][1]]] : corners;
}

/** A plot of lines, {kind, colour, points}, from level `low` to `high`; `words(level)` is for the scale. */
export function drawPlot(lines, [low, high], words = String) {
  const all = lines.flatMap(({ points }) => points.map(([x]) => x));
  const drawn = lines.map(({ kind, colour, points }) => {
    const corners = cornersOf(points, [Math.min(...all), Math.max(...all)], [low, high]);
    const vars = colour ? { "--ag-own": colour } : {};
    return svg("polyline", { class: `ag-line ${kind}`, points: corners.map(String).join(" "), vars });
  });
  const grid = [0, HEIGHT / 2, HEIGHT].map((y) => svg("line", { class: "ag-grid", x1: 0, x2: WIDTH, y1: y, y2: y }));
  const scale = [high, low].map((level) => el("span", { text: words(level) }));
  return el(
    "div",
    { class: "ag-plot" },
    stretched("ag-lines", `0 -4 ${WIDTH} ${HEIGHT + 8}`, ...grid, ...drawn),
    el("div", { class: "ag-scale", "aria-hidden": "true" }, ...scale),
  );
}

/** A drawing that fills its place, whatever the place's shape. */
export function stretched(kind, viewBox, ...parts) {
  return svg("svg", { class: kind, viewBox, preserveAspectRatio: "none", "aria-hidden": "true" }, ...parts);
}

export function rounded(value) {
  return Math.round(value * 100) / 100;
}
