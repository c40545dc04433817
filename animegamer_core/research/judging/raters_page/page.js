"use strict";
// Games side by side, ranks that never tie, kept in the browser and saved as a sheet.

const STUDY = JSON.parse(document.getElementById("study").textContent);
const KEY = `animegamer-raters ${STUDY.sheet}`;
const GAUGES = ["stamina", "social", "entertainment"];
const THEMES = ["system", "light", "dark"];
const ranks = STUDY.games.map(() => Object.fromEntries(STUDY.criteria.map(({ key }) => [key, STUDY.letters.map(() => 0)])));
let at = 0; // the game that is shown
let theme = "system";

// --- what is kept ---------------------------------------------------------------------------------------------------

const keep = () => remembering((memory) => { memory.setItem(KEY, JSON.stringify({ ranks, at, theme })); return true; });

/** Read what an earlier visit left, as far as it can be ranks. */
function recall() {
  const kept = remembering((memory) => JSON.parse(memory.getItem(KEY)));
  for (const [game, rows] of ranks.entries()) {
    for (const { key } of STUDY.criteria) {
      const ranks = kept?.ranks?.[game]?.[key];
      const sound = Array.isArray(ranks) && ranks.length === STUDY.letters.length && ranks.every((rank, place) =>
        Number.isInteger(rank) && rank >= 0 && rank <= ranks.length && (rank === 0 || ranks.indexOf(rank) === place));
      if (sound) rows[key] = ranks;
    }
  }
  if (Number.isInteger(kept?.at) && kept.at in STUDY.games) at = kept.at;
  if (THEMES.includes(kept?.theme)) theme = kept.theme;
}

const isWhole = (row) => row.every((rank) => rank > 0);
const lackingOf = (game) => STUDY.criteria.filter(({ key }) => !isWhole(ranks[game][key]));

/** Give a letter a rank. Whoever had it takes the rank that becomes free, if there was one; the last one needs no choice. */
function rank(key, letter, value) {
  const row = ranks[at][key];
  const other = row.indexOf(value);
  if (other >= 0 && other !== letter) row[other] = row[letter];
  row[letter] = value;
  const open = row.flatMap((one, place) => (one ? [] : [place]));
  if (open.length === 1) row[open[0]] = row.map((_, place) => place + 1).find((one) => !row.includes(one));
  if (!keep()) tell("This browser keeps nothing once the page is closed. Save your ranks before you leave.");
  renderRanks();
  renderDone();
}

// --- what is shown --------------------------------------------------------------------------------------------------

function renderGame() {
  const game = STUDY.games[at];
  $("game").textContent = `${game.name} of ${STUDY.games.length}: a life of ${game.character}`;
  $("turns").replaceChildren(...game.turns.map((turn, number) => el("li", { class: "turn" },
    el("p", { class: "told" }, el("b", {}, `Turn ${number + 1}`), el("span", { class: "who" }, turn.who),
      el("span", {}, turn.what), el("span", { class: "where" }, turn.where)),
    el("div", { class: "shots" }, ...turn.shots.map((shot) => shotOf(shot, turn, number))))));
  $("before").disabled = at === 0;
  $("after").disabled = at === STUDY.games.length - 1;
  renderRanks();
  renderDone();
}

function shotOf(shot, turn, number) {
  const label = `${shot.letter}, turn ${number + 1}: ${turn.who}, ${turn.what}, ${turn.where}`;
  const badge = el("span", { class: "letter", "aria-hidden": "true" }, shot.letter);
  const isVideo = shot.src.endsWith(".mp4");
  const screen = isVideo ? el("button", { type: "button", class: "screen", "aria-label": `${label}; play or pause` }) : el("div", { class: "screen" });
  const lost = () => screen.replaceChildren(el("span", { class: "no-film" }, `${shot.src} is missing beside this page.`), badge);
  const film = isVideo
    ? el("video", { loop: true, muted: true, playsinline: true, preload: "auto", onerror: lost })
    : el("img", { alt: label, onerror: lost });
  if (isVideo) {
    film.muted = true;
    screen.addEventListener("click", () => (film.paused ? start(film) : film.pause()));
    watched.observe(film);
  }
  film.src = shot.src;
  screen.append(film, badge);
  return el("div", { class: "shot" }, screen, gaugesOf(shot.gauges));
}

function gaugesOf(gauges) {
  if (!gauges) return el("p", { class: "no-gauges" }, "tells no gauges");
  return el("dl", { class: "gauges" }, ...GAUGES.flatMap((name) => {
    const fill = el("i");
    fill.style.width = `${gauges[name]}%`;
    fill.style.setProperty("--own", `var(--${name})`);
    return [el("dt", {}, name), el("div", { class: "bar", "aria-hidden": "true" }, fill), el("dd", {}, String(gauges[name]))];
  }));
}

/** The criteria with a row of ranks for every letter. */
function renderRanks() {
  const focused = document.activeElement?.dataset?.place;
  $("ranks").replaceChildren(...STUDY.criteria.map(({ key, name, asks }) => el("fieldset", { class: "criterion", "data-key": key },
    el("legend", {}, name), el("p", {}, asks),
    ...STUDY.letters.map((letter, place) => el("div", { class: "line", role: "radiogroup", "aria-label": `${name}: rank of ${letter}` },
      el("b", { "aria-hidden": "true" }, letter), el("div", { class: "choice" }, ...STUDY.letters.map((_, other) => choiceOf(key, place, other + 1))))))));
  if (focused) $("ranks").querySelector(`[data-place="${focused}"]`)?.focus();
}

function choiceOf(key, place, value) {
  const radio = el("input", { type: "radio", name: `${key}-${place}`, value, "data-place": `${key}-${place}-${value}`,
    "aria-label": `${STUDY.letters[place]}: rank ${value}`, onchange: () => rank(key, place, value) });
  radio.checked = ranks[at][key][place] === value;
  return el("label", {}, radio, el("span", {}, String(value)));
}

function renderDone() {
  const all = STUDY.games.length * STUDY.criteria.length;
  const open = STUDY.games.reduce((sum, _, game) => sum + lackingOf(game).length, 0);
  $("done").textContent = open ? `${all - open} of ${all} rankings` : `All ${all} rankings are there`;
  if (!$("games").childElementCount) {
    $("games").append(...STUDY.games.map((game, number) => el("button", { type: "button", onclick: () => go(number) }, game.name)));
  }
  for (const [number, button] of [...$("games").children].entries()) {
    button.setAttribute("aria-current", String(number === at));
    button.classList.toggle("whole", !lackingOf(number).length);
    button.setAttribute("aria-label", `${STUDY.games[number].name}${lackingOf(number).length ? "" : ", ranked"}`);
  }
}

function go(game) {
  at = game;
  tell("");
  keep();
  renderGame();
  scrollTo({ top: 0 });
}

function tell(text) {
  $("notice").textContent = text;
  $("notice").hidden = !text;
}

// Shots run while they are in view, unless the system asks for calm; then each has its own button, and one for all.
const calm = matchMedia("(prefers-reduced-motion: reduce)");
const start = (film) => film.play().catch((error) => { if (!(error instanceof DOMException)) throw error; });
const watched = new IntersectionObserver((entries) => {
  for (const { target, isIntersecting } of entries) {
    if (isIntersecting && !calm.matches) start(target);
    else if (!isIntersecting) target.pause();
  }
});

function together() {
  for (const film of $("turns").querySelectorAll("video")) {
    film.currentTime = 0;
    start(film);
  }
  for (const film of $("turns").querySelectorAll("img")) film.setAttribute("src", film.getAttribute("src"));
}

// --- the sheet ------------------------------------------------------------------------------------------------------

const cellOf = (text) => (/[",;\r\n\t]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);

/** The sheet as sheet.csv has it, filled in. */
function sheet() {
  const filled = ranks.flatMap((game) => STUDY.criteria.map(({ key }) => game[key].map(String)));
  const lines = [STUDY.head, ...STUDY.rows.map((row, number) => [...row, ...filled[number]])];
  return lines.map((line) => `${line.map(cellOf).join(",")}\r\n`).join("");
}

function save() {
  const missing = STUDY.games.map((_, game) => lackingOf(game));
  const first = missing.findIndex((criteria) => criteria.length);
  if (first >= 0) {
    go(first);
    const count = missing.flat().length;
    tell(`${count === 1 ? "One ranking is" : `${count} rankings are`} still missing. The first: ${STUDY.games[first].name}, ${missing[first][0].name}.`);
    const field = $("ranks").querySelector(`[data-key="${missing[first][0].key}"]`);
    field.classList.add("lacking");
    field.scrollIntoView({ block: "center" });
    field.querySelector("input").focus({ preventScroll: true });
    return;
  }
  download(`${STUDY.sheet}.csv`, "text/csv", "\ufeff", sheet());
  tell(`Saved as ${STUDY.sheet}.csv. Please send that file back.`);
}

function showTheme() {
  document.documentElement.style.colorScheme = theme === "system" ? "" : theme;
  $("theme").textContent = { system: "Theme: system", light: "Theme: light", dark: "Theme: dark" }[theme];
}

$("before").addEventListener("click", () => go(at - 1));
$("after").addEventListener("click", () => go(at + 1));
$("together").addEventListener("click", together);
$("export").addEventListener("click", save);
$("theme").addEventListener("click", () => {
  theme = THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length];
  showTheme();
  keep();
});
recall();
showTheme();
renderGame();
