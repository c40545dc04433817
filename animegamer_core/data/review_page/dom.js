"use strict";
// Helpers of the page; review.py puts this file in front of the others.

const $ = (id) => document.getElementById(id);

/** A new element. Attributes: on... adds a listener, true sets it empty, false and null leave it out. Text stays text. */
function el(tag, properties = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value === true) node.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) node.setAttribute(name, value);
  }
  node.append(...children.filter((child) => child !== null));
  return node;
}

const number = (value) => value.toLocaleString("en");
const count = (value, one, many = `${one}s`) => `${number(value)} ${value === 1 ? one : many}`;
const signed = (value) => (value > 0 ? `+${value}` : value < 0 ? `\u2212${-value}` : "0");

/** Use the browser's storage. Returns null where storage is blocked (a private window) or holds invalid JSON. */
function remembering(work) {
  try {
    return work(localStorage);
  } catch (error) {
    if (!(error instanceof DOMException || error instanceof SyntaxError)) throw error;
    return null;
  }
}

/** Offer text parts as a file to save. */
function download(name, type, ...parts) {
  const address = URL.createObjectURL(new Blob(parts, { type }));
  el("a", { href: address, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}
