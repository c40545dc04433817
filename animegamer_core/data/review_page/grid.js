"use strict";
// The page's clips: which of them are shown, as cards.

const PAGE = 24, ROWS = 100, SCENES = 30; // clips, rows and scenes on a page
const VIEWS = {
  all: ["All clips", () => true],
  empty: ["No caption", (clip) => !clip.aside && !isWhole(clip)],
  aside: ["Set aside", (clip) => Boolean(clip.aside)],
  changed: ["Changed", (clip) => changes.has(clip.clip) && !isOut(clip)],
  out: ["To drop", isOut],
};
const SCOPES = ["still", "gentle", "brisk", "fast", "wild"];
const choice = { view: "all", text: "", film: "", who: "", levels: new Set(), page: 0, reason: "" };
const marked = new Set(); // paths of the clips that "Use for others" changes
let shown = []; // the clips that fit the choice, in order
let active = 0; // of the page's cards, the one that the keys are at

function icon(name) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  const use = document.createElementNS("http://www.w3.org/2000/svg", "use");
  use.setAttribute("href", `#i-${name}`);
  node.setAttribute("aria-hidden", "true");
  node.append(use);
  return node;
}

const address = (path) => `./${path.split("/").map(encodeURIComponent).join("/")}`;

function clock(seconds) {
  const whole = Math.floor(seconds), two = (value) => String(value).padStart(2, "0");
  const text = `${two(Math.floor(whole / 60) % 60)}:${two(whole % 60)}`;
  return whole >= 3600 ? `${Math.floor(whole / 3600)}:${text}` : text;
}

const haystacks = new Map(); // what is searched for each clip; forgotten where it changes

function haystack(clip) {
  if (!haystacks.has(clip.clip)) haystacks.set(clip.clip, searched(clip));
  return haystacks.get(clip.clip);
}

function searched(clip) {
  const values = FIELDS.slice(0, 4).map((name) => valueOf(clip, name));
  return [...values.flat(), clip.film, clip.clip, clip.aside?.reason].filter(Boolean).join(" ").toLowerCase();
}

const fits = (clip, levels = choice.levels) =>
  (VIEWS[choice.view] ?? VIEWS.all)[1](clip) && (!choice.film || clip.film === choice.film)
  && (!choice.who || (valueOf(clip, "character") ?? []).includes(choice.who))
  && (!levels.size || levels.has(clip.motion_level))
  && choice.text.toLowerCase().split(/\s+/).every((word) => haystack(clip).includes(word));

// The views that show no clips: their rows, how many of them a page has, and what is drawn into the element of that name.
const LISTS = {
  dropped: { rows: droppedRows, page: ROWS, draw: droppedTable, says: (many) => `${count(many, "segment")} dropped` },
  scenes: { rows: sceneRows, page: SCENES, draw: sceneStrips, says: (many) => count(many, "scene") },
};
const lastPage = () => {
  const list = LISTS[choice.view];
  return Math.max(0, Math.ceil(list ? list.rows().length / list.page : shown.length / PAGE) - 1);
};
const pageClips = () => shown.slice(choice.page * PAGE, (choice.page + 1) * PAGE);

/** Show the clips that fit the choice, at its page. */
function render() {
  const list = LISTS[choice.view];
  shown = list ? [] : CLIPS.filter((clip) => fits(clip));
  choice.page = Math.min(Math.max(0, choice.page), lastPage());
  active = Math.min(active, Math.max(0, pageClips().length - 1));
  watcher.disconnect();
  $("grid").replaceChildren(...pageClips().map(card));
  $("grid").hidden = Boolean(list);
  $("who").disabled = Boolean(list);
  $("levels").parentElement.disabled = Boolean(list);
  for (const [name, { draw }] of Object.entries(LISTS)) {
    $(name).hidden = name !== choice.view;
    $(name).replaceChildren(...(name === choice.view ? draw() : []));
  }
  $("empty").hidden = Boolean(list) || shown.length > 0;
  rove();
  const first = choice.page * PAGE;
  const last = Math.min(first + PAGE, shown.length);
  $("shown").textContent = list ? list.says(list.rows().length)
    : shown.length ? `${number(first + 1)}\u2013${number(last)} of ${count(shown.length, "clip")}` : "No clip";
  document.querySelectorAll(".pager").forEach((pager) => pager.replaceChildren(...pagerParts()));
  renderCounts();
}

function pagerParts() {
  if (!lastPage()) return [];
  const to = (page) => () => turnTo(page);
  const input = el("input", { type: "number", min: 1, max: lastPage() + 1, value: choice.page + 1, "aria-label": "Page",
    onchange: (event) => turnTo(Number(event.target.value) - 1) });
  const button = (name, label, page) =>
    el("button", { class: "icon", "aria-label": label, disabled: page < 0 || page > lastPage(), onclick: to(page) }, icon(name));
  return [button("left", "Previous page", choice.page - 1), input, `of ${number(lastPage() + 1)}`,
    button("right", "Next page", choice.page + 1)];
}

/** Go to a page and, if asked, to one of its cards: its number, or -1 for the last. */
function turnTo(page, at = null) {
  choice.page = Math.min(Math.max(0, page || 0), lastPage());
  active = at === -1 ? pageClips().length - 1 : at ?? 0;
  render();
  rememberChoice();
  if (at !== null) focusCard();
  else scrollTo({ top: 0 });
}

function rove() {
  [...$("grid").children].forEach((item, at) =>
    item.querySelectorAll("button").forEach((button) => { button.tabIndex = at === active ? 0 : -1; }));
}

function focusCard() {
  rove();
  $("grid").children[active]?.querySelector(".card").focus();
}

const watcher = new IntersectionObserver((entries) => {
  for (const { isIntersecting, target } of entries) {
    if (isIntersecting) {
      target.src = `${address(target.dataset.path)}#t=0.001`;
      watcher.unobserve(target);
    }
  }
}, { rootMargin: "300px" });

/** A clip's moving picture; a word in its place where the browser cannot show it. */
function film(clip, properties = {}) {
  if (!clip.clip.endsWith(".mp4")) return el("span", { class: "no-film" }, "A browser cannot show this kind of file.");
  const video = el("video", { loop: true, playsinline: true, preload: "metadata", disablepictureinpicture: true, ...properties });
  video.muted = true;
  video.addEventListener("error", () => video.replaceWith(el("span", { class: "no-film" }, "This file cannot be played.")));
  return video;
}

function scope(level) {
  return el("span", { class: "scope", "aria-hidden": "true" },
    ...[1, 2, 3, 4, 5].map((step) => el("i", { class: step <= level ? "on" : null })));
}

const labelled = (text, className) => el("span", { class: text ? className : `${className} none` }, text || "missing");

/** Who does what and where; one line if all of it is missing. */
function caption(clip) {
  const [who, motion, where] = ["character", "motion", "background"].map((name) => valueOf(clip, name));
  if (!who && !motion && !where) return [el("span", { class: "who none" }, "No caption yet")];
  const moved = [valueOf(clip, "adverb"), motion].filter(Boolean).join(" ");
  return [labelled((who ?? []).join(", "), "who"), labelled(moved, "what"), labelled(where, "where")];
}

function gauge(clip, stat) {
  const value = statOf(clip, stat.name), label = labelOf(stat);
  const item = el("span", { class: "gauge" }, value === null ? `${label} ?` : `${label} ${signed(value)}`);
  if (value > 0) item.style.setProperty("--own", stat.colour);
  return item;
}

function card(clip) {
  const video = film(clip, { "data-path": clip.clip, "aria-hidden": "true", tabindex: -1 });
  if (video.localName === "video") watcher.observe(video);
  const level = clip.motion_level, out = isOut(clip);
  const flag = out ? ["out", "To drop"] : changes.has(clip.clip) ? ["", "Changed"] : clip.aside ? ["aside", "Set aside"] : null;
  const button = el("button", { class: "card", "aria-haspopup": "dialog", onclick: () => openEditor(clip) },
    el("span", { class: "screen" }, video,
      el("span", { class: "tag start" }, el("span", { class: "unseen" }, "at "), clock(clip.start)),
      level && el("span", { class: "tag end" }, scope(level), el("span", { class: "unseen" }, "motion "), SCOPES[level - 1])),
    flag && el("span", { class: `flag ${flag[0]}` }, flag[1]),
    el("span", { class: "words" }, ...caption(clip),
      clip.aside && !isWhole(clip) ? el("span", { class: "gauges" }, el("span", { class: "gauge loss" }, clip.aside.reason))
        : el("span", { class: "gauges" }, ...DATA.stats.map((stat) => gauge(clip, stat)))));
  const toss = el("button", { class: "toss", "aria-pressed": String(out), "aria-label": "Drop this clip",
    title: "Drop this clip (D)", onclick: () => toggleDrop(clip) }, icon("drop"));
  const mark = el("button", { class: "mark", "aria-pressed": String(marked.has(clip.clip)), "aria-label": "Mark this clip",
    title: "Mark this clip, to give several the same words (M)", onclick: () => toggleMark(clip) }, icon("check"));
  const item = el("li", { class: `clip${flag && !flag[0] ? " changed" : ""}${out ? " out" : ""}` }, button, mark, toss);
  const play = () => video.play?.().catch(() => {}); // a pause that comes before the first frame is no error
  const pause = () => item.matches(":hover, :focus-within") || video.pause?.();
  item.addEventListener("pointerenter", play);
  item.addEventListener("focusin", () => { active = [...$("grid").children].indexOf(item); rove(); play(); });
  item.addEventListener("pointerleave", pause);
  item.addEventListener("focusout", () => setTimeout(pause));
  return item;
}

function toggleMark(clip) {
  if (!marked.delete(clip.clip)) marked.add(clip.clip);
  renderCard(clip.clip);
  sayNext();
}

/** Draw a shown card again; it stays until the next choice, even if it no longer matches. */
function renderCard(path) {
  const at = pageClips().findIndex((clip) => clip.clip === path);
  if (at < 0) return;
  const old = $("grid").children[at];
  const focused = old.contains(document.activeElement) && document.activeElement.className;
  old.replaceWith(card(shown[choice.page * PAGE + at]));
  rove();
  if (focused) $("grid").children[at].querySelector(`.${focused}`).focus();
}

function renderCounts() {
  for (const [view, [, test]] of Object.entries(VIEWS)) $(`count-${view}`).textContent = number(CLIPS.filter(test).length);
  const all = new Set();
  const levels = new Map();
  for (const clip of CLIPS) if (fits(clip, all)) levels.set(clip.motion_level, (levels.get(clip.motion_level) ?? 0) + 1);
  for (const level of [1, 2, 3, 4, 5]) $(`count-level-${level}`).textContent = number(levels.get(level) ?? 0);
  const { lines, unfinished } = corrections();
  const outs = lines.filter((line) => line.drop === true).length, backs = lines.filter((line) => line.drop === false).length;
  const scenes = lines.filter((line) => "film" in line).length, edited = lines.length - outs - backs - scenes;
  const parts = [scenes && count(scenes, "change of scene", "changes of scene"), edited && `${number(edited)} changed`, outs && `${number(outs)} to drop`,
    backs && `${number(backs)} to bring back`, unfinished && `${number(unfinished)} unfinished`];
  $("changes").textContent = parts.filter(Boolean).join(" \u00b7 ");
  $("undo").disabled = !past.length;
  $("export").disabled = !lines.length;
}

// --- segments that were dropped ---------------------------------------------------------------------------------------

const reasonOf = (row) => row[3].split(" of ")[0];

function droppedRows() {
  return DATA.dropped.filter((row) => (!choice.reason || reasonOf(row) === choice.reason)
    && (!choice.film || row[0] === choice.film) && `${row[0]} ${row[3]}`.toLowerCase().includes(choice.text.toLowerCase()));
}

function droppedTable() {
  const counts = new Map();
  for (const row of DATA.dropped) counts.set(reasonOf(row), (counts.get(reasonOf(row)) ?? 0) + 1);
  const reasons = [...counts].sort((one, other) => other[1] - one[1]).map(([reason, many]) =>
    el("button", { class: "reason", "aria-pressed": String(choice.reason === reason), onclick: () => {
      choice.reason = choice.reason === reason ? "" : reason;
      turnTo(0);
    } }, el("b", {}, number(many)), reason));
  const rows = droppedRows().slice(choice.page * ROWS, (choice.page + 1) * ROWS).map((row) => {
    const [name, start, end, reason, path] = row;
    const film = FILMS.get(name), strip = film?.strip;
    const middle = strip && picture(film, el("span", { class: "picture" }), Math.floor((start + end) / 2 / strip.step));
    return el("tr", {}, el("td", {}, middle, name), el("td", {}, `${clock(start)} \u2013 ${clock(end)}`), el("td", {}, reason),
      el("td", {}, path && bringBack(path)));
  });
  const head = ["Film", "Time", "Reason", ""].map((word) => el("th", { scope: "col" }, word || el("span", { class: "unseen" }, "Bring back")));
  return [el("div", { class: "reasons", role: "group", "aria-label": "Reasons" }, ...reasons),
    el("table", {}, el("thead", {}, el("tr", {}, ...head)), el("tbody", {}, ...rows))];
}

function bringBack(path) {
  const on = changes.get(path)?.drop === false;
  return el("button", { class: "second", "aria-pressed": String(on), "data-path": path,
    onclick: () => commit(path, on ? {} : { drop: false }) }, on ? "Will come back" : "Bring back");
}
