// What may happen next: proposed instructions, and turns that the world plays by itself. A part of the Play tab's form.

import { turnCount } from "./autoplay.mjs";
import { el, iconButton, wordButton } from "./dom.mjs";
import { instructionLines } from "./instruction.mjs";

/**
 * `act` has suggest(seed, quiet) -> proposals, play(instruction), edit(instruction), autoplay(count) and keep(count).
 * At the beginning and after each turn it asks for proposals by itself. `show` follows the session; proposals of another turn are removed.
 */
export function createSuggestions(say, act) {
  const intoView = ({ target }) => target.scrollIntoView({ block: "nearest", inline: "nearest" }); // one that is cut off
  const list = el("div", {
    class: "ag-proposals",
    role: "group",
    "aria-label": say("proposals"),
    hidden: true,
    on: { focusin: intoView },
  });
  const ask = wordButton("lightbulb", say("suggest"), {
    class: "ag-quiet ag-suggest",
    title: say("suggestHelp"),
    on: { click: () => suggest(false) },
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
  const buttons = el("div", { class: "ag-ask" }, ask, auto, count, left);
  const element = el("div", { class: "ag-suggestions" }, list, buttons);
  let place = "";
  let asked = 0;
  let askedFor = ""; // the place for which proposals were asked without a click

  async function suggest(quiet) {
    const wanted = place;
    ask.disabled = true;
    const proposals = await act.suggest(asked, quiet);
    ask.disabled = false;
    if (wanted !== place) return;
    asked += 1; // asking again gives others
    list.replaceChildren(...proposals.map(proposal));
    list.hidden = !proposals.length;
    if (!quiet) list.querySelector("button")?.focus();
  }

  function proposal({ instruction, reason, label }) {
    const called = reason && label === reason ? say(reason) : label;
    const play = el(
      "button",
      { type: "button", class: "ag-story", title: instruction, on: { click: () => act.play(instruction) } },
      el("span", { class: "ag-story-name", text: instructionLines(instruction).join(", ") }),
      el("span", { class: "ag-faint", text: reason ? say("low", { stat: called }) : "" }),
    );
    const edit = iconButton("pencil", say("editProposal"), () => act.edit(instruction), { class: "ag-icon ag-edit" });
    return el("div", { class: "ag-proposal" }, play, edit);
  }

  function show(session, turnsLeft) {
    const now = `${session.story} ${session.here.key}`;
    if (now !== place || session.busy) {
      list.replaceChildren();
      list.hidden = true;
      asked = 0;
      askedFor = "";
    }
    place = now;
    ask.disabled = auto.disabled = session.busy;
    left.textContent = turnsLeft ? say(turnsLeft === 1 ? "autoplayLast" : "autoplayLeft", { count: turnsLeft }) : "";
    if (session.story && !session.busy && !session.starting && !turnsLeft && askedFor !== place) {
      askedFor = place;
      suggest(true);
    }
  }

  /** Restore the number of turns from before a reload. */
  function restore(saved) {
    if (Number.isFinite(saved)) count.value = turnCount(saved);
  }

  return { element, show, restore };
}
