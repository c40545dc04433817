// The opening of a new story: the chooser of the form.

import { createCheck } from "./check.mjs";
import { el, field, iconButton, set, wordButton } from "./dom.mjs";
import { oneLine } from "./instruction.mjs";

export const OPENING_TEXT = "stands still";
const FILMS = /\.(3gp|avi|divx|f4v|flv|m2ts|m4v|mkv|mov|mp4|mpe?g|mts|mxf|og[mv]|ts|vob|webm|wmv)$/i;

/** Whether a file is a film; anything else is read as a picture. */
export function isFilm({ name, type = "" }) {
  return type.startsWith("video/") || FILMS.test(name);
}

/** The chooser. value() is {file, film, at, text}, or null if no file is chosen; clear() forgets the file; look(world) checks the
 * text. `act` has read(value) -> the address of a picture of what the world reads in it, and check(text, world), as `createCheck` asks. */
export function createOpeningChooser(say, act) {
  const file = el("input", { type: "file", accept: "image/*,video/*,.mkv,.ts", "aria-label": say("opening") });
  const at = el("input", { type: "number", name: "opening-at", min: 0, step: "any", value: 0, on: { input: seek } });
  const text = el("input", { type: "text", name: "opening-text", placeholder: OPENING_TEXT, maxlength: 2000 });
  const check = createCheck(say, text, act.check, { replace });
  const second = field(say("openingAt"), at);
  const look = el("div", { class: "ag-opening-look" });
  const alert = el("p", { class: "ag-alert", role: "alert", hidden: true });
  const reads = wordButton("eye", say("openingReads"), { class: "ag-second", on: { click: showReading } });
  const forget = iconButton("times", say("noOpening"), () => {
    clear();
    file.focus();
  });
  const more = el(
    "div",
    { class: "ag-opening-more", hidden: true },
    look,
    reads,
    el("p", { class: "ag-faint", text: say("openingLimits") }),
    second,
    field(say("openingText"), check.place),
    check.element,
  );
  const choice = field(say("opening"), el("span", { class: "ag-opening-file" }, file, forget));
  const element = el("div", { class: "ag-opening" }, set(choice, { title: say("openingHelp") }), alert, more);
  let address = "";
  file.addEventListener("change", show);
  show();

  function show() {
    const [chosen] = file.files;
    URL.revokeObjectURL(address);
    address = chosen ? URL.createObjectURL(chosen) : "";
    more.hidden = forget.hidden = !chosen;
    alert.hidden = true;
    second.hidden = !chosen || !isFilm(chosen);
    at.value = 0;
    const isUnread = () => file.files[0] === chosen && chosen.type !== "image/tiff"; // ComfyUI reads TIFF, few browsers do
    const refuse = { error: () => isUnread() && refuseFile(chosen.name) };
    const picture = chosen && (isFilm(chosen) ? el("video", { src: address, preload: "auto" }) : el("img", { src: address, alt: "", on: refuse }));
    if (picture) picture.muted = true;
    look.replaceChildren(...(picture ? [picture] : []));
  }

  /** Say at once that this is no picture; the queue would say so late, and in terms of its decoder. */
  function refuseFile(name) {
    clear();
    alert.textContent = say("openingUnread", { file: name });
    alert.hidden = false;
  }

  /** Show beside it what the world reads in it. */
  async function showReading() {
    const [own] = look.children;
    const waits = el("p", { class: "ag-faint", text: say("openingWaits") });
    reads.disabled = true;
    look.append(waits);
    const src = await act.read(value());
    waits.remove();
    reads.disabled = false;
    if (src && own === look.children[0]) look.replaceChildren(own, el("img", { src, alt: say("openingReads") }));
  }

  /** Show the chosen second of the film. */
  function seek() {
    const [film] = look.children;
    if (film instanceof HTMLVideoElement && Number.isFinite(Number(at.value))) film.currentTime = Math.max(0, Number(at.value));
  }

  function replace(words) {
    text.value = words;
    text.focus();
    text.dispatchEvent(new Event("input", { bubbles: true }));
  }

  function clear() {
    file.value = text.value = "";
    show();
  }

  function value() {
    const [chosen] = file.files;
    if (!chosen) return null;
    const film = isFilm(chosen);
    const wanted = Number(at.value);
    return { file: chosen, film, at: film && wanted > 0 ? wanted : 0, text: oneLine(text.value) || OPENING_TEXT };
  }

  return { element, value, clear, look: check.look };
}
