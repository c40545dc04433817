// A small chart of a game: one line per stat, and bars for the motion of each turn below.

import { el, svg } from "./dom.mjs";
import { labelOf } from "./state.mjs";

const MIN_RANGE = 40; // points; a smaller range would exaggerate small changes
const WIDTH = 300; // drawing units; the chart is stretched to its container, its strokes are not
const HEIGHT = 64;
const BAR_HEIGHT = 18; // of the motion bars below the lines

/** The range of values that the chart shows, in tens within 0..100, with a margin around the stats. */
export function chartRange(course, names) {
  const values = course.flatMap((point) => names.map((name) => point[name]));
  const middle = (Math.min(...values) + Math.max(...values)) / 2;
  const half = Math.max(MIN_RANGE / 2, (Math.max(...values) - Math.min(...values)) / 2 + 5);
  const low = Math.max(0, Math.min(100 - MIN_RANGE, Math.floor((middle - half) / 10) * 10));
  return [low, Math.min(100, Math.max(low + MIN_RANGE, Math.ceil((middle + half) / 10) * 10))];
}

/** The points of one stat's line. A single turn gives a flat line. */
export function linePoints(course, name, [low, high], width = WIDTH, height = HEIGHT) {
  const points = course.length === 1 ? [course[0], course[0]] : course;
  const step = width / Math.max(1, points.length - 1);
  return points.map((point, index) => [
    round(index * step),
    round(height - ((point[name] - low) / (high - low)) * height),
  ]);
}

/** The motion bars, [x, y, width, height] per turn; each motion level is a fifth of the height. */
export function motionBars(course, width = WIDTH, height = BAR_HEIGHT) {
  const slot = width / Math.max(1, course.length);
  const gap = Math.min(2, slot / 4);
  return course.map((point, index) => {
    const tall = (Math.max(0, Math.min(5, point.motion)) / 5) * height;
    return [round(index * slot + gap / 2), round(height - tall), round(slot - gap), round(tall)];
  });
}

/** The chart as text: the first and the last value of each stat. */
export function describeHistory(course, gauges, say) {
  if (!course.length) return "";
  const [first, last] = [course[0], course[course.length - 1]];
  const stats = gauges.map((gauge) => `${labelOf(gauge, say)} ${first[gauge.name]} \u2192 ${last[gauge.name]}`);
  return `${say("course", { first: first.turn, last: last.turn })}: ${stats.join(", ")}`;
}

/** The chart as an element. */
export function drawHistory(course, gauges, say) {
  const lines = svg("svg", {
    class: "ag-lines",
    viewBox: `0 -3 ${WIDTH} ${HEIGHT + 6}`,
    preserveAspectRatio: "none",
    "aria-hidden": "true",
  });
  const range = chartRange(
    course,
    gauges.map(({ name }) => name),
  );
  for (const y of [0, HEIGHT / 2, HEIGHT]) {
    lines.append(svg("line", { class: "ag-grid", x1: 0, x2: WIDTH, y1: y, y2: y }));
  }
  for (const [index, { name, colour }] of gauges.entries()) {
    const points = linePoints(course, name, range).map((corner) => corner.join(","));
    const line = svg("polyline", { class: `ag-line ag-${name} ag-dashed-${index % 4}`, points: points.join(" ") });
    if (colour) line.style.setProperty("--ag-own", colour);
    lines.append(line);
  }
  const steps = svg("svg", {
    class: "ag-steps",
    viewBox: `0 0 ${WIDTH} ${BAR_HEIGHT}`,
    preserveAspectRatio: "none",
    "aria-hidden": "true",
  });
  for (const [x, y, width, height] of motionBars(course)) steps.append(svg("rect", { x, y, width, height }));
  const words = describeHistory(course, gauges, say);
  const [low, high] = range.map((level) => el("span", { text: level }));
  return el(
    "div",
    { class: "ag-course", role: "img", "aria-label": words, title: words },
    el("div", { class: "ag-plot" }, lines, el("div", { class: "ag-scale", "aria-hidden": "true" }, high, low)),
    steps,
  );
}

function round(value) {
  return Math.round(value * 100) / 100;
}
