// What is typed, checked while it is typed: how a plain sentence will be read can be clicked, and so can the text as it
// stands; unknown words are underlined, and their nearest known ones can be clicked; a turn that would be a draft, or
// that training never showed, says so before it is drawn.

import { el } from "./dom.mjs";
import { oneLine } from "./instruction.mjs";

const WAIT_MS = 150; // after a key, before the server is asked

/** [{text, unknown}]: a text cut at the words that the world does not know. */
export function cutAtWords(text, words) {
  if (!words.length) return [{ text, unknown: false }];
  const longestFirst = [...words].sort((one, other) => other.length - one.length);
  const escaped = longestFirst.map((word) => {
    const letters = word.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");
    return /^[a-z]+$/i.test(word) ? `(?<![a-zA-Z])${letters}(?![a-zA-Z])` : letters;
  });
  const parts = text.split(new RegExp(`(${escaped.join("|")})`));
  return parts.map((part, index) => ({ text: part, unknown: index % 2 === 1 })).filter((part) => part.text);
}

/**
 * `field` is the text area; `ask(instruction, setting)` -> {reading, words, notes, draft, nearest, untried}, {error, note} or null; `act` has
 * replace(text), which sets the text, and perhaps open(), which opens the list of what the world knows.
 */
export function createCheck(say, field, ask, act) {
  const marks = el("div", { class: "ag-marks", "aria-hidden": "true" });
  const place = el("div", { class: "ag-checked" }, marks, field);
  const element = el("div", { class: "ag-check-notes", role: "status", hidden: true });
  let timer = 0;
  let asked = "";
  field.addEventListener("scroll", follow);

  function follow() {
    marks.scrollTo(field.scrollLeft, field.scrollTop);
  }

  /** Check the text soon, unless it was with this setting; what the last answer said of words that are gone goes at once. */
  function look(setting) {
    const wanted = `${setting} ${oneLine(field.value)}`;
    if (wanted === asked) return;
    asked = wanted;
    clearTimeout(timer);
    show(null);
    if (!oneLine(field.value)) return;
    timer = setTimeout(async () => {
      const answer = await ask(oneLine(field.value), setting);
      if (wanted === asked) show(answer);
    }, WAIT_MS);
  }

  function show(answer) {
    const { reading = null, words = [], notes = [], draft = null, nearest = {}, untried = [], error = "", note } = answer ?? {};
    const cut = cutAtWords(field.value, words);
    marks.replaceChildren(...cut.map(({ text, unknown }) => el(unknown ? "u" : "span", { text })));
    follow();
    const pairs = untried.map((pair) => pair.join(" + ")).join(", ");
    const unknown = words.length > 0 && say("unknownWords", { words });
    const lines = [
      note ? say(...note) : error,
      reading && say("readAs", { text: reading }),
      unknown,
      ...notes.map((note) => say(...note)),
      draft && say("wouldBeDraft", draft),
      pairs && say("untried", { pairs }),
    ].filter(Boolean);
    const near = [];
    if (reading) near.push(chip(say("useReading"), () => act.replace(reading)));
    if (reading) near.push(chip(say("asTyped"), () => act.replace(`"${oneLine(field.value)}"`)));
    near.push(...Object.entries(nearest).flatMap(([word, known]) => known.map((one) => instead(word, one))));
    if (act.open && (words.length || error)) near.push(chip(say("knownWords"), act.open));
    element.hidden = !lines.length;
    element.replaceChildren(...lines.map((text) => el("p", { text })), el("p", { class: "ag-instead" }, ...near));
  }

  /** A known word that may stand for an unknown one. */
  function instead(word, known) {
    const parts = () => cutAtWords(field.value, [word]).map(({ text, unknown }) => (unknown ? known : text));
    return chip(`${word} \u2192 ${known}`, () => act.replace(parts().join("")));
  }

  function chip(text, click) {
    return el("button", { type: "button", class: "ag-word-chip", text, on: { click } });
  }

  return { element, place, look };
}
