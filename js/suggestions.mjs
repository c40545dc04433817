// What may happen next: proposed instructions, and turns that the world plays by itself. A part of the Play tab's form.

import { turnCount } from "./autoplay.mjs";
import { el, wordButton } from "./dom.mjs";
import { instructionLines } from "./instruction.mjs";

/**
 * `act` has suggest(seed) -> proposals, choose(instruction), autoplay(count) and keep(count). `show` follows the
 * session; proposals of another turn are removed.
 */
export function createSuggestions(say, act) {
  const list = el("div", { class: "ag-proposals", role: "group", "aria-label": say("proposals"), hidden: true });
  const ask = wordButton("lightbulb", say("suggest"), {
    class: "ag-quiet ag-suggest",
    title: say("suggestHelp"),
    on: { click: suggest },
  });
  const count = el("input", {
    type: "number",
    name: "autoplay",
    min: 1,
    max: 1000,
    step: 1,
    value: 5,
    "aria-label": say("autoplayTurns"),
    title: say("autoplayTurns"),
    on: { input: () => act.keep(turnCount(count.value)) },
  });
  const auto = wordButton("forward", say("autoplay"), {
    class: "ag-quiet ag-autoplay",
    title: say("autoplayHelp"),
    on: { click: () => act.autoplay(turnCount(count.value)) },
  });
  const left = el("span", { class: "ag-faint", role: "status" });
  const element = el("div", { class: "ag-suggestions" }, list, el("div", { class: "ag-ask" }, ask, auto, count, left));
  let place = "";
  let asked = 0;

  async function suggest() {
    const wanted = place;
    ask.disabled = true;
    const proposals = await act.suggest(asked);
    ask.disabled = false;
    if (wanted !== place) return;
    asked += 1; // asking again gives others
    list.replaceChildren(...proposals.map(proposal));
    list.hidden = !proposals.length;
    list.querySelector("button")?.focus();
  }

  function proposal({ instruction, reason, label }) {
    const called = reason && label === reason ? say(reason) : label;
    return el(
      "button",
      { type: "button", class: "ag-story", title: instruction, on: { click: () => act.choose(instruction) } },
      el("span", { class: "ag-story-name", text: instructionLines(instruction).join(", ") }),
      el("span", { class: "ag-faint", text: reason ? say("low", { stat: called }) : "" }),
    );
  }

  function show(session, turnsLeft) {
    const now = `${session.story} ${session.here.key}`;
    if (now !== place || session.busy) {
      list.replaceChildren();
      list.hidden = true;
    }
    if (now !== place) asked = 0;
    place = now;
    ask.disabled = auto.disabled = session.busy;
    left.textContent = turnsLeft ? say(turnsLeft === 1 ? "autoplayLast" : "autoplayLeft", { count: turnsLeft }) : "";
  }

  /** Restore the number of turns from before a reload. */
  function restore(saved) {
    if (Number.isFinite(saved)) count.value = turnCount(saved);
  }

  return { element, show, restore };
}
