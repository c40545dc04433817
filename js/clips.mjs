// Clips: muted, looping videos of /view addresses. Kept by address, so that a redraw never starts one again.

import { el, set } from "./dom.mjs";
import { viewPath } from "./prompt.mjs";
import { instructionLines } from "./instruction.mjs";

/** Makes and keeps the videos of one page; `address(path)` is the full address of a server path. */
export function createClips(address) {
  const kept = new Map();
  let paused = globalThis.matchMedia?.("(prefers-reduced-motion: reduce)").matches ?? false;

  /** The video element of a place, made anew only if the place shows another clip. A `still` one waits to be pointed at. */
  function video(place, clip, { words = null, still = false } = {}) {
    const source = address(viewPath(clip));
    const key = `${place} ${source}`;
    if (!kept.has(key)) {
      const element = el("video", {
        src: source,
        muted: true,
        loop: true,
        playsinline: true,
        preload: "auto",
        disablepictureinpicture: true,
      });
      element.muted = true;
      kept.set(key, element);
    }
    return set(kept.get(key), { "aria-label": words, "data-still": still });
  }

  /** After a redraw: go on with the clips that are shown, and drop the others; a browser has only so many decoders. */
  function settle() {
    for (const [key, element] of kept) {
      if (element.isConnected) {
        if (!paused && element.paused && !("still" in element.dataset)) start(element);
        continue;
      }
      drop(key, element);
    }
  }

  function drop(key, element) {
    element.pause();
    element.removeAttribute("src");
    element.load();
    kept.delete(key);
  }

  /** The page goes: no clip plays on unseen, or keeps its decoder. */
  function release() {
    for (const [key, element] of kept) drop(key, element);
  }

  /** Move a clip that is pointed at, unless the player wants none to move. */
  function point(element) {
    if (!paused) start(element);
  }

  function pause(wanted) {
    paused = wanted;
    for (const element of kept.values()) {
      if (paused) element.pause();
      else if (!("still" in element.dataset)) start(element);
    }
  }

  return { video, settle, pause, point, release, isPaused: () => paused };
}

/** Play; that a browser refuses, or that the element was moved meanwhile, is no error: the first frame stands. */
function start(element) {
  element.play().catch((error) => {
    if (!(error instanceof DOMException)) throw error;
  });
}

/** A small clip that can be pressed: `at` is a turn of the tree. A `still` one moves only while it is pointed at. */
export function clipButton(clips, place, at, { words, current, dim, still, act, badge, attributes = {} }) {
  const picture = at.turn.clip
    ? clips.video(`${place} ${at.key}`, at.turn.clip, { still })
    : el("span", { class: "ag-no-clip", text: instructionLines(at.turn.instruction)[0] });
  set(picture, { "aria-hidden": "true", tabindex: -1 });
  const moves =
    still && at.turn.clip
      ? {
          pointerenter: () => clips.point(picture),
          pointerleave: () => picture.pause(),
          focus: () => clips.point(picture),
          blur: () => picture.pause(),
        }
      : {};
  const kind = `ag-clip${current ? " ag-current" : ""}${dim ? " ag-dim" : ""}`;
  return el(
    "button",
    { type: "button", class: kind, "aria-label": words, title: words, on: { click: act, ...moves }, ...attributes },
    picture,
    el("span", { class: "ag-badge", "aria-hidden": "true", text: badge }),
  );
}
