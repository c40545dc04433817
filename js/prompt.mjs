// The prompts (API format) that the Play tab sends. Their node ids are words, so they differ from those on a canvas.

import { pathTo } from "./tree.mjs";

export const WORLD_NODE = "animegamer-world";
export const TURN_NODE = "animegamer-turn";
const OPENING_NODE = "animegamer-opening";
const SOUND_NODE = "animegamer-sound";
const TAKE_STRIDE = 1009; // between the seeds of two takes; a story's turn n is drawn with seed + n - 1
const SHOT = { motion: "predicted", motion_value: 5, steps: 0, guidance: "world", seed: -1 };
const WINDOW = -1; // default: as many past turns as the world was trained with
const LARGEST_SEED = Number.MAX_SAFE_INTEGER;

/**
 * One turn: `instruction` after turn `after` of `branch`. `motion` is a motion scope, "predicted" or "custom" (with
 * `motionValue`); `steps` 0 means the world's own number, and `timesteps`, such as "999,500", replace it. An empty
 * instruction with `exported` exports the story, as a film if `film` has inputs of ExportGameStory, and the uploaded file
 * of its sound as `sound`; with `autoplay` that many turns are played as the director proposes them. `opening` is the
 * uploaded {name, subfolder, film, at, text} that a new story begins with.
 */
export function turnPrompt({ world, film, opening, ...turn }) {
  if (film) return filmPrompt(film, turn);
  const begins = opening ? { opening: [OPENING_NODE, 0] } : {};
  return {
    [WORLD_NODE]: { class_type: "LoadAnimeGamer", inputs: worldInputs(world) },
    ...(opening ? openingNodes(opening) : {}),
    [TURN_NODE]: { class_type: "PlayGameStory", inputs: { model: [WORLD_NODE, 0], ...gameInputs(turn), ...begins } },
  };
}

/** The shot that a world draws from an opening alone, as pictures in the temp folder: what it has read in it. */
export function readingPrompt(world, opening) {
  const state = { model: [WORLD_NODE, 0], state: [OPENING_NODE, 0] };
  return {
    ...turnPrompt({ world, opening }),
    [`${OPENING_NODE}-shot`]: { class_type: "DecodeShot", inputs: { ...state, ...SHOT } },
    [TURN_NODE]: { class_type: "PreviewImage", inputs: { images: [`${OPENING_NODE}-shot`, 0] } },
  };
}

/** The nodes that read an opening: a picture, or two seconds of a film. */
function openingNodes({ film, at, text, ...uploaded }) {
  const [file, span] = [`${OPENING_NODE}-file`, `${OPENING_NODE}-span`];
  const path = inputPath(uploaded);
  const encode = (inputs) => ({
    [OPENING_NODE]: { class_type: "EncodeShot", inputs: { model: [WORLD_NODE, 0], motion_text: text, ...inputs } },
  });
  if (!film) return { [file]: { class_type: "LoadImage", inputs: { image: path } }, ...encode({ frames: [file, 0] }) };
  return {
    [file]: { class_type: "LoadVideo", inputs: { file: path } },
    [span]: { class_type: "ReadFilmSpan", inputs: { model: [WORLD_NODE, 0], video: [file, 0], at } },
    ...encode({ frames: [span, 0], clip_fps: [span, 1], frame: [span, 2] }),
  };
}

/**
 * The story up to a turn as a graph. Its last turns with the same settings are in the node as text; the turns before
 * them are read from the story. So running the graph computes nothing again. `whole`: all turns are text, for those who
 * do not have the story.
 */
export function graphPrompt({ world, story, at, branch, whole = false }) {
  const { after, seed, turns } = replayable(pathTo(at), whole);
  const instruction = turns.map((turn) => turn.instruction).join("\n");
  const game = gameInputs({ story, instruction, after, branch, seed, exported: true, ...settingsOf(turns[0] ?? {}) });
  return {
    1: { class_type: "LoadAnimeGamer", inputs: worldInputs(world) },
    2: { class_type: "PlayGameStory", inputs: { model: ["1", 0], ...game } },
    3: {
      class_type: "SaveVideo",
      inputs: { video: ["2", 4], filename_prefix: `animegamer/${safePrefix(story)}`, format: "auto", codec: "auto" },
    },
  };
}

/** Seeds for further takes of the turn after `after` that are not drawn yet. */
export function takeSeeds(drawnSeeds, after, count, first = 0) {
  const known = new Set(drawnSeeds.map(Number));
  const seeds = [];
  for (let seed = first; seeds.length < count; seed = (seed + TAKE_STRIDE) % LARGEST_SEED) {
    if (!known.has(seed + after)) seeds.push(seed);
  }
  return seeds;
}

/** The path of an output file on the server. */
export function viewPath({ filename, subfolder = "", type = "output" }) {
  return `/view?${new URLSearchParams({ filename, subfolder, type })}`;
}

/** An error as one sentence: of a refused prompt, a failed node, or a server that does not answer. */
export function errorSentence(error, otherwise) {
  const refused = error?.response ?? error;
  const ofNodes = Object.values(refused?.node_errors ?? {}).flatMap((entry) => entry?.errors ?? []);
  const found = [
    ...ofNodes.map((entry) => [entry.message, entry.details].filter(Boolean).join(": ")),
    error?.exception_message,
    typeof refused?.error === "string" ? refused.error : refused?.error?.message,
    error?.message,
  ].find((text) => typeof text === "string" && text.trim());
  return found ? found.trim().split("\n")[0] : otherwise;
}

/** The turns of a branch up to `after` as a film, which never replaces that of other turns. */
function filmPrompt({ sound, ...film }, { story, branch, after, showOpening }) {
  const opening = showOpening ? { show_opening: true } : {};
  const inputs = { story, branch, turns: after, name: `film-${branch}-${after}`, subtitles: false, ...film, ...opening };
  if (!sound) return { [TURN_NODE]: { class_type: "ExportGameStory", inputs } };
  return {
    [SOUND_NODE]: { class_type: "LoadAudio", inputs: { audio: inputPath(sound) } },
    [TURN_NODE]: { class_type: "ExportGameStory", inputs: { ...inputs, audio: [SOUND_NODE, 0] } },
  };
}

/** The path of an uploaded file in ComfyUI's input folder. */
function inputPath({ name, subfolder }) {
  return subfolder ? `${subfolder}/${name}` : name;
}

function gameInputs({
  story, instruction = "", after = 0, branch = "", window = WINDOW, seed = 0,
  motion = "predicted", motionValue = 5, steps = 0, timesteps = "", guidance = "world",
  exported = false, showOpening = false, autoplay = 0,
}) {
  return {
    instructions: instruction, story, after, branch, window, seed,
    motion, motion_value: motionValue, steps, guidance, export: exported,
    ...(timesteps ? { timesteps } : {}),
    ...(showOpening ? { show_opening: true } : {}),
    ...(autoplay ? { autoplay } : {}),
  };
}

/** The settings that a saved turn was made with. */
export function settingsOf({ window = WINDOW, steps, timesteps, guidance, overridden, motion }) {
  return {
    window,
    steps: steps ?? 0,
    ...(timesteps ? { timesteps } : {}),
    guidance: guidance ?? "world",
    ...(overridden ? { motion: "custom", motionValue: motion.value } : {}),
  };
}

function worldInputs(world) {
  const lora = { lora_strength: 1, lora_file: "none", lora_file_strength: 1 };
  return { world, precision: "auto", placement: "auto", profile: "world", ...lora };
}

function replayable(path, whole) {
  let first = path.length;
  const last = path[first - 1]?.turn;
  while (first > 0 && last && (whole || fits(path[first - 1].turn, path[first - 1].number, last, path.length))) first -= 1;
  const turns = path.slice(first).map((at) => at.turn);
  return { after: first, seed: last ? Math.max(0, Number(last.seed) - (path.length - 1)) : 0, turns };
}

function fits(turn, number, last, length) {
  const sameSeed = Number(turn.seed) - (number - 1) === Number(last.seed) - (length - 1);
  const sameSettings = JSON.stringify(settingsOf(turn)) === JSON.stringify(settingsOf(last));
  return sameSeed && sameSettings && Number(last.seed) >= length - 1;
}

function safePrefix(story) {
  return story.replace(/[%\\/]/g, "-");
}
