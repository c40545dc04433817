// A story of the Play tab as a graph on a new canvas.

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
    [480, 1170], // room for the instructions, the card and the clip
  ],
  SaveVideo: [
    [920, 0],
    [480, 430],
  ],
};

const SIZE = [1400, 1170];
const EDGE = 60;
const TOP = 150; // px below the top of the canvas, where newer pages have their buttons

/** Open the story up to the turn that we stand at, right of `left` px; the canvas in use stays as it is, in its own tab. */
export async function handOver(app, session, left) {
  const { world, story, here, line } = session;
  await app.loadApiJson(graphPrompt({ world, story, at: here, line }), `${story}.json`);
  for (const node of app.graph.nodes) {
    const [place, [width, height]] = PLACES[node.comfyClass];
    node.pos = [...place];
    node.setSize([Math.max(width, node.size[0]), Math.max(height, node.computeSize()[1])]);
    node.title = node.constructor.title;
    if (here.turn) node.animegamerShow?.({ animegamer_state: [itemOfPath(pathTo(here))] });
  }
  await new Promise((done) => setTimeout(done, 150)); // the page restores the place of the canvas itself first
  showAll(app.canvas, left);
}

function showAll(canvas, left) {
  const place = canvas.canvas.getBoundingClientRect();
  const scale = Math.min(1, (place.right - left - 2 * EDGE) / SIZE[0], (place.height - TOP - EDGE) / SIZE[1]);
  canvas.ds.scale = scale;
  canvas.ds.offset = [(left - place.left + EDGE) / scale, TOP / scale];
  canvas.setDirty(true, true);
}
