// The form of the Play tab: the instruction or its fields, the takes, the settings, and the progress.

import { createCheck } from "./check.mjs";
import { createProgress, el, field, fold, set, showText, wordButton } from "./dom.mjs";
import { composeInstruction, FIELDS, oneLine, readFields, writtenFor } from "./instruction.mjs";
import { SCOPES } from "./state.mjs";
import { createWordList, notShownWith } from "./word_list.mjs";

const MESSAGE_MS = 6000; // that a temporary message is shown
const LABELS = { character: "character", adverb: "adverb", motion: "motionField", time: "time", place: "place" };
const LISTS = { character: "characters", adverb: "adverbs", motion: "motions", time: "times", place: "places" };

/**
 * The form at the bottom of the tab. `act` has play(instruction, takes, settings), stop(), keep(settings), check(instruction,
 * steps), takeOver(), which is called when the player writes. more: an element above the buttons.
 */
export function createForm(say, act, more) {
  const text = el("textarea", {
    class: "ag-text",
    rows: 2,
    spellcheck: "true",
    "aria-label": say("instruction"),
    "aria-describedby": "ag-form-help",
    placeholder: say("instruction"),
  });
  const fields = createFields(say, () => {
    act.takeOver();
    text.value = composeInstruction(fields.values());
    written();
  });
  const known = createWordList(say, fields);
  const settings = createSettings(say, (values) => {
    act.keep(values);
    check.look(values.steps);
  });
  const check = createCheck(say, text, act.check, { replace: put, open: known.open });
  const playOne = wordButton("play", say("play"), { type: "submit", class: "ag-main" });
  const several = wordButton("clone", "", { class: "ag-second", on: { click: () => submit(session.takes) } });
  const stop = wordButton("stop-circle", say("stop"), {
    class: "ag-second ag-stop-button",
    hidden: true,
    on: { click: act.stop },
  });
  const status = createStatus(say, act);
  const help = el("p", { class: "ag-unseen", id: "ag-form-help" });
  const element = el(
    "form",
    // The browser's validation cannot show errors in a folded section; `values` and the server check all settings.
    { class: "ag-form", novalidate: true, on: { submit: () => submit(1) } },
    status.element,
    el("div", { class: "ag-folds" }, fields.element, known.element, settings.element),
    check.place,
    check.element,
    help,
    more,
    el("div", { class: "ag-buttons" }, playOne, several, stop),
  );
  let session = null;
  let restored = false;
  let story = "";
  let sent = "";

  async function submit(takes) {
    const instruction = oneLine(text.value);
    if (session.busy) return;
    const lacks = !instruction ? "emptyInstruction" : instruction.startsWith("#") ? "commentInstruction" : "";
    if (lacks) {
      status.askForWords(lacks);
      text.focus();
      return;
    }
    sent = instruction;
    await act.play(instruction, takes, settings.values());
  }

  element.addEventListener("submit", (event) => event.preventDefault());
  text.addEventListener("keydown", (event) => {
    if (event.isComposing) return; // Enter chooses a word of an input method
    if (event.key === "Enter") {
      event.preventDefault();
      submit(event.shiftKey ? session.takes : 1);
    } else if (event.key === "ArrowUp" && !text.value) {
      text.value = sent || writtenFor(session.here.turn);
      event.preventDefault();
    }
  });
  text.addEventListener("input", () => {
    act.takeOver();
    write(text.value);
  });

  function write(words) {
    if (text.value !== words) text.value = words;
    fields.read(words);
    written();
  }

  function written() {
    status.written();
    known.show(session.words);
    check.look(settings.values().steps);
  }

  /** Set the text that the player has chosen. */
  function put(words) {
    write(words);
    text.focus();
  }

  /** Suggest a text, unless the player has written something. */
  function offer(words) {
    if (!text.value) write(words);
  }

  /** Clear the form for another story. */
  function empty() {
    text.value = sent = "";
    fields.empty();
    check.look(0);
  }

  function show(now, event) {
    session = now;
    if (!restored && now.settings) settings.restore(now.settings);
    restored = true;
    if (now.story !== story) empty();
    story = now.story;
    fields.suggest(now.words);
    if (event !== "progress") known.show(now.words);
    for (const button of [playOne, several]) button.disabled = now.busy;
    const focused = document.activeElement;
    stop.hidden = !now.busy;
    several.hidden = now.busy;
    several.querySelector("span").textContent = say("severalTakes", { count: now.takes });
    help.textContent = say("instructionHelp", { count: now.takes });
    if ((focused === stop && !now.busy) || ((focused === playOne || focused === several) && now.busy)) text.focus();
    if (event === "turn" && !fields.element.open) text.value = oneLine(text.value) === sent ? "" : text.value;
    if (event === "turn") sent = "";
    if (event === "turn") check.look(settings.values().steps);
    status.show(now, event);
  }

  return { element, show, offer, put, play: () => submit(1), focus: () => text.focus(), settings: settings.values };
}

function createFields(say, changed) {
  const inputs = Object.fromEntries(
    FIELDS.map((name) => [
      name,
      el("input", { name, list: `ag-list-${name}`, autocomplete: "off", on: { input: changed, focus: () => mark() } }),
    ]),
  );
  const put = (name, value) => {
    inputs[name].value = value;
    changed();
  };
  const lists = Object.fromEntries(FIELDS.map((name) => [name, el("datalist", { id: `ag-list-${name}` })]));
  const rows = FIELDS.map((name) => field(say(LABELS[name]), inputs[name], lists[name]));
  const element = fold("list", say("fields"), el("div", { class: "ag-grid-fields" }, ...rows));
  let words = {};

  function suggest(now) {
    if (now === words) return;
    words = now;
    mark();
  }

  /** The lists and examples of the fields; what training never showed with the other fields is no example, and says so. */
  function mark() {
    const example = values();
    for (const name of FIELDS) {
      example[name] ||= (words[LISTS[name]] ?? []).find((word) => !notShownWith(word, example, words).length) ?? "";
      set(inputs[name], { placeholder: example[name] });
      const option = (value) => {
        const pairs = notShownWith(value, values(), words).map((other) => `${value} + ${other}`).join(", ");
        return el("option", { value, label: pairs ? say("untried", { pairs }) : null });
      };
      lists[name].replaceChildren(...(words[LISTS[name]] ?? []).map(option));
    }
  }

  function read(instruction) {
    const found = readFields(instruction, words);
    if (found || !instruction) for (const name of FIELDS) inputs[name].value = found?.[name] ?? "";
  }

  function empty() {
    for (const name of FIELDS) inputs[name].value = "";
  }

  function values() {
    return Object.fromEntries(FIELDS.map((name) => [name, inputs[name].value]));
  }

  return { element, suggest, read, empty, put, values };
}

function createSettings(say, changed) {
  const names = ["predicted", ...SCOPES, "custom"];
  const options = names.map((name) => el("option", { value: name, text: say(name) }));
  const value = el("input", {
    type: "number",
    min: 0,
    max: 999,
    step: "any",
    value: 5,
    "aria-label": say("motionValue"),
    hidden: true,
  });
  const motion = el("select", { name: "motion" }, ...options);
  const seed = el("input", { type: "number", name: "seed", min: 0, max: Number.MAX_SAFE_INTEGER, step: 1, value: 0 });
  const steps = el("input", { type: "text", value: 0, title: say("stepsHelp"), name: "steps" }); // a number, or timesteps
  const grid = el(
    "div",
    { class: "ag-settings" },
    set(field(say("motion"), motion, value), { title: say("motionOfShot") }),
    field(say("seed"), seed),
    field(say("steps"), steps),
  );
  const element = fold("sliders-h", say("settings"), grid, { input: () => settingChanged() });
  const number = (input, otherwise) =>
    input.value !== "" && Number.isFinite(Number(input.value)) ? Number(input.value) : otherwise;
  const count = (input) => Math.max(0, Math.trunc(number(input, 0)));
  const values = () => ({
    motion: motion.value,
    motionValue: number(value, 5),
    seed: count(seed),
    steps: count(steps),
    timesteps: steps.value.includes(",") ? steps.value.trim() : "",
  });

  function settingChanged() {
    value.hidden = motion.value !== "custom";
    changed(values());
  }

  /** Restore the settings from before a reload, if they are still valid. */
  function restore(saved) {
    if (names.includes(saved.motion)) motion.value = saved.motion;
    value.hidden = motion.value !== "custom";
    for (const [input, wanted] of [[value, saved.motionValue], [seed, saved.seed], [steps, saved.steps]])
      if (Number.isFinite(wanted) && wanted >= 0) input.value = wanted;
    if (saved.timesteps) steps.value = saved.timesteps;
  }

  return { element, values, restore };
}

function createStatus(say, act) {
  const doing = createProgress();
  const alert = el("p", { class: "ag-alert", role: "alert", hidden: true });
  const notes = el("ul", { class: "ag-notes", role: "status", hidden: true });
  const message = el("p", { class: "ag-message", role: "status" });
  const element = el("div", { class: "ag-status" }, alert, notes, message, doing.element);

  let asks = false;
  let timer = 0;

  function askForWords(lacks) {
    asks = true;
    showText(alert, say(lacks));
  }

  /** Remove the request for words when the player writes something. */
  function written() {
    if (asks) showText(alert, "");
    asks = false;
  }

  /** Show a message for a while. */
  function showMessage(sentence) {
    clearTimeout(timer);
    message.textContent = sentence;
    timer = setTimeout(() => {
      message.textContent = "";
    }, MESSAGE_MS);
  }

  function show(session, event) {
    const { job, take, done } = session.progress;
    if (job) {
      const about = { number: job.after + 1, value: job.value, max: job.max };
      const does = say(job.exported ? "exporting" : job.max ? "drawing" : job.running ? "playing" : "waiting", about);
      const count = session.sent > 1 ? say("takeOf", { number: take, count: session.sent }) : "";
      doing.show(count ? `${count} \u00b7 ${does}` : does, done);
    } else doing.show(session.uploading ? say("uploadingSound") : "", null);
    if (event === "stopped") showMessage(say("stopped"));
    else if (session.busy) showMessage("");
    asks = false;
    showText(alert, session.error);
    notes.hidden = !session.notes.length;
    notes.replaceChildren(...session.notes.map((line) => el("li", { text: line })));
  }

  return { element, show, askForWords, written };
}
