// What a world knows, as a list whose words can be clicked together to an instruction.

import { el, fold } from "./dom.mjs";
import { SCOPES } from "./state.mjs";

const CARRIED = / with (?:a|the) (.+)$/;

/** The motion of a field, and what is carried: {act, look, thing}, in the words of a world. */
export function readCarried(motion, { things = [], looks = [] }) {
  const [carried, words] = CARRIED.exec(motion) ?? ["", ""];
  const thing = things.find((one) => words === one || words.endsWith(` ${one}`)) ?? "";
  const look = looks.find((one) => words === `${one} ${thing}`) ?? "";
  return thing ? { act: motion.slice(0, -carried.length), look, thing } : { act: motion, look: "", thing: "" };
}

/** The motion field for what `readCarried` gives. */
export function motionOf({ act, look, thing }) {
  return thing ? `${act} with ${look ? `a ${look}` : "the"} ${thing}`.trim() : act;
}

/** The names of a world in groups of those that training showed together, such as the characters of a film. */
export function groupsOf(names, untried = []) {
  const apart = new Set(untried.flatMap(([one, other]) => [`${one};${other}`, `${other};${one}`]));
  const left = [...names];
  const groups = [];
  while (left.length) {
    const group = [left.shift()];
    for (const member of group) {
      for (const name of left.filter((one) => !apart.has(`${member};${one}`))) group.push(...left.splice(left.indexOf(name), 1));
    }
    groups.push(group);
  }
  return groups;
}

/** The words of an instruction's fields that training never showed together with `word`. */
export function notShownWith(word, { character = "", motion = "", place = "" }, words) {
  const named = [...character.split(",").map((name) => name.trim()), readCarried(motion, words).act, place];
  const pairs = (words.untried ?? []).filter((pair) => pair.includes(word));
  return pairs.map(([one, other]) => (one === word ? other : one)).filter((other) => named.includes(other));
}

/** The character field after a click on a name; names that the world does not know make way for it. */
export function toggleName(who, name, known) {
  return who.includes(name) ? who.filter((one) => one !== name).join(", ") : [...who.filter((one) => known.includes(one)), name].join(", ");
}

/** `fields` has values() and put(name, value), which sets a field of the instruction. */
export function createWordList(say, fields) {
  const list = el("div", { class: "ag-word-list" });
  const element = fold("book", say("knownWords"), list, { toggle: () => show(words) });
  let words = {};

  /** Show the words of a world, with those pressed that the fields have. */
  function show(known) {
    words = known;
    if (!element.open) return;
    const { character, adverb, motion, time, place } = fields.values();
    const who = character.split(",").map((name) => name.trim()).filter(Boolean);
    const now = readCarried(motion, words);
    const move = (next) => fields.put("motion", motionOf({ ...now, ...next }));
    const speeds = (words.speeds ?? []).map((level, index) => [say(SCOPES[index] ?? "adverb"), level]);
    const other = (word, pressed) => (word === pressed ? "" : word);
    const faces = words.pictured ? el("img", { class: "ag-characters", width: 1024, height: 850, src: new URL("characters.jpg", import.meta.url).href, alt: say("character") }) : "";
    list.replaceChildren(
      faces,
      ...groupsOf(words.characters ?? [], words.untried).map((group, index) =>
        row(index ? "" : say("character"), group, who, (name) => fields.put("character", toggleName(who, name, words.characters))),
      ),
      row(say("motionField"), words.motions, [now.act], (act) => move({ act: other(act, now.act) })),
      row(say("carried"), words.things, [now.thing], (thing) => move({ thing: other(thing, now.thing) })),
      row("", words.looks, [now.look], (look) => move({ look: other(look, now.look), thing: now.thing || words.things[0] })),
      ...speeds.map(([label, level]) => row(label, level, [adverb], (word) => fields.put("adverb", other(word, adverb)))),
      row(say("place"), words.places, [place], (word) => fields.put("place", other(word, place))),
      row(say("time"), words.times, [time], (word) => fields.put("time", other(word, time))),
    );
    if (!list.childElementCount || !words.motions?.length) list.replaceChildren(el("p", { class: "ag-faint", text: say("anyWords") }));
  }

  function row(label, known, pressed, choose) {
    if (!known?.length) return "";
    return el("div", { class: "ag-word-row", role: "group", "aria-label": label || null }, el("span", { class: "ag-faint", text: label }), ...known.map((word) => chip(word, pressed, choose)));
  }

  function chip(word, pressed, choose) {
    const apart = notShownWith(word, fields.values(), words);
    const title = apart.length ? say("untried", { pairs: apart.map((other) => `${word} + ${other}`).join(", ") }) : null;
    const kind = `ag-word-chip${apart.length ? " ag-untried" : ""}`;
    const on = { click: () => choose(word) };
    return el("button", { type: "button", class: kind, "aria-pressed": String(pressed.includes(word)), title, text: word, on });
  }

  function open() {
    element.open = true;
    list.querySelector("button")?.focus();
  }

  return { element, show, open };
}
