// The list of saved stories: search, thumbnails, rename, duplicate, delete and take back.

import { el, iconButton, showText, wordButton } from "./dom.mjs";
import { viewPath } from "./prompt.mjs";

const PATH = "/animegamer/stories";
const SEARCHED = 5; // with so many stories there is a field to search them

/** The list: show(stories) draws it, takeBack() restores the story that was deleted last. `page`: see createPlayTab. */
export function createStoryList(say, session, page) {
  const search = el("input", {
    type: "search",
    "aria-label": say("searchStories"),
    placeholder: say("searchStories"),
    on: { input: () => draw() },
  });
  const list = el("ul", { class: "ag-stories" });
  const removed = el("div", { role: "status" });
  const alert = el("p", { class: "ag-alert", role: "alert", hidden: true });
  const element = el("section", { class: "ag-library" }, el("h3", { text: say("goOn") }), search, alert, removed, list);
  const thumbs = new Thumbnails(page.address);
  let stories = [];

  showTrash();

  function show(all) {
    stories = all;
    draw();
  }

  function draw() {
    search.hidden = stories.length < SEARCHED && !search.value;
    const found = matching(stories, search.value);
    const none = el("li", { class: "ag-faint", text: say(stories.length ? "noMatch" : "noStories") });
    list.replaceChildren(...(found.length ? found.map(entry) : [none]));
    thumbs.settle();
  }

  function entry(story) {
    const values = { story: story.name };
    const turns = say(story.turns === 1 ? "oneTurn" : "turns", { count: story.turns });
    const facts = story.error ?? `${story.world} \u00b7 ${turns}`;
    const picture = story.clip
      ? thumbs.of(story.name, story.clip)
      : el("i", { class: "ag-thumb ag-blank pi pi-sparkles", "aria-hidden": "true" });
    const open = el(
      "button",
      {
        type: "button",
        class: "ag-story",
        "aria-label": `${say("openStory", values)}, ${facts}`,
        on: { click: () => session.open(story.name), ...thumbs.moves(picture) },
      },
      picture,
      el("span", { class: "ag-story-name", text: story.name, title: story.name }),
      el("span", { class: "ag-faint", text: facts, title: facts }),
    );
    const item = el(
      "li",
      {},
      open,
      iconButton("pencil", say("rename", values), () => rename(item, story.name)),
      iconButton("copy", say("duplicate", values), () => duplicate(story.name)),
      iconButton("trash", say("remove", values), () => remove(story.name)),
    );
    return item;
  }

  /** A field instead of the entry. Enter keeps the new name, Escape the old one. */
  function rename(item, name) {
    const field = el("input", { type: "text", maxlength: 80, required: true, value: name, "aria-label": say("newName", { story: name }) });
    const submit = async (event) => {
      event.preventDefault();
      const to = field.value.trim();
      if (to !== name && !(await act({ do: "rename", name, to }))) return field.focus();
      focus(to === name ? name : to);
    };
    const keydown = (event) => {
      if (event.key !== "Escape") return;
      event.stopPropagation();
      focus(name);
    };
    const keep = iconButton("check", say("keepName"), null, { type: "submit" });
    item.replaceChildren(el("form", { class: "ag-rename", on: { submit, keydown } }, field, keep));
    field.focus();
    field.select();
  }

  async function duplicate(name) {
    const to = freeCopy(say("copyOf", { story: name }), new Set(stories.map((story) => story.name)));
    if (await act({ do: "duplicate", name, to })) focus(to);
  }

  async function remove(name) {
    const done = await act({ do: "delete", name });
    if (!done) return;
    page.trash = { name, ticket: done.ticket };
    showTrash();
    removed.querySelector("button").focus();
    page.tell("info", say("removed", { story: name }), say("removedHelp"));
  }

  function showTrash() {
    if (!page.trash) return removed.replaceChildren();
    const back = wordButton("undo", say("takeBack"), { class: "ag-second", on: { click: takeBack } });
    const words = el("span", { text: say("removed", { story: page.trash.name }) });
    removed.replaceChildren(el("div", { class: "ag-removed" }, words, back));
  }

  async function takeBack() {
    const { name, ticket } = page.trash ?? {};
    if (!ticket || !(await act({ do: "restore", ticket }))) return;
    page.trash = null;
    showTrash();
    focus(name);
  }

  /** Ask the server, then read the list again; its answer, or null after an error, which is shown. */
  async function act(values) {
    try {
      const answer = await page.post(PATH, values);
      showText(alert, "");
      await session.close();
      return answer;
    } catch (error) {
      showText(alert, error.message);
      return null;
    }
  }

  /** Draw the list again, and focus a story in it. */
  function focus(name) {
    draw();
    const at = matching(stories, search.value).findIndex((story) => story.name === name);
    list.querySelectorAll(".ag-story")[at]?.focus();
  }

  return { element, show, takeBack, release: () => thumbs.release() };
}

/** The stories whose name or world contains all words of a text. */
export function matching(stories, text) {
  const words = text.toLocaleLowerCase().split(/\s+/).filter(Boolean);
  return stories.filter(({ name, world }) => {
    const said = `${name} ${world}`.toLocaleLowerCase();
    return words.every((word) => said.includes(word));
  });
}

/** A name that is not taken: the wanted one, or that with a number. */
export function freeCopy(wanted, taken) {
  let name = wanted;
  for (let number = 2; taken.has(name); number += 1) name = `${wanted} ${number}`;
  return name;
}

/** Videos that load when they come into view and play under the pointer or with the focus. */
class Thumbnails {
  #videos = new Map();
  #watch = new IntersectionObserver((entries) => {
    for (const { target, isIntersecting } of entries) if (isIntersecting && !target.src) target.src = target.dataset.src;
  });

  constructor(address) {
    this.address = address;
  }

  of(name, clip) {
    const src = this.address(viewPath(clip));
    if (this.#videos.get(name)?.dataset.src !== src) {
      this.#drop(name);
      const video = el("video", {
        class: "ag-thumb", loop: true, playsinline: true, preload: "metadata", "aria-hidden": "true", tabindex: -1, "data-src": src,
      });
      video.muted = true;
      this.#videos.set(name, video);
      this.#watch.observe(video);
    }
    return this.#videos.get(name);
  }

  moves(video) {
    if (!(video instanceof HTMLVideoElement)) return {};
    const play = () => {
      if (!matchMedia("(prefers-reduced-motion: reduce)").matches) video.play().catch(() => video.pause());
    };
    const pause = () => video.pause();
    return { pointerenter: play, pointerleave: pause, focus: play, blur: pause };
  }

  /** Release the videos that are no longer shown; browsers have few decoders. */
  settle() {
    for (const [name, video] of this.#videos) if (!video.isConnected && video.src) this.#drop(name);
  }

  release() {
    for (const name of [...this.#videos.keys()]) this.#drop(name);
  }

  #drop(name) {
    const video = this.#videos.get(name);
    if (!video) return;
    this.#watch.unobserve(video);
    video.pause();
    video.removeAttribute("src");
    video.load();
    this.#videos.delete(name);
  }
}
