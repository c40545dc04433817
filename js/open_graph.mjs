// Opens a story of the Play tab as a graph on a new canvas.

import { graphPrompt } from "./prompt.mjs";
import { itemOfPath } from "./state.mjs";
import { pathTo } from "./tree.mjs";

const PLACES = {
  LoadAnimeGamer: [
    [0, 0],
    [320, 260],
  ],
  PlayGameStory: [
    [380, 0],
    [480, 1170], // space for the instructions, the card and the clip
  ],
  SaveVideo: [
    [920, 0],
    [480, 430],
  ],
};

const SIZE = [1400, 1170];
const EDGE = 60;
const TOP = 150; // px at the top of the canvas, for the buttons of newer pages

/** Open the story up to the current turn, to the right of `left` px. The canvas in use stays open in its own tab. */
export async function openAsGraph(app, session, left) {
  const { world, story, here, branch } = session;
  await app.loadApiJson(graphPrompt({ world, story, at: here, branch }), `${story}.json`);
  for (const node of app.graph.nodes) {
    const [place, [width, height]] = PLACES[node.comfyClass];
    node.pos = [...place];
    node.setSize([Math.max(width, node.size[0]), Math.max(height, node.computeSize()[1])]);
    node.title = node.constructor.title;
    if (here.turn) node.animegamerShow?.({ animegamer_state: [itemOfPath(pathTo(here))] });
  }
  await new Promise((done) => setTimeout(done, 150)); // the page first restores the canvas position itself
  showAll(app.canvas, left);
}

function showAll(canvas, left) {
  const place = canvas.canvas.getBoundingClientRect();
  const scale = Math.min(1, (place.right - left - 2 * EDGE) / SIZE[0], (place.height - TOP - EDGE) / SIZE[1]);
  canvas.ds.scale = scale;
  canvas.ds.offset = [(left - place.left + EDGE) / scale, TOP / scale];
  canvas.setDirty(true, true);
}
