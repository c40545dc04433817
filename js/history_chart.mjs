// A small chart of a game: one line per stat, and bars for the motion of each turn below.

import { el, svg } from "./dom.mjs";
import { drawPlot, rounded, stretched } from "./plot.mjs";
import { labelOf } from "./state.mjs";

const MIN_RANGE = 40; // points; a smaller range would exaggerate small changes
const [WIDTH, BAR_HEIGHT] = [300, 18]; // drawing units of the motion bars below the lines

/** The range of values that the chart shows, in tens within 0..100, with a margin around the stats. */
function chartRange(course, names) {
  const values = course.flatMap((point) => names.map((name) => point[name]));
  const middle = (Math.min(...values) + Math.max(...values)) / 2;
  const half = Math.max(MIN_RANGE / 2, (Math.max(...values) - Math.min(...values)) / 2 + 5);
  const low = Math.max(0, Math.min(100 - MIN_RANGE, Math.floor((middle - half) / 10) * 10));
  return [low, Math.min(100, Math.max(low + MIN_RANGE, Math.ceil((middle + half) / 10) * 10))];
}

/** The motion bars, [x, y, width, height] per turn; each motion level is a fifth of the height. */
export function motionBars(course, width = WIDTH, height = BAR_HEIGHT) {
  const slot = width / Math.max(1, course.length);
  const gap = Math.min(2, slot / 4);
  return course.map((point, index) => {
    const tall = (Math.max(0, Math.min(5, point.motion)) / 5) * height;
    return [index * slot + gap / 2, height - tall, slot - gap, tall].map(rounded);
  });
}

/** The chart as text: the first and the last value of each stat. */
export function describeHistory(course, gauges, say) {
  if (!course.length) return "";
  const [first, last] = [course[0], course[course.length - 1]];
  const stats = gauges.map((gauge) => `${labelOf(gauge, say)} ${first[gauge.name]} \u2192 ${last[gauge.name]}`);
  return `${say("course", { first: first.turn, last: last.turn })}: ${stats.join(", ")}`;
}

/** The chart as an element. A single turn gives flat lines. */
export function drawHistory(course, gauges, say) {
  const turns = course.length === 1 ? [course[0], course[0]] : course;
  const lines = gauges.map(({ name, colour }, index) => ({
    kind: `ag-${name} ag-dashed-${index % 4}`,
    colour,
    points: turns.map((point, at) => [at, point[name]]),
  }));
  const names = gauges.map(({ name }) => name);
  const bars = motionBars(course).map(([x, y, width, height]) => svg("rect", { x, y, width, height }));
  const words = describeHistory(course, gauges, say);
  return el(
    "div",
    { class: "ag-course", role: "img", "aria-label": words, title: words },
    drawPlot(lines, chartRange(course, names)),
    stretched("ag-steps", `0 0 ${WIDTH} ${BAR_HEIGHT}`, ...bars),
  );
}
