// The list of saved stories: search, thumbnails, rename, duplicate, delete and take back.

import { el, iconButton, set, showText, wordButton } from "./dom.mjs";

const PATH = "/animegamer/stories";
const SEARCHED = 5; // with so many stories there is a field to search them

/** The list: show(stories) draws it, takeBack() restores the story that was deleted last. `page`: see createPlayTab. */
export function createStoryList(say, session, clips, page) {
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
    clips.settle();
  }

  function entry(story) {
    const values = { story: story.name };
    const turns = say(story.turns === 1 ? "oneTurn" : "turns", { count: story.turns });
    const facts = story.error ?? `${story.world} \u00b7 ${turns}`;
    const picture = story.clip
      ? clips.video(`story ${story.name}`, story.clip, { still: true, lazy: true })
      : el("i", { class: "ag-blank pi pi-sparkles" });
    picture.classList.add("ag-thumb");
    const open = el(
      "button",
      {
        type: "button",
        class: "ag-story",
        "aria-label": `${say("openStory", values)}, ${facts}`,
        on: { click: () => session.open(story.name), ...(story.clip ? clips.moves(picture) : {}) },
      },
      set(picture, { "aria-hidden": "true", tabindex: -1 }),
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
    const to = freeName(say("copyOf", { story: name }), stories);
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

  return { element, show, takeBack };
}

/** The stories whose name or world contains all words of a text. */
export function matching(stories, text) {
  const words = text.toLocaleLowerCase().split(/\s+/).filter(Boolean);
  return stories.filter(({ name, world }) => {
    const said = `${name} ${world}`.toLocaleLowerCase();
    return words.every((word) => said.includes(word));
  });
}

/** A name that no story has: the wanted one, or that with a number. */
export function freeName(wanted, stories, between = " ") {
  let name = wanted;
  for (let number = 2; stories.some((story) => story.name === name); number += 1) name = `${wanted}${between}${number}`;
  return name;
}
