"use strict";
// The page of clips: which games and turns it shows, in which order, and playing their clips.

const DATA = JSON.parse(document.getElementById("report").textContent);
const GAUGES = { social: "Social", entertainment: "Fun", stamina: "Stamina" };
const PAGE = 20; // games that are drawn at a time
const STILL = matchMedia("(prefers-reduced-motion: reduce)");
const ONLY = {
  "": () => true,
  motion: (turn) => turn.measured !== null && turn.measured !== turn.asked,
  scope: (turn) => turn.predicted !== null && turn.predicted !== turn.asked,
  state: (turn) => turn.gauges.some(([, asked, predicted]) => predicted !== null && predicted !== asked),
};
const LIKENESS = [
  ["character", "clip_i", "dreamsim"], ["turn before", "clip_i_across", "dreamsim_across"],
  ["true shot", "clip_i_true", "dreamsim_true"], ["words", "clip_t", ""],
];
const ORDERS = [
  { key: "", name: "their place in the benchmark" },
  ...DATA.scores.map((score) => ({ ...score, name: `worst ${score.name}` })),
  { key: "motion", name: "motion levels missed", higher: false },
  { key: "state", name: "states wrong", higher: false },
  { key: "seconds", name: "slowest turn", higher: false },
];
let many = PAGE;

const order = () => ORDERS.find((one) => one.key === $("order").value) ?? ORDERS[0];

/** A turn's value under an order; null if it has none. */
function valueOf(turn, key) {
  if (key === "seconds") return turn.seconds;
  if (key === "motion" || key === "state") return Number(ONLY[key](turn));
  return key ? turn.scores[key] : null;
}

/** The worst value of a game's turns under an order; for the counts (motion, state), their sum. null without values. */
function worstOf(game, { key, higher }) {
  const values = game.turns.map((turn) => valueOf(turn, key)).filter((value) => value !== null);
  if (!values.length) return null;
  if (key === "motion" || key === "state") return values.reduce((sum, value) => sum + value, 0);
  return higher ? Math.min(...values) : Math.max(...values);
}

function sorted(games) {
  const by = order();
  if (!by.key) return games;
  const rank = (game) => {
    const worst = worstOf(game, by);
    return worst === null ? Infinity : by.higher ? worst : -worst;
  };
  return [...games].sort((one, other) => rank(one) - rank(other));
}

const haystack = (game, turn) => [game.name, turn.who, turn.motion, turn.where].join(" ").toLowerCase();

/** The games that have turns to show, each with those turns. */
function chosen() {
  const words = $("search").value.toLowerCase().split(/\s+/), only = ONLY[$("only").value] ?? ONLY[""];
  const fits = (game, turn) => only(turn) && words.every((word) => haystack(game, turn).includes(word));
  const games = DATA.games.map((game) => ({ game, turns: game.turns.filter((turn) => fits(game, turn)) }));
  const kept = new Map(games.filter(({ turns }) => turns.length).map((entry) => [entry.game, entry]));
  return sorted([...kept.keys()]).map((game) => kept.get(game));
}

const watcher = new IntersectionObserver((entries) => {
  for (const { isIntersecting, target } of entries) {
    if (isIntersecting) {
      target.src = target.dataset.src;
      watcher.unobserve(target);
    }
  }
}, { rootMargin: "400px" });

function film(turn) {
  const gone = (node) => node.replaceWith(el("span", { class: "no-film" }, "This clip cannot be shown here."));
  if (!turn.clip.endsWith(".mp4")) return el("span", { class: "no-film" }, "A browser cannot show this kind of clip.");
  const video = el("video", { "data-src": `${turn.clip}#t=0.001`, loop: true, playsinline: true, preload: "metadata",
    disablepictureinpicture: true, tabindex: -1 });
  video.muted = true;
  video.addEventListener("error", () => gone(video));
  watcher.observe(video);
  return video;
}

function level(name, value, asked) {
  const look = value === null || asked === null ? null : value === asked ? "ok" : "off";
  const words = { ok: " as asked", off: " not as asked" }[look] ?? "";
  return el("div", { class: look }, el("dt", {}, name),
    el("dd", {}, value === null ? "\u2013" : value === 0 ? "unread" : String(value), el("span", { class: "unseen" }, words)));
}

function gauge([name, asked, predicted]) {
  if (predicted === null) return el("li", {}, `${GAUGES[name]} asked ${signed(asked)}`);
  const right = predicted === asked;
  return el("li", {}, `${GAUGES[name]} `, el("b", { class: right ? "ok" : "off" }, signed(predicted)),
    right ? null : ` asked ${signed(asked)}`);
}

/** How alike a shot is to what it should show: a row each, by both scoring models. */
function likeness(turn) {
  const cell = (key) => {
    const value = key ? turn.scores[key] ?? null : null;
    return el("td", { class: key && key === order().key ? "chosen" : null }, value === null ? "\u2013" : value.toFixed(3));
  };
  const rows = LIKENESS.filter(([, ...keys]) => keys.some((key) => (turn.scores[key] ?? null) !== null))
    .map(([name, ...keys]) => el("tr", {}, el("th", { scope: "row" }, name), ...keys.map(cell)));
  return el("table", { class: "likeness" }, el("thead", {}, el("tr", {}, el("td", {}),
    ...["CLIP", "DreamSim"].map((name) => el("th", { scope: "col" }, name, el("small", {}, DATA.towers))))),
  el("tbody", {}, ...rows));
}

function card(turn, worst) {
  const by = order();
  const screen = film(turn);
  const play = () => { if (!STILL.matches) screen.play?.().catch(() => {}); };
  const button = el("button", { class: "screen", type: "button", "aria-label": `Turn ${turn.number}: play or stop`,
    onclick: () => (screen.paused ? screen.play?.().catch(() => {}) : screen.pause?.()) }, screen,
  el("span", { class: "badge", "aria-hidden": "true" }, String(turn.number)));
  const item = el("li", { class: worst ? "turn worst" : "turn" }, button,
    el("p", { class: "words" }, el("span", { class: "who" }, turn.who), el("span", { class: "what" }, turn.motion),
      el("span", { class: "where" }, turn.where)),
    el("dl", { class: "levels" }, level("asked", turn.asked, null), level("predicted", turn.predicted, turn.asked),
      level("measured", turn.measured, turn.asked)),
    el("ul", { class: "gauges", "aria-label": "Changes of the character" }, ...turn.gauges.map(gauge)),
    likeness(turn),
    el("p", { class: "measured" }, el("span", {}, `${turn.value.toFixed(2)} px a frame`),
      el("span", { class: by.key === "seconds" ? "chosen" : null }, `${turn.seconds.toFixed(2)} s`)));
  item.addEventListener("pointerenter", play);
  item.addEventListener("pointerleave", () => screen.pause?.());
  return item;
}

function row({ game, turns }) {
  const by = order();
  const worst = worstOf(game, by);
  const single = by.key && !["motion", "state"].includes(by.key);
  const missed = game.turns.filter(ONLY.motion).length, wrong = game.turns.filter(ONLY.state).length;
  const facts = [game.character, count(game.turns.length, "turn")];
  if (game.turns.some((turn) => turn.measured !== null)) facts.push(`${count(missed, "motion level")} missed`);
  if (game.turns.some((turn) => turn.predicted !== null)) facts.push(`${count(wrong, "state")} wrong`);
  const name = `game-${game.name}`;
  return el("section", { class: "game", "aria-labelledby": name },
    el("div", { class: "game-top" }, el("h2", { id: name }, game.name), el("p", {}, facts.join(" \u00b7 "))),
    el("ol", { class: "turns", tabindex: 0, "aria-labelledby": name },
      ...turns.map((turn) => card(turn, single && worst !== null && valueOf(turn, by.key) === worst))));
}

function render() {
  const entries = chosen();
  watcher.disconnect();
  $("games").replaceChildren(...entries.slice(0, many).map(row));
  $("more").hidden = entries.length <= many;
  $("empty").hidden = entries.length > 0;
  const turns = entries.reduce((sum, entry) => sum + entry.turns.length, 0);
  $("counted").textContent = `${count(turns, "turn")} of ${count(entries.length, "game")}`;
}

function setUp() {
  document.title = DATA.heading;
  $("heading").textContent = DATA.heading;
  $("order").append(...ORDERS.map(({ key, name }) => el("option", { value: key }, name)));
  $("rows").append(...DATA.rows.map(([name, ...cells]) => el("tr", {}, el("th", { scope: "row" }, name),
    ...cells.map((cell) => el("td", {}, cell)))));
  $("remarks").append(...DATA.remarks.map((remark) => el("li", {}, remark)));
}

// The choice is stored in the address, so that a reload or a bookmark shows the same turns.
function rememberChoice() {
  const parts = { search: $("search").value.trim(), order: $("order").value, only: $("only").value };
  history.replaceState(null, "", `#${new URLSearchParams(Object.entries(parts).filter(([, value]) => value !== ""))}`);
}

function recallChoice() {
  const kept = new URLSearchParams(location.hash.slice(1));
  $("search").value = kept.get("search") ?? "";
  $("order").value = ORDERS.some((one) => one.key === kept.get("order")) ? kept.get("order") : "";
  $("only").value = kept.get("only") in ONLY ? kept.get("only") : "";
}

function choose() {
  many = PAGE;
  rememberChoice();
  render();
}

setUp();
recallChoice();
render();
$("choice").addEventListener("submit", (event) => event.preventDefault());
$("choice").addEventListener("input", choose);
$("reset").addEventListener("click", () => {
  for (const name of ["search", "order", "only"]) $(name).value = "";
  choose();
});
$("more").addEventListener("click", () => {
  many += PAGE;
  render();
});
$("theme").addEventListener("click", () => {
  const names = ["", "light", "dark"], at = names.indexOf(document.documentElement.style.colorScheme);
  document.documentElement.style.colorScheme = names[(at + 1) % names.length];
  $("theme").textContent = `Colours: ${["system", "light", "dark"][(at + 1) % names.length]}`;
});
addEventListener("hashchange", () => {
  recallChoice();
  render();
});
addEventListener("keydown", (event) => {
  if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input, select")) return;
  event.preventDefault();
  $("search").focus();
});
