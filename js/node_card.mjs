// The card inside a node, and notes on any node of the pack. It is DOM, so it shows in both kinds of canvas.

import { el } from "./dom.mjs";
import { createCard } from "./gauges.mjs";
import { keptState } from "./state.mjs";

const SHOWS_STATE = ["StateDisplay", "PlayGameStory"];
const STATE_KEPT = "animegamer_state"; // node.properties that survive a reload
const NOTES_KEPT = "animegamer_notes";
const CARD_HEIGHT = 302; // with the margin that the canvas keeps
const [LETTER, ROW] = [6.6, 18]; // a letter of a note is about so wide, a row of them so high
const WIDTH = 320;
const STORY_HEIGHT = 150; // of a story's lines, of which a shot's picture below would leave two to be seen
const PREVIEWS = ["$$canvas-image-preview", "$$comfy_animation_preview"]; // the page's own widgets
const ALWAYS = { serialize: false, hideOnZoom: false };

/** Give a new node of the pack its card; what its properties hold is shown at once. `app`: the page's. */
export function dressNode(node, say, app) {
  const fit = createFit(node);
  const card = SHOWS_STATE.includes(node.comfyClass) ? addCard(node, say, fit) : null;
  const notes = createNotes(node, fit);
  const story = node.widgets?.find((widget) => widget.name === "instructions");
  if (story?.options) story.options.getMinHeight = () => STORY_HEIGHT;
  const shown = (output) => {
    const state = output?.animegamer_state?.at(-1);
    if (state && card) card.show((node.properties[STATE_KEPT] = keptState(state)));
    const lines = readNotes(output?.animegamer_notes);
    if (lines.length || node.properties[NOTES_KEPT]) notes.show((node.properties[NOTES_KEPT] = lines));
  };
  const { onExecuted, onConfigure } = node;
  node.onExecuted = function (output) {
    onExecuted?.call(this, output);
    if (output?.images) dropPreviews(node, app);
    shown(output);
  };
  node.onConfigure = function (saved) {
    onConfigure?.call(this, saved);
    if (card && node.properties[STATE_KEPT]) card.show(node.properties[STATE_KEPT]);
    const lines = readNotes(node.properties[NOTES_KEPT]);
    if (lines.length) notes.show(lines);
  };
  node.animegamerShow = shown;
}

/** The notes of whatever a server or somebody's workflow holds. */
export function readNotes(value) {
  return (Array.isArray(value) ? value : []).map(String);
}

/** A turn that PlayGameStory has just played, while it goes on (event `animegamer.turn`). */
export function showTurn(nodes, { node: id, state }) {
  const node = nodes.find((candidate) => String(candidate.id) === String(id)); // numbers in old pages, strings in new ones
  node?.animegamerShow?.({ animegamer_state: [state] });
}

/** Take live pictures off a node: the page would go on showing them in place of what the node made, or below it. */
function dropPreviews(node, app) {
  for (const name of PREVIEWS) {
    const at = node.widgets.findIndex((widget) => widget.name === name);
    if (at < 0) continue;
    node.widgets[at].onRemove?.();
    node.widgets.splice(at, 1);
  }
  const { workflow, _p: stores } = app.extensionManager; // Nodes 2.0 draws from a store that has no public door
  const key = workflow?.nodeToNodeLocatorId?.(node) ?? node.id;
  stores?._s?.get("nodeOutput")?.revokePreviewsByLocatorId?.(key);
  delete app.nodePreviewImages[key];
  node.preview = node.imgs = node.images = undefined;
  app.canvas.setDirty(true, true);
}

function addCard(node, say, fit) {
  const card = createCard(say, { withUnknown: node.comfyClass === "StateDisplay" }); // the other one's notes tell them
  card.element.classList.add("ag-in-node");
  const height = () => CARD_HEIGHT + (card.tellsMore() ? ROW + 4 : 0);
  node.addDOMWidget("animegamer_state", "animegamer_state", card.element, {
    ...ALWAYS,
    getMinHeight: height,
    getMaxHeight: height,
  });
  widen(node);
  const show = (state) => {
    const before = height();
    card.show(state);
    if (height() !== before) fit();
  };
  return { show };
}

/** Gives a node the height that its parts need, and takes back what it gave; a text field gives its room away first. */
function createFit(node) {
  let grown = 0;
  return () => {
    const before = node.size[1] - grown;
    const needed = Math.max(before, node.computeSize()[1]);
    grown = needed - before;
    node.setSize([node.size[0], needed]);
  };
}

function createNotes(node, fit) {
  let list = null;
  let height = 0;
  const read = () => height;
  return {
    show(lines) {
      if (!list && !lines.length) return;
      if (!list) {
        list = el("ul", { class: "ag ag-notes ag-in-node", role: "status" });
        node.addDOMWidget("animegamer_notes", "animegamer_notes", list, {
          ...ALWAYS,
          getMinHeight: read,
          getMaxHeight: read,
        });
      }
      list.hidden = !lines.length;
      list.replaceChildren(...lines.map((line) => el("li", { text: line })));
      height = noteHeight(lines, node.size[0]);
      fit();
    },
  };
}

/** What notes need in a node of this width: the canvas wants it before the page has laid them out. */
function noteHeight(lines, width) {
  const rows = lines.reduce((sum, line) => sum + Math.ceil((line.length * LETTER) / (width - 56)), 0);
  return rows && rows * ROW + 36;
}

function widen(node) {
  const [width, height] = node.computeSize();
  node.setSize([Math.max(node.size[0], width, WIDTH), Math.max(node.size[1], height)]);
}
