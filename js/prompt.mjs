// The ordinary prompts (API format) that the Play tab sends. Their node ids are words: they never meet a canvas node's.

import { pathTo } from "./tree.mjs";

export const WORLD_NODE = "animegamer-world";
export const TURN_NODE = "animegamer-turn";
const TAKE_STRIDE = 1009; // between the seeds of two takes; a story's turn n is drawn with seed + n - 1
const WINDOW = -1; // where a story does not say: as many past turns as the world was trained with
const LARGEST_SEED = Number.MAX_SAFE_INTEGER;

/**
 * One turn: `instruction` after turn `after` of `line`. `motion` is a scope's name, "predicted" or "custom" (then
 * `motionValue` counts); `steps` 0 is the world's own number. An empty instruction with `exported` writes the story's clip and contact sheet.
 */
export function turnPrompt({ world, ...turn }) {
  return {
    [WORLD_NODE]: { class_type: "LoadAnimeGamer", inputs: worldInputs(world) },
    [TURN_NODE]: { class_type: "PlayGameStory", inputs: { model: [WORLD_NODE, 0], ...gameInputs(turn) } },
  };
}

/**
 * The story up to a turn as a graph: its last turns that were made with the same settings stand in the node as text,
 * those before are read from the story; so running the graph computes nothing anew.
 */
export function graphPrompt({ world, story, at, line }) {
  const { after, seed, turns } = replayable(pathTo(at));
  const instruction = turns.map((turn) => turn.instruction).join("\n");
  const game = gameInputs({ story, instruction, after, line, seed, exported: true, ...settingsOf(turns[0] ?? {}) });
  return {
    1: { class_type: "LoadAnimeGamer", inputs: worldInputs(world) },
    2: { class_type: "PlayGameStory", inputs: { model: ["1", 0], ...game } },
    3: {
      class_type: "SaveVideo",
      inputs: { video: ["2", 4], filename_prefix: `animegamer/${safePrefix(story)}`, format: "auto", codec: "auto" },
    },
  };
}

/** Seeds for further takes of the turn after `after`, none of them drawn before. */
export function takeSeeds(drawnSeeds, after, count, first = 0) {
  const known = new Set(drawnSeeds.map(Number));
  const seeds = [];
  for (let seed = first; seeds.length < count; seed = (seed + TAKE_STRIDE) % LARGEST_SEED) {
    if (!known.has(seed + after)) seeds.push(seed);
  }
  return seeds;
}

/** The path of a file that the server shows. */
export function viewPath({ filename, subfolder = "", type = "output" }) {
  return `/view?${new URLSearchParams({ filename, subfolder, type })}`;
}

/** The choices of a combo input of /object_info, in its old and its new spelling. */
export function comboOptions(spec) {
  const options = Array.isArray(spec?.[0]) ? spec[0] : spec?.[1]?.options;
  return (options ?? []).map(String);
}

/** What went wrong, in one sentence: of a refused prompt, a failed node, or a lost server. */
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

function gameInputs({
  story,
  instruction = "",
  after = 0,
  line = "",
  window = WINDOW,
  seed = 0,
  motion = "predicted",
  motionValue = 5,
  steps = 0,
  guidance = "world",
  exported = false,
}) {
  return {
    instructions: instruction,
    story,
    after,
    line,
    window,
    seed,
    motion,
    motion_value: motionValue,
    steps,
    guidance,
    export: exported,
  };
}

/** How a saved turn was made, as settings of another. */
function settingsOf({ window = WINDOW, steps, guidance, overridden, motion }) {
  return {
    window,
    steps: steps ?? 0,
    guidance: guidance ?? "world",
    ...(overridden ? { motion: "custom", motionValue: motion.value } : {}),
  };
}

function worldInputs(world) {
  return {
    world,
    precision: "auto",
    placement: "auto",
    profile: "world",
    lora_strength: 1,
    lora_file: "none",
    lora_file_strength: 1,
  };
}

function replayable(path) {
  let first = path.length;
  const last = path[first - 1]?.turn;
  while (first > 0 && last && fits(path[first - 1].turn, path[first - 1].number, last, path.length)) first -= 1;
  const turns = path.slice(first).map((at) => at.turn);
  return { after: first, seed: last ? Number(last.seed) - (path.length - 1) : 0, turns };
}

function fits(turn, number, last, length) {
  const sameSeed = Number(turn.seed) - (number - 1) === Number(last.seed) - (length - 1);
  const sameSettings = JSON.stringify(settingsOf(turn)) === JSON.stringify(settingsOf(last));
  return sameSeed && sameSettings && Number(last.seed) >= length - 1;
}

function safePrefix(story) {
  return story.replace(/[%\\/]/g, "-");
}
