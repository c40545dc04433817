// The dialog that exports a story: as clips with a contact sheet, or as a film to share.

import { createDialog, el, field, iconButton, wordButton } from "./dom.mjs";

const SHEET = "sheet"; // the story as one clip, and a contact sheet
const KINDS = [SHEET, "film"];

/**
 * A dialog: open(hasOpening) shows it; `write(film, showOpening)` gets the chosen film, as inputs of ExportGameStory with
 * the file of its sound as `music`, or null for a sheet, and whether it begins with turn 0.
 */
export function createExport(say, write) {
  const words = { [SHEET]: say("exportSheet"), film: say("exportFilm") };
  const kind = el("select", {}, ...KINDS.map((value) => el("option", { value, text: words[value] })));
  const subtitles = el("input", { type: "checkbox", name: "subtitles" });
  const music = el("input", { type: "file", name: "music", accept: "audio/*,video/*" });
  const noMusic = iconButton("times", say("noMusic"), () => {
    music.value = "";
    fit();
    music.focus();
  });
  const opening = el("input", { type: "checkbox", name: "show-opening" });
  const first = el("label", { class: "ag-check", hidden: true }, opening, el("span", { text: say("showOpening") }));
  const look = el(
    "fieldset",
    { class: "ag-look" },
    el("label", { class: "ag-check" }, subtitles, el("span", { text: say("subtitles") })),
    field(say("music"), el("span", { class: "ag-opening-file" }, music, noMusic)),
  );
  const go = wordButton("download", say("exportNow"), { type: "submit", class: "ag-main" });
  const closes = { click: () => dialog.element.close() };
  const close = wordButton("times", say("closeDialog"), { class: "ag-second", on: closes });
  const form = el(
    "form",
    { class: "ag-export-form", on: { submit, change: fit } },
    field(say("exportAs"), kind),
    look,
    first,
    el("div", { class: "ag-buttons" }, go, close),
  );
  const dialog = createDialog(say("exportWords"), "ag-export", form);
  fit();

  function fit() {
    look.hidden = kind.value === SHEET;
    noMusic.hidden = !music.files.length;
  }

  function submit(event) {
    event.preventDefault();
    dialog.element.close();
    write(kind.value === SHEET ? null : film(), !first.hidden && opening.checked);
  }

  function film() {
    return { subtitles: subtitles.checked, ...(music.files.length ? { music: music.files[0] } : {}) };
  }

  function open(hasOpening = false) {
    first.hidden = !hasOpening;
    dialog.open();
    kind.focus();
  }

  return { element: dialog.element, open };
}
