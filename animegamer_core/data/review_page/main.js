"use strict";
// The page itself: what is chosen to be shown, keys, theme, export.

const THEMES = { "": "as the system", light: "light", dark: "dark" };

function setUp() {
  const films = [...new Set([...CLIPS.map((clip) => clip.film), ...DATA.dropped.map((row) => row[0]), ...FILMS.keys()])];
  document.title = `${DATA.name} \u2013 review`;
  $("name").textContent = DATA.name;
  const seconds = CLIPS.reduce((sum, clip) => sum + clip.end - clip.start, 0);
  const facts = [count(CLIPS.length, "clip"), count(DATA.games, "game"), count(films.length, "film"), clock(seconds)];
  $("facts").textContent = facts.join(" \u00b7 ");
  const view = (name, label) => el("label", {}, el("input", { type: "radio", name: "view", value: name }),
    el("span", {}, label, el("b", { id: `count-${name}` })));
  $("views").append(...Object.entries(VIEWS).map(([name, [label]]) => view(name, label)), view("dropped", "Dropped"),
    ...(SCENE_ROWS.length ? [view("scenes", "Scenes")] : []));
  $("count-dropped").textContent = number(DATA.dropped.length);
  if (SCENE_ROWS.length) $("count-scenes").textContent = number(SCENE_ROWS.length);
  const options = (all, names) => [el("option", { value: "" }, all), ...names.map((name) => el("option", { value: name }, name))];
  $("film").append(...options("All films", films));
  $("who").append(...options("Everyone", [...wordsOf("character")].sort((one, other) => one.localeCompare(other))));
  $("levels").append(...[1, 2, 3, 4, 5].map((level) => el("label", { title: SCOPES[level - 1] },
    el("input", { type: "checkbox", value: level, "aria-label": `level ${level}, ${SCOPES[level - 1]}` }),
    el("span", {}, scope(level), el("span", { id: `count-level-${level}` })))));
  if (DATA.problems.length) {
    $("problems").hidden = false;
    const summary = `${count(DATA.problems.length, "problem")} in the dataset's tables; what cannot be read is not shown`;
    $("problems").firstElementChild.textContent = summary;
    $("problems").lastElementChild.append(...DATA.problems.map((problem) => el("li", {}, problem)));
  }
}

function say(text) {
  $("notice").textContent = text;
  $("notice").hidden = !text;
}

// The choice stands in the address, so that a reload or a bookmark shows the same clips.
function rememberChoice() {
  const { view, text, film: name, who, levels, page } = choice;
  const parts = { view: view === "all" ? "" : view, text, film: name, who, levels: [...levels].join(""), page: page ? page + 1 : "" };
  history.replaceState(null, "", `#${new URLSearchParams(Object.entries(parts).filter(([, value]) => value !== ""))}`);
}

function recallChoice() {
  const kept = new URLSearchParams(location.hash.slice(1));
  const view = kept.get("view");
  choice.view = view in VIEWS || (view in LISTS && $(`count-${view}`)) ? view : "all";
  choice.text = kept.get("text") ?? "";
  choice.film = kept.get("film") ?? "";
  choice.who = kept.get("who") ?? "";
  choice.levels = new Set([...(kept.get("levels") ?? "")].map(Number).filter((level) => level >= 1 && level <= 5));
  choice.page = Math.max(0, (Number.parseInt(kept.get("page"), 10) || 1) - 1);
  showChoice();
}

/** Set the filters' controls to the choice. */
function showChoice() {
  $("views").querySelector(`[value=${choice.view}]`).checked = true;
  $("search").value = choice.text;
  $("film").value = choice.film;
  $("who").value = choice.who;
  for (const box of $("levels").querySelectorAll("input")) box.checked = choice.levels.has(Number(box.value));
}

function readChoice() {
  choice.view = $("filters").elements.view.value;
  choice.text = $("search").value.trim();
  choice.film = $("film").value;
  choice.who = $("who").value;
  choice.levels = new Set([...$("levels").querySelectorAll(":checked")].map((box) => Number(box.value)));
  turnTo(0);
}

function setTheme(name) {
  document.documentElement.style.colorScheme = name;
  $("theme").setAttribute("aria-label", `Colours: ${THEMES[name]}`);
  $("theme").title = `Colours: ${THEMES[name]}`;
  $("theme").dataset.name = name;
}

const SERVED = location.protocol !== "file:"; // by ComfyUI, which applies corrections itself

/** Let ComfyUI apply the corrections, and show what came of it; clips set aside and unfinished stay as they are. */
async function saveCorrections() {
  const body = JSON.stringify({ corrections: corrections().text });
  const answer = await fetch("corrections", { method: "POST", headers: { "Content-Type": "application/json" }, body });
  const { error, digest } = await answer.json().catch(() => ({ error: answer.statusText }));
  if (error) return say(error);
  const unfinished = [...changes].filter(([path]) => BY_PATH.get(path)?.aside && !isWhole(BY_PATH.get(path)));
  changes.clear();
  keep();
  if (unfinished.length) remembering((memory) => memory.setItem(keyOf(digest), JSON.stringify({ changes: unfinished, exported: "" })));
  location.reload();
}

function exportCorrections() {
  const { lines, text, unfinished } = corrections();
  download("corrections.jsonl", "application/x-ndjson", text);
  exported = text;
  keep();
  const apply = "python -m animegamer_core dataset check DATASET --apply corrections.jsonl";
  const rest = unfinished ? ` Until every field is filled in, ${count(unfinished, "clip")} set aside stay here.` : "";
  say(`Exported ${count(lines.length, "correction")}. To apply the file: ${apply}${rest}`);
}

function takeBack() {
  const path = undo();
  if (path === undefined) return;
  if ($("editor").open) openEditor(edited);
  const at = pageClips().findIndex((clip) => clip.clip === path);
  if (at >= 0 && !$("editor").open) {
    active = at;
    focusCard();
  }
}

/** How many cards stand in a row. */
function columns() {
  const tops = [...$("grid").children].map((item) => item.offsetTop);
  const next = tops.findIndex((top) => top !== tops[0]);
  return next < 0 ? Math.max(1, tops.length) : next;
}

/** Go from card to card; over an edge of the page to the page beside it. */
function move(by) {
  const to = active + by, last = pageClips().length - 1;
  if (to >= 0 && to <= last) active = to;
  else if (to > last && choice.page < lastPage()) return turnTo(choice.page + 1, 0);
  else if (to < 0 && choice.page > 0) return turnTo(choice.page - 1, -1);
  focusCard();
}

const KEYS = {
  ArrowRight: () => move(1), ArrowLeft: () => move(-1), ArrowDown: () => move(columns()), ArrowUp: () => move(-columns()),
  PageDown: () => turnTo(choice.page + 1, 0), PageUp: () => turnTo(choice.page - 1, 0),
  Home: () => move(-active), End: () => move(pageClips().length - 1 - active),
  m: () => toggleMark(pageClips()[active]), d: () => toggleDrop(pageClips()[active]), Delete: () => toggleDrop(pageClips()[active]),
};

function onKey(event) {
  const modal = document.querySelector("dialog[open]");
  const typing = event.target.matches("input:not([type=radio], [type=checkbox]), select, textarea");
  if (event.key.toLowerCase() === "z" && (event.ctrlKey || event.metaKey) && !event.shiftKey && !typing) {
    event.preventDefault();
    takeBack();
  } else if (event.ctrlKey || event.metaKey || event.altKey || modal || typing) {
    return;
  } else if (event.key === "/") {
    event.preventDefault();
    $("search").focus();
  } else {
    const onCards = $("grid").contains(event.target);
    const act = onCards || (event.target === document.body && event.key.startsWith("Arrow")) ? KEYS[event.key] : null;
    if (!act || !pageClips().length) return;
    event.preventDefault();
    if (onCards) act();
    else focusCard();
  }
}

/** Say the one thing to do next; a page on the disk has its words for that at the export. */
function sayNext() {
  const wordless = CLIPS.filter((clip) => !clip.aside && !isOut(clip) && !isWhole(clip)), left = wordless.length;
  const together = wordless.filter((clip) => marked.has(clip.clip)).length;
  const toCut = [...changes.values()].some((change) => "film" in change) ? "Press Save, then go" : "Go";
  const recut = `Scenes were changed. ${toCut} back to ComfyUI and press Run: it cuts them again, and new clips take the words of those that they overlap most. Then reload this page and look at their words.`;
  say(together === 1 ? "1 clip is marked. Mark the others that show the same, then open one of them."
    : together ? `${number(together)} clips are marked. Open one of them, say who is seen and what happens, and press Use for marked clips.`
    : !SERVED ? ""
    : toCut !== "Go" ? recut
    : left ? `${count(left, "clip has", "clips have")} no words yet. Choose a clip, say who is seen and what happens, and save.`
    : unexported() ? "Every clip has its words. Press Save."
    : DATA.films.some((film) => film.uncut) ? recut
    : "Every clip has its words. Go back to ComfyUI and press Run (Ctrl Enter): the graph goes on with them.");
}

setUp();
if (SERVED) $("export").lastChild.textContent = "Save";
$("apply").hidden = SERVED;
const recalled = recall();
recallChoice();
setTheme(remembering((memory) => memory.getItem("animegamer-review theme")) ?? "");
render();
if (recalled && unexported()) {
  say(`${count(recalled, "clip")} you changed on an earlier visit ${recalled === 1 ? "is" : "are"} still here, not ${SERVED ? "saved" : "exported"} yet.`);
} else if (SERVED) sayNext();

document.addEventListener("changed", ({ detail: path }) => {
  sayNext();
  haystacks.delete(path);
  if (choice.view === "dropped") render();
  else if (choice.view === "scenes") {
    renderSceneChange(path);
    renderCounts();
  } else {
    renderCard(path);
    renderCounts();
  }
});
document.addEventListener("keydown", onKey);
$("filters").addEventListener("submit", (event) => event.preventDefault());
$("filters").addEventListener("input", readChoice);
$("reset").addEventListener("click", () => {
  Object.assign(choice, { view: "all", text: "", film: "", who: "", levels: new Set() });
  showChoice();
  turnTo(0);
});
$("undo").addEventListener("click", takeBack);
$("export").addEventListener("click", SERVED ? saveCorrections : exportCorrections);
$("keys").addEventListener("click", () => $("help").showModal());
$("theme").addEventListener("click", () => {
  const names = Object.keys(THEMES), next = names[(names.indexOf($("theme").dataset.name) + 1) % names.length];
  setTheme(next);
  remembering((memory) => memory.setItem("animegamer-review theme", next));
});
addEventListener("beforeunload", (event) => { if (unexported()) event.preventDefault(); });
addEventListener("hashchange", () => { recallChoice(); render(); });
