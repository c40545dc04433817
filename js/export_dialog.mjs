// The dialog that exports a story: as clips with a contact sheet, or as a film to share.

import { el, iconButton, wordButton } from "./dom.mjs";

const SHEET = "sheet"; // the story as one clip, and a contact sheet
const KINDS = [SHEET, "mp4", "gif", "webp"];
const SUBTITLES = ["none", "burned", "soft"];
const SUBTITLE_WORDS = { none: "subtitles_none", burned: "subtitles_burned", soft: "subtitles_soft" };
const RATES = [0, 24, 30, 48, 60]; // frames per second; 0: as drawn
const SCALES = [0, 1, 2, 3, 4]; // 0: as much as text needs
const LARGEST_GIF_RATE = 50;

/**
 * A dialog: open(hasOpening) shows it; `write(film, showOpening)` gets the chosen film, as inputs of ExportGameStory with
 * the file of its sound as `music`, or null for a sheet, and whether it begins with turn 0.
 */
export function createExport(say, write) {
  const kind = choice(KINDS, (value) => (value === SHEET ? say("exportSheet") : value));
  const subtitles = choice(SUBTITLES, (value) => say(SUBTITLE_WORDS[value]));
  const rate = choice(RATES, (value) => (value ? say("perSecond", { value }) : say("asDrawn")));
  const scale = choice(SCALES, (value) => (value ? `${value} \u00d7` : say("asText")));
  const title = el("input", { type: "text", maxlength: 200, placeholder: say("noTitle") });
  const stats = el("input", { type: "checkbox" });
  const music = el("input", { type: "file", name: "music", accept: "audio/*,video/*" });
  const repeat = el("input", { type: "checkbox", name: "repeat-music", checked: true });
  const noMusic = iconButton("times", say("noMusic"), () => {
    music.value = "";
    fit();
    music.focus();
  });
  const repeatLine = el("label", { class: "ag-check" }, repeat, el("span", { text: say("repeatMusic") }));
  const sound = el(
    "div",
    { class: "ag-film-sound" },
    field(say("music"), el("span", { class: "ag-opening-file" }, music, noMusic)),
    repeatLine,
  );
  const opening = el("input", { type: "checkbox", name: "show-opening" });
  const first = el("label", { class: "ag-check", hidden: true }, opening, el("span", { text: say("showOpening") }));
  const look = el(
    "fieldset",
    { class: "ag-look" },
    field(say("subtitles"), subtitles),
    field(say("filmTitle"), title),
    field(say("filmScale"), scale),
    field(say("filmRate"), rate),
    el("label", { class: "ag-check" }, stats, el("span", { text: say("filmStats") })),
  );
  const go = wordButton("download", say("exportNow"), { type: "submit", class: "ag-main" });
  const close = wordButton("times", say("closeDialog"), { class: "ag-second", on: { click: () => element.close() } });
  const form = el(
    "form",
    { class: "ag-export-form", on: { submit, change: fit } },
    field(say("exportAs"), kind),
    look,
    sound,
    first,
    el("div", { class: "ag-buttons" }, go, close),
  );
  const element = el(
    "dialog",
    { class: "ag ag-play ag-dialog ag-export", "aria-label": say("exportWords"), on: { keydown: closeOnEscape } },
    el("h2", { text: say("exportWords") }),
    form,
  );
  fit();

  /** A GIF or WebP cannot have sound or soft subtitles, and a GIF is limited to 50 frames per second. */
  function fit() {
    look.hidden = kind.value === SHEET;
    sound.hidden = kind.value !== "mp4";
    noMusic.hidden = repeatLine.hidden = !music.files.length;
    const soft = subtitles.options[SUBTITLES.indexOf("soft")];
    soft.disabled = kind.value !== "mp4";
    if (soft.disabled && subtitles.value === "soft") subtitles.value = "burned";
    for (const option of rate.options) option.disabled = kind.value === "gif" && Number(option.value) > LARGEST_GIF_RATE;
    if (rate.selectedOptions[0].disabled) rate.value = "30";
  }

  function submit(event) {
    event.preventDefault();
    element.close();
    write(kind.value === SHEET ? null : film(), !first.hidden && opening.checked);
  }

  function film() {
    return {
      format: kind.value,
      subtitles: subtitles.value,
      stats: stats.checked,
      title: title.value.trim(),
      scale: Number(scale.value),
      fps: Number(rate.value),
      ...(kind.value === "mp4" && music.files.length ? { music: music.files[0], loop_sound: repeat.checked } : {}),
    };
  }

  /** Newer pages keep Escape for themselves. */
  function closeOnEscape(event) {
    event.stopPropagation();
    if (event.key === "Escape") element.close();
  }

  function open(hasOpening = false) {
    first.hidden = !hasOpening;
    if (!element.isConnected) document.body.append(element);
    if (!element.open) element.showModal();
    kind.focus();
  }

  return { element, open };
}

function choice(values, words) {
  return el("select", {}, ...values.map((value) => el("option", { value, text: words(value) })));
}

function field(words, input) {
  return el("label", { class: "ag-field" }, el("span", { text: words }), input);
}
