// The entry point, and the only file that ComfyUI imports itself. It registers the nodes' display and the Play tab.

import { api } from "../../scripts/api.js";
import { app } from "../../scripts/app.js";
import { Autoplay } from "./autoplay.mjs";
import { openAsGraph } from "./open_graph.mjs";
import { addColours } from "./link_colours.mjs";
import { dressNode, showTurn } from "./node_card.mjs";
import { createPlayTab } from "./play_tab.mjs";
import { createServer, listen } from "./server.mjs";
import { PlaySession } from "./session.mjs";
import { addStyle } from "./style.mjs";
import { translator } from "./translations.mjs";
import { createWeights } from "./weights.mjs";
import { WeightsJob } from "./weights_job.mjs";

const CATEGORY = "AnimeGamer";
const ours = new Set(); // ids of the pack's nodes

let weights = null; // the dialog, created at its first use
let played = null; // the session of the Play tab

async function getWeights(world) {
  if (!weights) {
    const job = new WeightsJob(createServer(api), () => weights.show());
    weights = createWeights(job, words(), async () => {
      await app.refreshComboInNodes?.();
      if (!played?.story) await played?.close(); // its list of worlds says which are installed
    });
    listen(api, job);
  }
  await weights.open(world);
}

const words = () => translator(app.extensionManager.setting.get("Comfy.Locale"));

app.registerExtension({
  name: "animegamer.nodes",
  beforeRegisterNodeDef(nodeType, nodeData) {
    if (nodeData.category?.split("/")[0] === CATEGORY) ours.add(nodeData.name);
  },
  nodeCreated(node) {
    if (!ours.has(node.comfyClass)) return;
    dressNode(node, words(), app);
    node.animegamerWeights = getWeights;
  },
  setup() {
    addStyle();
    for (const table of [app.canvas.default_connection_color_byType, app.canvas.constructor.link_type_colors])
      if (table) addColours(table);
    api.addEventListener("animegamer.turn", ({ detail }) => showTurn(app.rootGraph ?? app.graph, detail));
  },
});

app.registerExtension({
  name: "animegamer.play",
  setup() {
    const say = words();
    let tab = null;
    const server = createServer(api);
    const session = new PlaySession(server, localStorage, (now, event) => {
      autoplay.react(event);
      tab?.show(now, event);
    });
    const autoplay = new Autoplay(session);
    const page = {
      address: (path) => api.apiURL(path),
      post: server.postJson,
      openAsGraph: (now) => openAsGraph(app, now, tab.element.getBoundingClientRect().right),
      getWeights,
      autoplay,
    };
    played = session;
    listen(api, session);
    api.addEventListener("b_preview", ({ detail }) => tab?.preview(detail));
    app.extensionManager.registerSidebarTab({
      id: "animegamer.play",
      icon: "pi pi-play-circle",
      title: say("play"),
      tooltip: say("playTab"),
      type: "custom",
      render: (place) => {
        tab = createPlayTab(session, say, page);
        place.replaceChildren(tab.element);
        place.style.height = "100%";
        session.start();
      },
      destroy: () => {
        tab?.destroy();
        tab = null;
      },
    });
  },
});
