// What the world of the graph knows, as a list on Compose Game Instruction: its words are clicked into the node's fields.

import { el } from "./dom.mjs";
import { FIELDS } from "./instruction.mjs";
import { createServer } from "./server.mjs";
import { createWordList } from "./word_list.mjs";

const [CLOSED, OPEN] = [46, 300]; // px

/** Add the list to a new node. It is closed, and the server is asked when it opens. */
export function addWords(node, say, app, fit) {
  const field = (name) => node.widgets.find((widget) => widget.name === name);
  const list = createWordList(say, {
    values: () => Object.fromEntries(FIELDS.map((name) => [name, field(name).value])),
    put(name, value) {
      field(name).value = value;
      field(name).callback?.(value);
      node.setDirtyCanvas(true, true);
      list.show(known);
    },
  });
  const element = el("div", { class: "ag ag-play ag-in-node ag-node-words" }, list.element);
  let rows = CLOSED; // known to the graph only when the node is fitted: it would grow by itself before, and stay so
  const height = () => rows;
  const how = { serialize: false, hideOnZoom: false, getMinHeight: height, getMaxHeight: height };
  let known = {};
  list.element.addEventListener("toggle", async () => {
    rows = list.element.open ? OPEN : CLOSED;
    fit();
    if (!list.element.open) return;
    const loader = (app.rootGraph ?? app.graph).nodes.find(({ comfyClass }) => comfyClass === "LoadAnimeGamer");
    const world = loader?.widgets.find(({ name }) => name === "world").value ?? "toybox";
    known = await createServer(app.api).getJson(`/animegamer/words?world=${encodeURIComponent(world)}`);
    list.show(known);
  });
  Object.assign(node.addDOMWidget("animegamer_words", "animegamer_words", element, how), { serialize: false, label: say("knownWords") });
}
