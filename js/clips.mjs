// Clips: muted, looping videos from /view URLs. They are cached by URL, or by their content's address where that is their
// name, so that a redraw does not restart them.

import { el, set } from "./dom.mjs";
import { viewPath } from "./prompt.mjs";
import { instructionLines } from "./instruction.mjs";

const ADDRESS = /^[0-9a-f]{64}\./; // a file that is named by its content, which is the same in every folder

/** Creates and caches the videos of a page; `address(path)` is the full URL of a server path. They move if `moving`. */
export function createClips(address, moving = !reducedMotion()) {
  const videos = new Map();
  const sources = new Map(); // the newest source of each video
  const pictures = new Map();
  const inView = new IntersectionObserver((entries) => {
    for (const { target, isIntersecting } of entries) if (isIntersecting) target.src ||= target.dataset.src;
  });
  let paused = !moving;

  /**
   * The video element for a place, created again only if the clip has changed. A `still` one plays only on hover, a
   * `lazy` one loads when it comes into view.
   */
  function video(place, clip, { words = null, still = false, lazy = false } = {}) {
    const source = address(viewPath(clip)) + (clip.at ? `#t=${clip.at}` : "");
    const key = `${place} ${ADDRESS.test(clip.filename) ? clip.filename : source}`;
    if (!videos.has(key)) {
      const element = el("video", {
        [lazy ? "data-src" : "src"]: source,
        muted: true,
        loop: true,
        playsinline: true,
        preload: lazy ? "metadata" : "auto",
        disablepictureinpicture: true,
      });
      element.muted = true;
      element.addEventListener("error", () => {
        const now = sources.get(key);
        if (now && element.getAttribute("src") !== now) element.src = now; // it was moved into its story
      });
      if (lazy) inView.observe(element);
      videos.set(key, element);
    }
    sources.set(key, source);
    return set(videos.get(key), { "aria-label": words, "data-still": still });
  }

  /** The image element for a picture that is not a clip; reuses the one shown now if its address is the same. */
  function picture(place, file, { words = null } = {}) {
    const source = address(viewPath(file));
    const shown = pictures.get(place)?.getAttribute("src") === source;
    if (!shown) pictures.set(place, el("img", { src: source }));
    return set(pictures.get(place), { alt: words ?? "" });
  }

  /** After a redraw: play the clips that are shown and release the others, since browsers have few video decoders. */
  function settle() {
    for (const [key, element] of videos) {
      if (element.isConnected) {
        const still = "still" in element.dataset;
        if (still && !element.closest("button:is(:hover, :focus-visible)")) element.pause();
        if (!still && !paused && element.paused) start(element);
        continue;
      }
      drop(key, element);
    }
  }

  function drop(key, element) {
    inView.unobserve(element);
    element.pause();
    element.removeAttribute("src");
    element.load();
    videos.delete(key);
    sources.delete(key);
  }

  /** Release all clips before the page is removed. */
  function release() {
    for (const [key, element] of videos) drop(key, element);
  }

  /** What plays a `still` clip under the pointer or with the focus: listeners for its button. */
  function moves(element) {
    const play = () => {
      if (!paused || !reducedMotion()) start(element);
    };
    const pause = () => element.pause();
    return { pointerenter: play, pointerleave: pause, focus: play, blur: pause };
  }

  function pause(wanted) {
    paused = wanted;
    for (const element of videos.values()) {
      if (paused) element.pause();
      else if (!("still" in element.dataset)) start(element);
    }
  }

  return { video, picture, settle, pause, moves, release, isPaused: () => paused };
}

/** Whether the player wants nothing to move. */
export function reducedMotion() {
  return globalThis.matchMedia?.("(prefers-reduced-motion: reduce)").matches ?? false;
}

/** Play. If the browser refuses, or the element was moved in the meantime, the first frame is shown without an error. */
function start(element) {
  element.play().catch((error) => {
    if (!(error instanceof DOMException)) throw error;
  });
}

/** A button with a small clip; `at` is a turn of the tree. A `still` clip plays only on hover. */
export function clipButton(clips, place, at, { words, current, dim, still, act, badge, attributes = {} }) {
  const picture = at.turn.clip
    ? clips.video(`${place} ${at.key}`, at.turn.clip, { still })
    : el("span", { class: "ag-no-clip", text: instructionLines(at.turn.instruction)[0] });
  set(picture, { "aria-hidden": "true", tabindex: -1 });
  const moves = still && at.turn.clip ? clips.moves(picture) : {};
  const kind = `ag-clip${current ? " ag-current" : ""}${dim ? " ag-dim" : ""}`;
  return el(
    "button",
    { type: "button", class: kind, "aria-label": words, title: words, on: { click: act, ...moves }, ...attributes },
    picture,
    el("span", { class: "ag-badge", "aria-hidden": "true", text: badge }),
  );
}
