// The Play tab: the list of stories, or the open story.

import { createClips } from "./clips.mjs";
import { el, field, iconButton, showText, wordButton } from "./dom.mjs";
import { createExport } from "./export_dialog.mjs";
import { createCard } from "./state_card.mjs";
import { createOpeningChooser } from "./opening.mjs";
import { createForm } from "./play_form.mjs";
import { createStoryList, freeName } from "./story_list.mjs";
import { createMap } from "./play_map.mjs";
import { createStage, createStrip, createTakes } from "./play_stage.mjs";
import { viewPath } from "./prompt.mjs";
import { createSuggestions } from "./suggestions.mjs";
import { describeState, itemOfPath, readState } from "./state.mjs";
import { pathTo } from "./tree.mjs";

const FILE_WORDS = { mp4: "film", gif: "film", webp: "film", srt: "subtitleFile" }; // by suffix; others are pictures
const NEW_GAME = "my-game";
const BANNER_MS = 6000; // until ComfyUI has shown and removed what it says of an ended job

/**
 * The Play tab. `page` has address(path), post(path, values), openAsGraph(session), getWeights(world), autoplay; whether
 * clips move as `clipsMove`, and moveClips(wanted), which is called when the player changes it; tell(severity, summary,
 * detail) for a message outside of the tab; and as `trash` the {name, ticket} of the story that was deleted last.
 * show(session, event) draws it; destroy() ends its clips. play(), undo() and takeBack() are what its buttons do.
 */
export function createPlayTab(session, say, page) {
  const clips = createClips(page.address, page.clipsMove);
  const start = createStart(say, session, clips, page);
  const game = createGame(say, session, clips, page);
  const live = el("div", { class: "ag-unseen", role: "status", "aria-live": "polite" });
  // ComfyUI says "Job completed" of every take and turn; who sees them here does not need it.
  const hush = el("style", { media: "not all", text: "[data-testid=queue-notification-banner] { display: none; }" });
  const element = el("div", { class: "ag ag-play" }, start.element, game.element, live, hush);
  let open = null;
  let hushed = 0;

  function show(now, event) {
    const changedPlace = open !== now.story;
    open = now.story;
    element.setAttribute("aria-busy", String(now.starting));
    clearTimeout(hushed);
    if (now.busy) hush.media = "all";
    else hushed = setTimeout(() => (hush.media = "not all"), BANNER_MS);
    start.element.hidden = Boolean(now.story);
    game.element.hidden = !now.story;
    if (now.story) game.show(now, event);
    else start.show(now);
    if (event === "turn" && now.here.turn)
      live.textContent = describeState(readState(itemOfPath(pathTo(now.here))), say);
    if (changedPlace && element.contains(document.activeElement)) (now.story ? game : start).focus();
  }

  show(session, "");
  function destroy() {
    game.preview(null);
    game.release();
    clips.release();
    start.release();
  }

  return {
    element,
    show,
    destroy,
    play: () => (session.story ? game.play() : start.focus()),
    undo: game.undo,
    takeBack: start.takeBack,
    moveClips: game.moveClips,
    preview: (blob) => session.running && game.preview(blob),
  };
}

function createStart(say, session, clips, page) {
  const name = el("input", { type: "text", maxlength: 80, required: true, value: NEW_GAME, spellcheck: "false" });
  const world = el("select");
  const weights = wordButton("download", say("getWeights"), {
    class: "ag-second ag-get-weights",
    on: { click: () => page.getWeights(world.value) },
  });
  const list = createStoryList(say, session, clips, page);
  const opening = createOpeningChooser(say, {
    check: (text, world) => session.check(`"${text}"`, 0, world), // it is played as it is
    read: async (chosen) => {
      const picture = await session.readOpening(world.value, chosen);
      return picture && page.address(viewPath(picture));
    },
  });
  const go = wordButton("play", say("begin"), { type: "submit", class: "ag-main" });
  const error = el("p", { class: "ag-alert", role: "alert", hidden: true });
  const existing = el("div", { class: "ag-alert ag-existing", role: "alert", hidden: true });
  const form = el(
    "form",
    { class: "ag-new", on: { submit: begin, input: written } },
    field(say("storyName"), name),
    field(say("world"), world),
    opening.element,
    existing,
    go,
    weights,
  );
  const element = el(
    "div",
    { class: "ag-start" },
    el("header", {}, el("h2", { text: say("welcome") }), el("p", { class: "ag-faint", text: say("welcomeText") })),
    error,
    form,
    list.element,
  );
  let offered = NEW_GAME;

  async function begin(event) {
    event.preventDefault();
    if (session.uploading) return;
    if (session.absent.includes(world.value)) return void page.getWeights(world.value);
    const known = session.stories.find((story) => story.name === name.value.trim());
    if (known && !opening.value()) return askToContinue(known);
    await session.begin(name.value.trim(), world.value, opening.value());
    if (session.story) opening.clear();
  }

  function written() {
    existing.hidden = true;
    opening.look(world.value);
  }

  /** A story of this name is there, perhaps of another world: the player says whether that is the one. */
  function askToContinue(story) {
    const open = () => session.open(story.name);
    const button = wordButton("play", say("openStory", { story: story.name }), { class: "ag-second", on: { click: open } });
    existing.hidden = false;
    existing.replaceChildren(el("p", { text: say("storyExists", { story: story.name, world: story.world }) }), button);
    button.focus();
  }

  function show({ stories, worlds, absent, uploading, error: sentence }) {
    go.setAttribute("aria-disabled", String(uploading)); // a disabled button would lose the focus that the game takes over
    go.lastChild.textContent = say(uploading ? "uploading" : "begin");
    showText(error, sentence);
    const chosen = world.value;
    const called = (value) => (absent.includes(value) ? say("notInstalled", { world: value }) : value);
    world.replaceChildren(...worlds.map((value) => el("option", { value, text: called(value) })));
    if (worlds.includes(chosen)) world.value = chosen;
    if (name.value === offered) name.value = offered = freeName(NEW_GAME, stories, "-");
    existing.hidden ||= Boolean(sentence) || Boolean(session.story);
    list.show(stories);
  }

  return { element, show, focus: () => name.focus(), takeBack: list.takeBack, release: opening.clear };
}

function createGame(say, session, clips, page) {
  const name = el("h2", { class: "ag-name" });
  const world = el("span", { class: "ag-chip" });
  const goBack = () => form.offer(session.undo());
  const undo = iconButton("undo", say("undo"), goBack);
  const dialog = createExport(say, (film, showOpening) => session.exportStory(film, showOpening));
  const write = iconButton("download", say("exportWords"), () => dialog.open(Boolean(session.turnZero?.clip)));
  const graph = iconButton("share-alt", say("graphWords"), () => page.openAsGraph(session));
  const top = el(
    "header",
    { class: "ag-top" },
    iconButton("angle-left", say("stories"), () => session.close()),
    el("div", { class: "ag-title-words" }, name, world),
    undo,
    write,
    graph,
  );
  const goTo = (at) => session.goTo(at);
  const takes = createTakes(say, clips, {
    goTo,
    drawAgain: () => session.drawAgain(form.settings()),
  });
  const stage = createStage(say, clips, takes.more, page.moveClips);
  const card = createCard(say, { withText: false });
  const strip = createStrip(say, clips, goTo);
  const map = createMap(say, goTo);
  const mapPlace = el("section", { class: "ag-branches" }, el("h3", { text: say("branches") }), map.element);
  const files = el("div", { class: "ag-files", role: "status", hidden: true });
  const suggestions = createSuggestions(say, {
    suggest: (seed, quiet) => session.suggest(seed, quiet),
    play: (words) => session.play(words, 1, form.settings()),
    edit: (words) => form.put(words),
    autoplay: (count) => page.autoplay.start(count, form.settings()),
    keep: (count) => session.keep({ autoplay: count }),
  });
  const form = createForm(
    say,
    {
      play: async (words, takes, settings) => {
        // what the world refuses is not sent: the check below the text says why
        if (!(await session.check(words, settings.steps))?.error) await session.play(words, takes, settings);
      },
      stop: () => {
        page.autoplay.end();
        return session.stop();
      },
      keep: (settings) => session.keep(settings),
      check: (instruction, steps) => session.check(instruction, steps),
      takeOver: () => page.autoplay.takeOver(),
    },
    suggestions.element,
  );
  let restored = false;
  let shown = {}; // whether turns were on their way, and the exported files

  const parts = [stage.element, takes.element, strip.element, files, card.element, mapPlace];
  const scroll = el("div", { class: "ag-scroll" }, ...parts);
  const element = el("div", { class: "ag-game" }, top, scroll, form.element);

  function show(now, event) {
    form.show(now, event);
    if (!restored && now.settings) suggestions.restore(now.settings.autoplay);
    restored = true;
    suggestions.show(now, page.autoplay.on ? page.autoplay.left : 0);
    if (event === "progress") return; // nothing else changed
    name.textContent = now.story;
    name.title = `${now.story} \u00b7 ${now.world}`; // where both do not fit, the world is left out
    world.textContent = now.world;
    const focused = document.activeElement;
    undo.disabled = !now.here.parent || now.busy;
    write.disabled = graph.disabled = !now.here.parent || now.busy;
    if ([undo, write, graph].includes(focused) && focused.disabled) form.focus();
    stage.show(now);
    takes.show(now);
    strip.show(now);
    map.show(now.root, now.here, now.branch);
    mapPlace.hidden = !now.root.children.length;
    card.element.hidden = !now.here.turn;
    if (now.here.turn) card.show(itemOfPath(pathTo(now.here)));
    if (event === "turn" || (now.busy && !shown.busy)) scroll.scrollTo({ top: 0 }); // to the clip
    if (now.files !== shown.files) showFiles(files, now.files, say, page, Boolean(shown.files)); // told of when written
    shown = { busy: now.busy, files: now.files };
    clips.settle();
  }

  return {
    element,
    show,
    play: form.play,
    undo: goBack,
    focus: () => form.focus(),
    moveClips: stage.moveClips,
    preview: stage.showPreview,
    release: () => dialog.element.remove(), // it is not inside of the tab
  };
}

function showFiles(place, files, say, page, tell) {
  place.hidden = !files.length;
  const written = Date.now(); // an export has the name of the last one, which the browser may keep
  const wanted = files.filter((file) => !/^turn-/.test(file.filename));
  place.replaceChildren(
    el("span", { class: "ag-faint", text: say("exported") }),
    ...wanted.map((file) => {
      const words = say(FILE_WORDS[file.filename.split(".").at(-1)] ?? "sheet");
      return el("a", {
        class: "ag-link",
        href: page.address(`${viewPath(file)}&t=${written}`),
        target: "_blank",
        rel: "noopener",
        title: file.filename,
        text: words,
      });
    }),
  );
  if (!files.length || !tell) return;
  place.scrollIntoView({ block: "nearest" });
  page.tell("success", say("exported"), wanted.map((file) => file.filename).join(", "));
}
