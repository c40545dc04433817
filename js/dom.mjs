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
  const face = el("i", { class: `pi pi-${icon}`, "aria-hidden": "true" });
  return el(
    "button",
    { type: "button", class: "ag-icon", "aria-label": words, title: words, on: { click: act }, ...attributes },
    face,
  );
}

/** A button with an icon and its words. */
export function wordButton(icon, words, attributes) {
  return el(
    "button",
    { type: "button", ...attributes },
    el("i", { class: `pi pi-${icon}`, "aria-hidden": "true" }),
    el("span", { text: words }),
  );
}

function dress(element, { text, on, vars, ...attributes }, children) {
  if (text !== undefined) element.textContent = text;
  for (const [event, listener] of Object.entries(on ?? {})) element.addEventListener(event, listener);
  for (const [name, value] of Object.entries(vars ?? {})) element.style.setProperty(name, value);
  set(element, attributes);
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}
