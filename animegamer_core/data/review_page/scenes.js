"use strict";
// The films' scenes as strips of pictures, where changes of scene are added and taken away.

const FILMS = new Map(DATA.films.map((film) => [film.name, film]));
const SCENE_ROWS = DATA.films.flatMap((film) => film.scenes.map(([start, end, begins], at) => ({ film, at, start, end, begins })));
const BEGINS = { start: "the film begins", cut: "cut", fade: "fade or dissolve" };

function sceneRows() {
  return SCENE_ROWS.filter((row) => (!choice.film || row.film.name === choice.film)
    && row.film.name.toLowerCase().includes(choice.text.toLowerCase()));
}

/** The correction that another scene begins after the picture of this number, as [key, line]. */
function added(film, number) {
  const line = { film: film.name, scene_change: [number * film.strip.step, (number + 1) * film.strip.step] };
  return [`scene ${JSON.stringify(line)}`, line];
}

/** The correction that a scene goes on from the one before, as [key, line]. */
function removed(row) {
  const line = { film: row.film.name, no_scene_change: row.start };
  return [`scene ${JSON.stringify(line)}`, line];
}

/** Whether a correction still changes the film as the page shows it. */
function isOpenSceneChange({ film, scene_change: span, no_scene_change: second }) {
  const scenes = FILMS.get(film)?.scenes ?? [];
  return span ? scenes.length > 0 && !scenes.some(([start]) => span[0] < start && start <= span[1]) : scenes.some(([start]) => start === second);
}

function sceneStrips() {
  const rows = sceneRows().slice(choice.page * SCENES, (choice.page + 1) * SCENES);
  const use = SERVED ? "Save this; the next Run then cuts the film by it" : "Export and apply this; the next build of the film then uses it";
  const help = `Choose a picture to start another scene after it. ${use}. New clips take the words of those that they overlap most.`;
  return [el("p", { class: "faint" }, help), el("ol", { role: "list", "aria-label": "Scenes" }, ...rows.map(sceneRow))];
}

function sceneRow(row) {
  const head = el("div", { class: "scene-head" }, el("b", {}, `${clock(row.start)} \u2013 ${clock(row.end)}`),
    el("span", { class: "faint" }, `${row.film.name} \u00b7 ${BEGINS[row.begins] ?? row.begins}`));
  if (row.at > 0) head.append(joinButton(row));
  const strip = row.film.strip ? el("div", { class: "strip", role: "group", "aria-label": `Pictures from ${clock(row.start)}` }, ...pictures(row))
    : el("p", { class: "faint" }, "No pictures: an earlier version cut this film.");
  strip.addEventListener("keydown", alongStrip);
  return el("li", { class: "scene" }, head, strip);
}

function joinButton(row) {
  const [key, line] = removed(row), on = changes.has(key);
  return el("button", { class: "second", "aria-pressed": String(on), "data-key": key, onclick: () => commit(key, on ? {} : line) },
    on ? "Will join the scene before" : "No scene change");
}

/** The pictures of a scene; all but the last are buttons, since a scene can begin after them. */
function pictures({ film, start, end }) {
  const { step } = film.strip, first = Math.ceil(start / step - 1e-6), last = Math.ceil(end / step - 1e-6) - 1;
  return Array.from({ length: Math.max(0, last - first + 1) }, (_, at) => {
    const number = first + at;
    if (number === last) return picture(film, el("span", { class: "picture" }), number);
    const [key, line] = added(film, number);
    const label = `Another scene between ${line.scene_change.join(" and ")} s`;
    return picture(film, el("button", { class: "picture", "aria-pressed": String(changes.has(key)), "aria-label": label, title: label,
      tabindex: at ? -1 : 0, "data-key": key, onclick: () => commit(key, changes.has(key) ? {} : line) }), number);
  });
}

/** Show a picture of the film's sheets in a node. */
function picture(film, node, number) {
  const { columns, rows, width, height } = film.strip, place = number % (columns * rows);
  const sheet = address(`films/${film.name}/${String(Math.floor(number / (columns * rows))).padStart(4, "0")}.jpg`);
  Object.assign(node.style, { width: `${width}px`, height: `${height}px`, backgroundImage: `url("${sheet}")`,
    backgroundPosition: `-${(place % columns) * width}px -${Math.floor(place / columns) * height}px` });
  return node;
}

/** Arrow keys go from picture to picture; Tab leaves the strip. */
function alongStrip(event) {
  const buttons = [...event.currentTarget.querySelectorAll("button")], at = buttons.indexOf(event.target);
  const to = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: buttons.length - 1 }[event.key];
  if (to === undefined || at < 0) return;
  event.preventDefault();
  event.stopPropagation();
  const next = buttons[Math.min(Math.max(0, to), buttons.length - 1)];
  buttons.forEach((button) => { button.tabIndex = button === next ? 0 : -1; });
  next.focus();
}

/** Show a change of the scenes where it stands. */
function renderSceneChange(key) {
  const node = document.querySelector(`#scenes [data-key="${CSS.escape(key)}"]`);
  if (!node) return;
  if (node.classList.contains("picture")) node.setAttribute("aria-pressed", String(changes.has(key)));
  else {
    const row = SCENE_ROWS.find((one) => removed(one)[0] === key), button = joinButton(row), focused = node === document.activeElement;
    node.replaceWith(button);
    if (focused) button.focus();
  }
}
