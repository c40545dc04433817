// The course of a game as a small chart: a line a gauge, and the motion of every turn as steps below.

import { el, svg } from "./dom.mjs";
import { GAUGES } from "./state.mjs";

const ROOM = 40; // points that the chart spans at least; a few turns must not look like a drama
const WIDTH = 300; // drawing units; the picture is stretched to its place, its strokes are not
const HEIGHT = 64;
const STEPS = 18; // height of the motion steps, below the lines

/** The part of 0..100 that the chart shows, in tens: where the gauges went, with room around them. */
export function courseRange(course) {
  const values = course.flatMap((point) => GAUGES.map((name) => point[name]));
  const middle = (Math.min(...values) + Math.max(...values)) / 2;
  const half = Math.max(ROOM / 2, (Math.max(...values) - Math.min(...values)) / 2 + 5);
  const low = Math.max(0, Math.min(100 - ROOM, Math.floor((middle - half) / 10) * 10));
  return [low, Math.min(100, Math.max(low + ROOM, Math.ceil((middle + half) / 10) * 10))];
}

/** The corners of one gauge's line. One turn makes a flat line, so that there is something to see. */
export function linePoints(course, name, [low, high], width = WIDTH, height = HEIGHT) {
  const points = course.length === 1 ? [course[0], course[0]] : course;
  const step = width / Math.max(1, points.length - 1);
  return points.map((point, index) => [
    round(index * step),
    round(height - ((point[name] - low) / (high - low)) * height),
  ]);
}

/** The motion steps: [x, y, width, height] a turn, a fifth of the height a level. */
export function motionBars(course, width = WIDTH, height = STEPS) {
  const slot = width / Math.max(1, course.length);
  const gap = Math.min(2, slot / 4);
  return course.map((point, index) => {
    const tall = (Math.max(0, Math.min(5, point.motion)) / 5) * height;
    return [round(index * slot + gap / 2), round(height - tall), round(slot - gap), round(tall)];
  });
}

/** The chart in words: where every gauge began and where it is. */
export function describeCourse(course, say) {
  if (!course.length) return "";
  const [first, last] = [course[0], course[course.length - 1]];
  const gauges = GAUGES.map((name) => `${say(name)} ${first[name]} \u2192 ${last[name]}`);
  return `${say("course", { first: first.turn, last: last.turn })}: ${gauges.join(", ")}`;
}

/** The chart as an element. */
export function drawCourse(course, say) {
  const lines = svg("svg", {
    class: "ag-lines",
    viewBox: `0 -3 ${WIDTH} ${HEIGHT + 6}`,
    preserveAspectRatio: "none",
    "aria-hidden": "true",
  });
  const range = courseRange(course);
  for (const y of [0, HEIGHT / 2, HEIGHT]) {
    lines.append(svg("line", { class: "ag-grid", x1: 0, x2: WIDTH, y1: y, y2: y }));
  }
  for (const name of GAUGES) {
    const points = linePoints(course, name, range).map((corner) => corner.join(","));
    lines.append(svg("polyline", { class: `ag-line ag-${name}`, points: points.join(" ") }));
  }
  const steps = svg("svg", {
    class: "ag-steps",
    viewBox: `0 0 ${WIDTH} ${STEPS}`,
    preserveAspectRatio: "none",
    "aria-hidden": "true",
  });
  for (const [x, y, width, height] of motionBars(course)) steps.append(svg("rect", { x, y, width, height }));
  const words = describeCourse(course, say);
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
