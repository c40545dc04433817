// The entry point, and the only file that ComfyUI imports itself. It registers the nodes' display, the Play tab and the
// panel Training.

import { api } from "../../scripts/api.js";
import { app } from "../../scripts/app.js";
import { aboutBadges, tellEnded, tellTrained } from "./about.mjs";
import { Autoplay } from "./autoplay.mjs";
import { createCommands, KEYBINDINGS, OPEN } from "./commands.mjs";
import { openAsGraph } from "./open_graph.mjs";
import { addColours } from "./link_colours.mjs";
import { dressNode, showRun, showTimeLeft, showTurn } from "./node_card.mjs";
import { createPlayTab } from "./play_tab.mjs";
import { createServer, listen } from "./server.mjs";
import { PlaySession } from "./session.mjs";
import { CLIPS, createSettings, MESSAGES, PREVIEW } from "./settings.mjs";
import { createTrainingPanel } from "./training_panel.mjs";
import { TrainingWatch } from "./training_watch.mjs";
import { addStyle } from "./style.mjs";
import { translator } from "./translations.mjs";
import { createWeights } from "./weights.mjs";
import { WeightsJob } from "./weights_job.mjs";

const CATEGORY = "AnimeGamer";
const ours = new Set(); // ids of the pack's nodes

let weights = null; // the dialog, created at its first use

async function getWeights(world) {
  if (!weights) {
    const job = new WeightsJob(createServer(api), () => weights.show());
    weights = createWeights(job, words(), async () => {
      await app.refreshComboInNodes?.();
      if (!session.story) await session.close(); // its list of worlds says which are installed
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
    dressNode(node, words(), app, tell);
    node.animegamerWeights = getWeights;
  },
  setup() {
    addStyle();
    for (const table of [app.canvas.default_connection_color_byType, app.canvas.constructor.link_type_colors])
      if (table) addColours(table);
    const graph = () => app.rootGraph ?? app.graph;
    api.addEventListener("animegamer.turn", ({ detail }) => showTurn(graph(), detail));
    api.addEventListener("animegamer.training", ({ detail }) => showTimeLeft(graph(), detail, words()));
    api.addEventListener("executing", ({ detail }) => detail && showRun(graph(), detail));
  },
});

const manager = () => app.extensionManager;
const setting = (id) => manager().setting.get(id);

/** A short message at the edge of the page, which ComfyUI also reads out. */
function tell(severity, summary, detail, life = severity === "error" ? 12_000 : 6000) {
  manager().toast?.add({ severity, summary, detail, life });
}

let tab = null; // the Play tab while it is open
let whenOpen = () => {};
const server = createServer(api);
const session = new PlaySession(server, localStorage, (now, event) => {
  autoplay.react(event);
  if (tab) tab.show(now, event);
  else if (setting(MESSAGES)) tellEnded(now, event, words(), tell);
});
const autoplay = new Autoplay(session);
const page = {
  address: (path) => api.apiURL(path),
  post: server.postJson,
  openAsGraph: (now) => openAsGraph(app, now, tab.element.getBoundingClientRect().right),
  getWeights,
  autoplay,
  clipsMove: true, // the setting's value; reading the setting itself in `render` would draw the tab anew at each change
  moveClips: (wanted) => manager().setting.set(CLIPS, wanted),
  tell,
  trash: null,
};

/** The Play tab, once it is open and has read its story. */
async function openTab() {
  if (!tab)
    await new Promise((resolve) => {
      whenOpen = resolve;
      manager().command.execute(OPEN);
    });
  await session.start();
  return tab;
}

const badges = []; // ComfyUI reads them when its About page opens

app.registerExtension({
  name: "animegamer.play",
  settings: createSettings(
    (wanted) => {
      page.clipsMove = wanted;
      tab?.moveClips(wanted);
    },
    (takes) => {
      session.takes = takes;
      if (tab) session.notify();
    },
  ),
  commands: createCommands(session, openTab),
  keybindings: KEYBINDINGS,
  aboutPageBadges: badges,
  setup() {
    const say = words();
    listen(api, session);
    api.addEventListener("b_preview", ({ detail }) => setting(PREVIEW) && tab?.preview(detail));
    server.getJson("/animegamer/about").then((about) => badges.push(...aboutBadges(about, page.address)));
    manager().registerSidebarTab({
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
        whenOpen();
      },
      destroy: () => {
        tab?.destroy();
        tab = null;
      },
    });
  },
});

let panel = null; // the panel Training while it is open
const training = new TrainingWatch(
  server.getJson,
  () => panel?.show(),
  (event) => !panel && setting(MESSAGES) && tellTrained(event, words(), tell),
);

app.registerExtension({
  name: "animegamer.training",
  bottomPanelTabs: [
    {
      id: "animegamer.training",
      title: words()("trainingPanel"),
      type: "custom",
      render: (place) => {
        panel = createTrainingPanel(training, words(), page.address);
        place.replaceChildren(panel.element);
        place.style.height = "100%";
        training.open = true;
        training.ask();
      },
      destroy: () => {
        panel = null;
        training.open = false;
      },
    },
  ],
  setup() {
    api.addEventListener("animegamer.training", ({ detail }) => training.heard(detail));
    api.addEventListener("reconnected", () => panel && training.ask());
  },
});
