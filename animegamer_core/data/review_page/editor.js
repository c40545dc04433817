"use strict";
// One clip in large, with its caption to correct. What is right is kept as it is typed in; what is not says why.

const FIELD_NAMES = {
  character: "Characters, the main one first", motion: "Motion", adverb: "Adverb, if there is one",
  background: "Time and place",
};
let edited = null; // the clip in the editor

/** Words that are used for the clips so far, the most frequent first, to choose from. */
function wordsOf(name) {
  const counts = new Map();
  for (const clip of CLIPS) for (const word of [valueOf(clip, name) ?? []].flat()) counts.set(word, (counts.get(word) ?? 0) + 1);
  return [...counts].sort((one, other) => other[1] - one[1]).map(([word]) => word);
}

function openEditor(clip) {
  edited = clip;
  renderEditor();
  if (!$("editor").open) $("editor").showModal();
  $("fields").querySelector("input").focus();
}

const SHARED = ["character", "motion", "background"]; // what clips have in common; the rest follows from it and the motion

/** Give a clip what another one has in common with it. */
const copy = (from, to) => setFields(to, Object.fromEntries(SHARED.map((name) => [name, valueOf(from, name)])));

/** The clips that "Use for others" changes: the marked ones, or without any the shown ones that have no caption. */
const others = () => (marked.size ? CLIPS.filter((clip) => marked.has(clip.clip)) : shown.filter((clip) => !isWhole(clip)))
  .filter((clip) => clip !== edited && !isOut(clip));

function copyBefore() {
  const before = CLIPS[edited.index - 1];
  if (!before || !isThere(before, "motion")) return;
  keepTyped();
  copy(before, edited);
  renderEditor();
}

function copyToOthers() {
  if (!allKept()) return;
  for (const clip of others()) copy(edited, clip);
  marked.clear();
  sayNext();
  render();
  renderTold();
}

/** Show the clip before or after; what was typed is kept first. */
function step(by) {
  keepTyped();
  const next = shown[shown.indexOf(edited) + by];
  if (next) openEditor(next);
}

function renderEditor() {
  const clip = edited, at = shown.indexOf(clip);
  $("editor-name").textContent = clip.film;
  $("editor-place").textContent = `${clock(clip.start)} \u2013 ${clock(clip.end)}  \u00b7  ${clip.clip}`;
  $("before").disabled = at <= 0;
  $("after").disabled = at < 0 || at + 1 >= shown.length;
  const video = film(clip, { controls: true, src: address(clip.clip), "aria-label": "The clip" });
  video.muted = true; // or browsers do not start it
  video.autoplay = !matchMedia("(prefers-reduced-motion: reduce)").matches;
  $("stage").replaceChildren(video);
  const facts = [
    ["Motion", clip.motion_level ? `${SCOPES[clip.motion_level - 1]} (level ${clip.motion_level} of 5)` : "not measured"],
    ["Measured", clip.motion_value === null ? "no" : `${clip.motion_value} px a frame; a level is never corrected by hand`],
    clip.game && ["Game", `${clip.game.name}, clip ${clip.game.at} of ${clip.game.of}${clip.game.held_out ? ", held out" : ""}`],
  ];
  $("measured").replaceChildren(...facts.filter(Boolean).flatMap(([name, text]) => [el("dt", {}, name), el("dd", {}, text)]));
  $("why").hidden = !clip.aside;
  if (clip.aside) {
    $("why").replaceChildren(el("strong", {}, `Set aside: ${clip.aside.reason}. `),
      "It is added to the dataset once every field is filled in. ", clip.aside.reply ? el("code", {}, clip.aside.reply) : "");
  }
  const wide = ["character", "motion", "adverb", "background"].map((name) => (name === "character" ? namesField() : textField(name)));
  $("fields").replaceChildren(...wide, el("div", { class: "three" }, ...DATA.stats.map(choiceField)));
  renderTold();
}

/** What follows from the fields: the instruction, which of them are changed, whether the clip stays. */
function renderTold() {
  const text = (name) => [valueOf(edited, name) ?? []].flat().join(", ");
  const motion = `${text("adverb")} ${text("motion")}`.trim();
  $("instruction").textContent = `Character: ${text("character") || "\u2026"}; Motion: ${motion || "\u2026"}; Background: ${text("background") || "\u2026"}.`;
  for (const field of $("fields").querySelectorAll(".field")) {
    const { name } = field.dataset;
    const changed = name in FIELD_NAMES ? name in changeOf(edited) : statOf(edited, name) !== (edited.stats?.[name] ?? null);
    field.classList.toggle("edited", changed);
  }
  const out = isOut(edited);
  $("drop").setAttribute("aria-pressed", String(out));
  $("drop").querySelector("span").textContent = out ? "Will be dropped; keep it" : "Drop this clip";
  $("revert").disabled = !changes.has(edited.clip);
  $("same").disabled = !CLIPS[edited.index - 1] || !isThere(CLIPS[edited.index - 1], "motion");
  $("spread").disabled = !SHARED.every((name) => isThere(edited, name)) || !others().length;
  $("spread").textContent = `Use for ${count(others().length, marked.size ? "marked clip" : "other without words", marked.size ? "marked clips" : "others without words")}`;
}

/** Keep a clip's value if it is right; else say under the field what is wrong. A field names its clip, since its last
 * word may come when the editor shows the next one already. */
function keepField(clip, name, value, input, error) {
  const problem = problemOf(name, value);
  error.textContent = problem;
  error.hidden = !problem;
  input.setAttribute("aria-invalid", String(Boolean(problem)));
  if (!problem) setField(clip, name, value);
  if (clip === edited) {
    renderProposed();
    renderTold();
  }
  return !problem;
}

/** Show what was proposed since the fields were drawn. */
function renderProposed() {
  const adverb = $("field-adverb");
  if (adverb && adverb !== document.activeElement) adverb.value = valueOf(edited, "adverb") ?? "";
  for (const { name } of DATA.stats)
    for (const radio of $("fields").querySelectorAll(`[type=radio][name="${name}"]`)) radio.checked = statOf(edited, name) === Number(radio.value);
}

function fieldParts(name) {
  const error = el("p", { class: "error", id: `error-${name}`, role: "alert", hidden: true });
  const list = el("datalist", { id: `words-${name}` }, ...wordsOf(name).slice(0, 300).map((word) => el("option", { value: word })));
  const input = el("input", { type: "text", id: `field-${name}`, list: `words-${name}`, autocomplete: "off",
    "aria-describedby": `error-${name}` });
  return { error, list, input };
}

function textField(name) {
  const { error, list, input } = fieldParts(name);
  const clip = edited;
  input.value = valueOf(clip, name) ?? "";
  input.placeholder = { motion: "wave hello", background: "day meadow" }[name] ?? "";
  input.addEventListener("change", () => {
    const text = trimmed(input.value);
    const unset = text === "" && clip[name] === null && name !== "adverb"; // a caption is complete without one
    keepField(clip, name, unset ? null : text, input, error);
  });
  const replaced = () => input.addEventListener("click", () => input.select(), { once: true });
  if (name === "adverb") input.addEventListener("focus", replaced); // it may have been proposed just now
  return el("div", { class: "field", "data-name": name }, el("label", { for: `field-${name}` }, FIELD_NAMES[name]), input, list, error);
}

/** Names as a row of chips with a field that adds one; names that are frequent are offered. */
function namesField() {
  const { error, list, input } = fieldParts("character");
  const chips = el("div", { class: "names" });
  const clip = edited;
  const names = () => valueOf(clip, "character") ?? [];
  const put = (next) => {
    const kept = keepField(clip, "character", next.length || clip.character !== null ? next : null, input, error);
    draw();
    return kept;
  };
  const draw = () => {
    const own = names().map((name, at) =>
      el("button", { type: "button", class: "name-chip", "aria-label": `Take ${name} out`, onclick: () => {
        put(names().filter((_, other) => other !== at));
        input.focus();
      } }, name, at === 0 && names().length > 1 ? el("em", {}, "main") : null, icon("close")));
    const offers = wordsOf("character").filter((name) => !names().includes(name)).slice(0, 6).map((name) =>
      el("button", { type: "button", class: "offer", "aria-label": `Add ${name}`, onclick: () => {
        put([...names(), name]);
        input.focus();
      } }, `+ ${name}`));
    chips.replaceChildren(...own, ...offers);
  };
  const add = () => {
    const typed = trimmed(input.value).split(/\s*[,;]\s*|\s+and\s+/).filter(Boolean);
    if (typed.length && put([...new Set([...names(), ...typed])])) input.value = "";
  };
  input.placeholder = "Add a name";
  input.addEventListener("change", add);
  input.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && trimmed(input.value)) {
      event.preventDefault();
      add();
    } else if (event.key === "Backspace" && !input.value && names().length) put(names().slice(0, -1));
  });
  draw();
  return el("div", { class: "field", "data-name": "character" },
    el("label", { for: "field-character" }, FIELD_NAMES.character), chips, input, list, error);
}

function choiceField(stat) {
  const clip = edited, { name } = stat;
  const options = stat.choices.map((value) => {
    const radio = el("input", { type: "radio", name, value, onchange: () => { setStat(clip, name, value); renderTold(); } });
    radio.checked = statOf(clip, name) === value;
    return el("label", {}, radio, el("span", {}, signed(value)));
  });
  return el("fieldset", { class: "field", "data-name": name }, el("legend", {}, labelOf(stat)), el("div", { class: "choice" }, ...options));
}

/** Keep what is typed in the field that the keys are at, by leaving it. */
function keepTyped() {
  if ($("fields").contains(document.activeElement)) document.activeElement.blur();
}

/** Whether nothing is typed in that cannot be kept; else go there. */
function allKept() {
  keepTyped();
  const wrong = $("fields").querySelector("[aria-invalid=true]");
  wrong?.focus();
  return !wrong;
}

$("before").addEventListener("click", () => step(-1));
$("after").addEventListener("click", () => step(1));
$("close").addEventListener("click", () => { keepTyped(); $("editor").close(); });
$("drop").addEventListener("click", () => { toggleDrop(edited); renderTold(); });
$("same").addEventListener("click", copyBefore);
$("spread").addEventListener("click", copyToOthers);
$("revert").addEventListener("click", () => { commit(edited.clip, {}); renderEditor(); });
$("editor").querySelector("form").addEventListener("submit", (event) => { if (!allKept()) event.preventDefault(); });
$("editor").addEventListener("cancel", keepTyped);
$("editor").addEventListener("keydown", (event) => {
  const by = { PageUp: -1, PageDown: 1 }[event.key];
  const copies = (event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "b";
  if (!by && !copies) return;
  event.preventDefault();
  if (copies) copyBefore();
  else step(by);
});
$("editor").addEventListener("close", () => {
  const at = shown.indexOf(edited);
  $("stage").replaceChildren();
  if (at < 0) return;
  const page = Math.floor(at / PAGE);
  active = at % PAGE;
  if (page === choice.page) focusCard();
  else turnTo(page, active);
});
