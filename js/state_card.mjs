// The card of a turn: its text, the motion, the stats with their changes, the turns that it remembers, and a chart
// of the game so far.

import { drawHistory } from "./history_chart.mjs";
import { el, set, showText } from "./dom.mjs";
import { instructionLines } from "./instruction.mjs";
import { describeState, labelOf, readState, rememberedWords, SCOPES, signed } from "./state.mjs";

/**
 * A card that shows `animegamer_state` items. `withText` false: without the turn's number and words. `withUnknown`:
 * lists the words that the world does not know.
 */
export function createCard(say, { withText = true, withUnknown = false } = {}) {
  const number = el("span", { class: "ag-number", "aria-hidden": "true" });
  const words = el("div", { class: "ag-words" });
  const empty = el("p", { class: "ag-empty", text: say("nothingYet") });
  const motion = createMotion(say);
  const rows = el("div", { class: "ag-rows" }, motion.element);
  const remembered = el("p", { class: "ag-remembered", "aria-hidden": "true", hidden: true });
  const course = el("div", { class: "ag-course-place" });
  const unknown = el("p", { class: "ag-note", hidden: true });
  const body = el(
    "div",
    { class: "ag-body", hidden: true },
    withText ? el("div", { class: "ag-head" }, number, words) : null,
    rows,
    remembered,
    course,
    unknown,
  );
  let gauges = {}; // by name; kept while the world is the same, so that their bars move
  const element = el("section", { class: "ag ag-card", "aria-label": say("state") }, empty, body);

  function show(item) {
    const state = readState(item);
    if (!state) return;
    empty.hidden = true;
    body.hidden = false;
    set(element, { "aria-label": describeState(state, say) });
    number.textContent = state.turn;
    words.replaceChildren(
      ...instructionLines(state.instruction).map((line) => el("span", { text: line, title: line })),
    );
    motion.show(state.motion);
    gauges = Object.fromEntries(state.gauges.map((one) => [one.name, gauges[one.name] ?? createGauge(one, say)]));
    const shown = [motion.element, ...Object.values(gauges).map((gauge) => gauge.element)];
    if (shown.some((row, index) => rows.children[index] !== row) || rows.children.length > shown.length) {
      rows.replaceChildren(...shown);
    }
    for (const { name } of state.gauges) gauges[name].show(state.stats[name], state.changes[name]);
    showText(remembered, rememberedWords(state, say));
    const list = withUnknown ? state.unknownWords : [];
    showText(unknown, list.length ? say("unknownWords", { words: list }) : "");
    for (const line of [remembered, unknown]) line.title = line.textContent;
    course.replaceChildren(drawHistory(state.course, state.gauges, say));
  }

  return { element, show, extraLines: () => [remembered, unknown].filter((line) => !line.hidden).length };
}

function createGauge({ name, label: own, colour }, say) {
  const words = labelOf({ name, label: own }, say);
  const fill = el("span", { class: "ag-fill" });
  const track = el(
    "span",
    { class: "ag-track", role: "meter", "aria-label": words, "aria-valuemin": 0, "aria-valuemax": 100 },
    fill,
  );
  const value = el("span", { class: "ag-value", "aria-hidden": "true" });
  const change = el("span", { class: "ag-change", "aria-hidden": "true" });
  const label = el("span", { class: "ag-label", text: words, title: words, "aria-hidden": "true" });
  const element = el("div", { class: `ag-row ag-${name}` }, label, track, value, change);
  if (colour) element.style.setProperty("--ag-own", colour);
  return {
    element,
    show(level, points) {
      fill.style.width = `${level}%`;
      value.textContent = level;
      change.textContent = signed(points);
      change.className = `ag-change${points > 0 ? " ag-gain" : points < 0 ? " ag-loss" : ""}`;
      const text = `${say("ofHundred", { value: level })}${points ? ` (${signed(points)})` : ""}`;
      set(track, { "aria-valuenow": level, "aria-valuetext": text });
    },
  };
}

function createMotion(say) {
  const steps = SCOPES.map(() => el("span"));
  const track = el(
    "span",
    { class: "ag-scope", role: "meter", "aria-label": say("motion"), "aria-valuemin": 0, "aria-valuemax": 5 },
    ...steps,
  );
  const word = el("span", { class: "ag-word", "aria-hidden": "true" });
  const label = el("span", { class: "ag-label", text: say("motion"), "aria-hidden": "true" });
  const element = el("div", { class: "ag-row ag-motion" }, label, track, word);
  return {
    element,
    show({ level, scope, value }) {
      steps.forEach((step, index) => set(step, { class: index < level ? "ag-on" : null }));
      word.textContent = say(scope);
      set(element, { title: value === null ? null : say("value", { value: Math.round(value * 10) / 10 }) });
      set(track, { "aria-valuenow": level, "aria-valuetext": say(scope) });
    },
  };
}
