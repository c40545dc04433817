// The state card inside a node, and the notes on nodes. Both are DOM widgets, so both kinds of canvas show them.

import { el } from "./dom.mjs";
import { addWords } from "./node_words.mjs";
import { createCard } from "./state_card.mjs";
import { savedState } from "./state.mjs";
import { timeWords } from "./training_watch.mjs";

const SHOWS_STATE = ["StateDisplay", "PlayGameStory"];
const STATE_PROPERTY = "animegamer_state"; // in node.properties, which workflows save
const NOTES_PROPERTY = "animegamer_notes";
const CARD_HEIGHT = 302; // with the margin of the canvas
const [LETTER, ROW] = [6.6, 18]; // px, about: width of a letter and height of a row in a note
const WIDTH = 320;
const STORY_HEIGHT = 150; // of the instructions; otherwise the clip below leaves room for two lines only
const PREVIEWS = ["$$canvas-image-preview", "$$comfy_animation_preview"]; // the page's own widgets
const PLAYER = "video-preview"; // the page's player of a clip, which it adds to a node after its run
const NOTE_MS = 15_000; // that a note is shown at the edge of the page
const ALWAYS = { serialize: false, hideOnZoom: false };

/** Add the card and the notes to a new node, and show what its properties contain. `app` is ComfyUI's. */
export function dressNode(node, say, app, tell) {
  keepPlayerOut(node);
  const fit = createFit(node);
  if (node.comfyClass === "LoadAnimeGamer") addButton(node, say("getWeights"), "world", (world) => node.animegamerWeights?.(world));
  if (node.comfyClass === "BuildGameDataset") addButton(node, say("reviewClips"), "dataset", (name) => openReview(app, name));
  if (node.comfyClass === "ComposeGameInstruction") addWords(node, say, app, fit);
  const card = SHOWS_STATE.includes(node.comfyClass) ? addCard(node, say, fit) : null;
  const notes = createNotes(node, fit);
  const story = node.widgets?.find((widget) => widget.name === "instructions");
  if (story?.options) story.options.getMinHeight = () => STORY_HEIGHT;
  const shown = (output, passing = false) => {
    const state = output?.animegamer_state?.at(-1);
    if (state && card) card.show((node.properties[STATE_PROPERTY] = savedState(state)));
    const lines = ["draft", "notes", "readings"].flatMap((kind) => readNotes(output?.[`animegamer_${kind}`]));
    if (lines.length || node.properties[NOTES_PROPERTY]) {
      notes.show(lines);
      node.properties[NOTES_PROPERTY] = passing ? [] : lines;
    }
    return lines;
  };
  const { onExecuted, onConfigure, onDrawBackground } = node;
  let showsClip = false;
  node.onExecuted = function (output) {
    onExecuted?.call(this, output);
    if (output?.images) dropPreviews(node, app);
    showsClip = Boolean(output?.animated?.some(Boolean));
    const lines = shown(output);
    // App mode hides the nodes; and where a dataset waits for words, nothing else says that the graph has stopped.
    const unseen = !app.canvas.canvas.checkVisibility({ visibilityProperty: true }) || node.comfyClass === "BuildGameDataset";
    if (unseen && lines.length) tell("warn", node.title, lines.join(" "), NOTE_MS);
  };
  node.onDrawBackground = function (...given) {
    // A preview that was still loading when the run ended comes now; one of the next run has set `preview` before.
    if (showsClip && node.imgs && !node.preview) removePictures(node);
    return onDrawBackground?.apply(this, given);
  };
  node.onConfigure = function (saved) {
    onConfigure?.call(this, saved);
    // Consent is a person's own: a graph that someone saved or sent does not bring it along.
    const consent = this.comfyClass === "GetAnimeGamerWeights" && this.widgets?.find(({ name }) => name === "accept");
    if (consent) consent.value = false;
    if (card && node.properties[STATE_PROPERTY]) card.show(node.properties[STATE_PROPERTY]);
    const lines = readNotes(node.properties[NOTES_PROPERTY]);
    if (lines.length) notes.show(lines);
  };
  node.animegamerShow = shown;
}

/** Keep the page's player out of prompts: as one more input it would make ComfyUI run an unchanged node again. */
function keepPlayerOut(node) {
  const { addDOMWidget } = node;
  node.addDOMWidget = function (name, ...given) {
    const widget = addDOMWidget.call(this, name, ...given);
    if (name === PLAYER) widget.options.serialize = false;
    return widget;
  };
}

/** Notes as a list of texts, from any value that a server or a workflow contains. */
export function readNotes(value) {
  return (Array.isArray(value) ? value : []).map(String);
}

/** Show that a node runs: without the notes of the run before. graph: the root graph. */
export function showRun(graph, id) {
  showPassing(graph, id, /^/, {});
}

/** Show the turn that a PlayGameStory node has played by now (event `animegamer.turn`). */
export function showTurn(graph, { node, state }) {
  showPassing(graph, node, /^Play/, { animegamer_state: [state] });
}

/** Show the time that a training has left, on its node (event `animegamer.training`); nothing once it has ended. */
export function showTimeLeft(graph, { node, left }, say) {
  const note = left && `${say("trainingPanel")}: ${say("timeLeft", { time: timeWords(left) })}`;
  showPassing(graph, node, /^Train/, { animegamer_notes: note && [note] });
}

/** Show what is not saved: it may pass while away. kind: of its class; another graph may be open, with a node of this id. */
function showPassing(graph, id, kind, results) {
  const node = findNode(graph, String(id).split(":"));
  if (kind.test(node?.comfyClass)) node?.animegamerShow?.(results, true);
}

/** The node of an execution id: `7` in the graph itself, `3:7` in the subgraph of node 3, and so on. */
function findNode(graph, [first, ...rest]) {
  const node = graph?.nodes?.find((candidate) => String(candidate.id) === first); // number in old pages, string in new ones
  return rest.length ? findNode(node?.subgraph, rest) : node;
}

/** Remove the live previews from a node, which the page would otherwise keep showing instead of the result. */
function dropPreviews(node, app) {
  removePictures(node);
  const { workflow, _p: stores } = app.extensionManager; // Nodes 2.0 draws from a store without a public API
  const key = workflow?.nodeToNodeLocatorId?.(node) ?? node.id;
  stores?._s?.get("nodeOutput")?.revokePreviewsByLocatorId?.(key);
  delete app.nodePreviewImages[key];
  node.preview = node.images = undefined;
  app.canvas.setDirty(true, true);
}

/** Remove what the canvas shows of a preview. */
function removePictures(node) {
  for (const name of PREVIEWS) {
    const at = node.widgets.findIndex((widget) => widget.name === name);
    if (at < 0) continue;
    node.widgets[at].onRemove?.();
    node.widgets.splice(at, 1);
  }
  node.imgs = undefined;
}

/** A button about the value of a widget. It comes last and is never saved. */
function addButton(node, label, name, act) {
  const widget = node.widgets?.find((candidate) => candidate.name === name);
  const button = node.addWidget("button", label, null, () => act(widget?.value), { serialize: false });
  button.serialize = false;
}

/** The review page of a dataset, in a tab of its own. */
function openReview(app, name) {
  window.open(app.api.apiURL(`/animegamer/datasets/${encodeURIComponent(name)}/review.html`), "_blank", "noopener");
}

function addCard(node, say, fit) {
  const card = createCard(say, { withUnknown: node.comfyClass === "StateDisplay" }); // PlayGameStory has a note about them
  card.element.classList.add("ag-in-node");
  const height = () => CARD_HEIGHT + card.extraLines() * (ROW + 4);
  const how = { ...ALWAYS, getMinHeight: height, getMaxHeight: height };
  const widget = node.addDOMWidget("animegamer_state", "animegamer_state", card.element, how);
  widget.serialize = false; // in a saved graph too, as `options.serialize` says of prompts
  widen(node);
  const show = (state) => {
    const before = height();
    card.show(state);
    if (height() !== before) fit();
  };
  return { show };
}

/** Makes a node high enough for its parts, and lower again when they shrink; text fields shrink first. */
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
        const how = { ...ALWAYS, getMinHeight: read, getMaxHeight: read };
        node.addDOMWidget("animegamer_notes", "animegamer_notes", list, how).serialize = false;
      }
      list.hidden = !lines.length;
      list.replaceChildren(...lines.map((line) => el("li", { text: line })));
      height = noteHeight(lines, node.size[0]);
      fit();
    },
  };
}

/** Estimated height of notes in a node of this width; the canvas needs it before the page has laid them out. */
function noteHeight(lines, width) {
  const rows = lines.reduce((sum, line) => sum + Math.ceil((line.length * LETTER) / (width - 56)), 0);
  return rows && rows * ROW + 36;
}

function widen(node) {
  const [width, height] = node.computeSize();
  node.setSize([Math.max(node.size[0], width, WIDTH), Math.max(node.size[1], height)]);
}
