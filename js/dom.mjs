// Elements without markup: text is set only through textContent and attributes, so it is never parsed as HTML.

const SVG = "http://www.w3.org/2000/svg";

/**
 * An element. `attributes` are set as they are, except: `class`; `text` (textContent); `on` ({event: listener});
 * `vars` (CSS custom properties). true sets an empty attribute; null and false set none.
 */
export function el(tag, attributes = {}, ...children) {
  return dress(document.createElement(tag), attributes, children);
}

/** The same for SVG. */
export function svg(tag, attributes = {}, ...children) {
  return dress(document.createElementNS(SVG, tag), attributes, children);
}

/** Set attributes, or remove them (null, false). */
export function set(element, attributes) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) element.removeAttribute(name);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  return element;
}

/** A button with an icon only; the words are its tooltip and its name for screen readers. */
export function iconButton(icon, words, act, attributes = {}) {
  const named = { class: "ag-icon", "aria-label": words, title: words, on: { click: act } };
  return el("button", { type: "button", ...named, ...attributes }, face(icon));
}

/** A button with an icon and its words. */
export function wordButton(icon, words, attributes) {
  return el("button", { type: "button", ...attributes }, face(icon), el("span", { text: words }));
}

/** Inputs under their label. */
export function field(words, ...inputs) {
  return el("label", { class: "ag-field" }, el("span", { text: words }), ...inputs);
}

/** A part of a form that folds; one of them is open at a time. */
export function fold(icon, words, content, on = {}) {
  return el("details", { class: "ag-fold", name: "ag-fold", on }, el("summary", {}, face(icon), words), content);
}

/** Show a text in its element, or hide that. The same text is not set again: it would be read out twice. */
export function showText(element, text) {
  element.hidden = !text;
  if (element.textContent !== text) element.textContent = text;
}

/** What goes on, with a bar: show(text, done); `done` is a part of 1, or null if nobody knows. No text hides it. */
export function createProgress() {
  const words = el("span", { class: "ag-status-words" });
  const fill = el("span", { class: "ag-fill" });
  const bar = el("span", { class: "ag-bar", role: "progressbar", "aria-valuemin": 0, "aria-valuemax": 100 }, fill);
  const element = el("div", { class: "ag-doing", hidden: true }, words, bar);
  function show(text, done) {
    const percent = done === null ? null : Math.round(done * 100);
    element.hidden = !text;
    words.textContent = text;
    set(bar, { "aria-valuenow": percent, "aria-label": text, class: `ag-bar${percent === null ? " ag-unknown" : ""}` });
    fill.style.width = percent === null ? "" : `${percent}%`;
  }
  return { element, show };
}

/** A dialog over the page: open() shows it. It is part of the page while it is open. */
export function createDialog(title, kind, ...children) {
  const on = { keydown: closeOnEscape, close: () => element.remove() };
  const look = { class: `ag ag-play ag-dialog ${kind}`, "aria-label": title, on };
  const element = el("dialog", look, el("h2", { text: title }), ...children);

  /** Newer pages keep Escape for themselves. */
  function closeOnEscape(event) {
    event.stopPropagation();
    if (event.key === "Escape") element.close();
  }

  function open() {
    if (!element.isConnected) document.body.append(element);
    if (!element.open) element.showModal();
  }

  return { element, open };
}

/** An icon, which screen readers do not name. */
function face(icon) {
  return el("i", { class: `pi pi-${icon}`, "aria-hidden": "true" });
}

function dress(element, { text, on, vars, ...attributes }, children) {
  if (text !== undefined) element.textContent = text;
  for (const [event, listener] of Object.entries(on ?? {})) element.addEventListener(event, listener);
  for (const [name, value] of Object.entries(vars ?? {})) element.style.setProperty(name, value);
  set(element, attributes);
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}
