// The clip of the current turn, its takes, and the strip with all clips of the branch.

import { clipButton } from "./clips.mjs";
import { el, iconButton, set, showText, wordButton } from "./dom.mjs";
import { instructionLines, writtenFor } from "./instruction.mjs";
import { pathTo, takesOf, turnsAfter } from "./tree.mjs";

const STRIP = 12; // clips in the strip, around the current turn

/** The large clip with its turn's text; at the beginning, of turn 0. `move(wanted)` is called when the player lets all clips move, or pauses them. */
export function createStage(say, clips, more, move) {
  const place = el("div", { class: "ag-screen" });
  const number = el("span", { class: "ag-number" });
  const words = el("div", { class: "ag-words" });
  const typed = el("p", { class: "ag-typed" });
  const preview = el("img", { class: "ag-preview", alt: "", hidden: true });
  const pause = iconButton(
    "pause",
    say("pause"),
    () => {
      const wanted = clips.isPaused();
      moveClips(wanted);
      move(wanted);
    },
    { class: "ag-icon ag-pause" },
  );
  const draft = el("p", { class: "ag-draft", hidden: true });
  const element = el(
    "section",
    { class: "ag-stage" },
    el("div", { class: "ag-frame" }, place, draft, preview, pause),
    el("div", { class: "ag-head" }, number, words, more),
    typed,
  );
  let address = "";

  function moveClips(wanted) {
    clips.pause(!wanted);
    showPause();
  }

  function showPause() {
    const label = say(clips.isPaused() ? "resume" : "pause");
    set(pause, { "aria-label": label, title: label });
    set(pause.firstChild, { class: `pi pi-${clips.isPaused() ? "play" : "pause"}` });
  }

  function show(now) {
    const { here, busy } = now;
    const turn = here.turn ?? now.turnZero;
    const coming = now.jobs.find((job) => !job.exported && !job.stay); // the turn that is drawn now
    if (!busy) showPreview(null);
    pause.hidden = !turn?.clip || turn.still;
    showText(draft, turn?.clip && turn.draft ? say("draft", turn.draft) : "");
    draft.title = draft.textContent;
    number.textContent = coming ? coming.after + 1 : turn ? here.number : "";
    number.hidden = !turn && !coming;
    set(element, { "data-coming": Boolean(coming) });
    const drawn = coming && (coming.instruction ? instructionLines(coming.instruction) : [say("autoplay"), say("autoplayChooses")]);
    const lines = drawn ?? (turn ? instructionLines(turn.instruction) : [say("beginning"), say("beginningText")]);
    words.replaceChildren(...lines.map((line) => el("span", { text: line, title: line })));
    const { typed: text = "", unknown = [], notes = [] } = (coming ? null : turn) ?? {};
    const strange = unknown.length && say("unknownWords", { words: unknown });
    const said = [text && say("typed", { text }), strange, ...notes.map((note) => say(...note))];
    typed.textContent = said.filter(Boolean).join(" \u00b7 ");
    const label = turn && say("clipOf", { number: here.number, instruction: turn.instruction });
    const picture = turn?.clip // while a turn is drawn nothing else moves: the drawing needs the CPU
      ? clips[turn.still ? "picture" : "video"]("stage", turn.clip, { words: label, still: Boolean(coming) })
      : el("div", { class: "ag-blank pi pi-sparkles", "aria-hidden": "true" });
    if (place.firstChild !== picture) place.replaceChildren(picture);
    showPause();
  }

  /** Show a preview of the clip that is being drawn (a Blob); null removes it. */
  function showPreview(blob) {
    URL.revokeObjectURL(address);
    address = blob ? URL.createObjectURL(blob) : "";
    preview.hidden = !blob;
    set(preview, { src: address || null });
  }

  return { element, show, showPreview, moveClips };
}

/**
 * The takes of the turn, if there are several, and the button for more takes beside the turn's text. `act` has goTo(take)
 * and drawAgain().
 */
export function createTakes(say, clips, act) {
  const row = el("div", { class: "ag-clips ag-three", role: "group", "aria-label": say("takes") });
  const words = say("moreTakes");
  const more = wordButton("clone", words, {
    class: "ag-quiet",
    "aria-label": words,
    title: words,
    on: { click: act.drawAgain },
  });
  const element = el("section", { class: "ag-takes" }, el("h3", { text: say("takes") }), row);

  function show({ here, busy, jobs }) {
    const takes = takesOf(here);
    const isOfTurn = (job) => job.after === here.number - 1 && !job.exported && writtenFor(here.turn) === job.instruction;
    const coming = jobs.filter(isOfTurn).length;
    more.hidden = !here.turn;
    more.disabled = busy;
    element.hidden = takes.length + coming < 2;
    if (element.hidden) return void row.replaceChildren(); // no clip plays that nobody sees
    const hadFocus = row.contains(document.activeElement);
    row.replaceChildren(
      ...takes.map((take, index) =>
        clipButton(clips, "take", take, {
          words: say("take", { number: index + 1 }),
          current: take === here,
          badge: index + 1,
          still: busy,
          act: () => busy || act.goTo(take),
          attributes: { "aria-pressed": String(take === here) },
        }),
      ),
      ...Array.from({ length: coming }, () => el("span", { class: "ag-clip ag-coming" })),
    );
    if (hadFocus) row.querySelector('[aria-pressed="true"]')?.focus();
  }

  return { element, more, show };
}

/** The clips of the branch; those after the current turn are dimmed. */
export function createStrip(say, clips, goTo) {
  const row = el("div", { class: "ag-clips ag-line-strip", role: "group", "aria-label": say("strip") });
  const element = el("section", { class: "ag-strip" }, row);

  function show({ here, branch }) {
    const past = pathTo(here);
    const all = [...past, ...turnsAfter(here, branch)];
    const from = Math.max(0, Math.min(past.length - STRIP / 2, all.length - STRIP));
    const hadFocus = row.contains(document.activeElement);
    element.hidden = all.length < 2;
    row.replaceChildren(
      ...all.slice(from, from + STRIP).map((at) =>
        clipButton(clips, "strip", at, {
          words: `${say("turn", { number: at.number })}: ${at.turn.instruction}`,
          current: at === here,
          dim: at.number > here.number,
          still: true,
          badge: at.number,
          act: () => goTo(at),
          attributes: { "aria-current": at === here ? "step" : null },
        }),
      ),
    );
    const current = row.querySelector("[aria-current]");
    if (hadFocus) current?.focus({ preventScroll: true });
    if (current) row.scrollTo({ left: current.offsetLeft - (row.clientWidth - current.clientWidth) / 2 });
  }

  return { element, show };
}
