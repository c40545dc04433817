import assert from "node:assert/strict";
import { test } from "node:test";

import { describeHistory, motionBars } from "../../js/history_chart.mjs";
import { composeInstruction, instructionLines, oneLine, readFields } from "../../js/instruction.mjs";
import { addColours } from "../../js/link_colours.mjs";
import { readNotes } from "../../js/node_card.mjs";
import { cornersOf } from "../../js/plot.mjs";
import { errorSentence, graphPrompt, takeSeeds, turnPrompt, viewPath } from "../../js/prompt.mjs";
import { createSettings } from "../../js/settings.mjs";
import { createStorage } from "../../js/storage.mjs";
import { describeState, labelOf, itemOfPath, readState, rememberedWords, savedState } from "../../js/state.mjs";
import { allTurns, buildTree, findTurn, branchThrough, neighbour, pathTo, recalledBy, takesOf, turnsAfter } from "../../js/tree.mjs";
import { TABLES, translator } from "../../js/translations.mjs";

const say = translator("en");

const turn = (state, { seed = 0, shot = `${state}#${seed}`, ...more } = {}) => ({
  instruction: state,
  state,
  shot,
  seed,
  motion: { level: 2, scope: "gentle", value: 2.5 },
  stats: { stamina: 45, social: 50, entertainment: 50 },
  changes: { stamina: -5 },
  ...more,
});
const LINES = [
  { name: "main", turns: [turn("a"), turn("b", { seed: 1 }), turn("c", { seed: 2 })] },
  { name: "branch-2", turns: [turn("a"), turn("b", { seed: 9 })] },
  { name: "branch-3", turns: [turn("a"), turn("b", { seed: 1 }), turn("d", { seed: 2 }), turn("e", { seed: 3 })] },
  { name: "branch-4", turns: [turn("z")] },
];

test("a state is made whole of what came in, and of nothing else", () => {
  const state = readState({
    turn: 3,
    stats: { stamina: 120, social: "40", hunger: null },
    gauges: { hunger: { label: "appetite", colour: "#abc" } },
    changes: { stamina: -5 },
    motion: { scope: "fast", level: 4, value: 10.1 },
    unknown_words: ["dragon"],
  });
  assert.deepEqual(state.stats, { stamina: 100, social: 40, hunger: 0 });
  assert.deepEqual(state.changes, { stamina: -5, social: 0, hunger: 0 });
  assert.deepEqual(state.gauges.map((gauge) => labelOf(gauge, say)), ["stamina", "social", "appetite"]);
  assert.deepEqual(state.motion, { level: 4, scope: "fast", value: 10.1 });
  assert.deepEqual(state.course, []);
  for (const wrong of [null, undefined, 3, "x", {}, []]) assert.equal(readState(wrong), null);
  assert.deepEqual(readState({ stats: {}, motion: { level: 0, value: null } }).motion, { level: 0, scope: "unread", value: null });
  assert.equal(readState({ stats: {}, motion: { scope: "wild" } }).motion.level, 5);
});

test("a state in words names the turn, motion, stats and changes", () => {
  const words = describeState(
    readState({ turn: 2, stats: { stamina: 45, social: 50, entertainment: 55 }, changes: { stamina: -5, entertainment: 5 }, motion: { level: 4 } }),
    say,
  );
  assert.equal(words, "Turn 2: motion fast, stamina 45 (\u22125), social 50, entertainment 55 (+5)");
});

test("the turns that a turn remembers are those of its own path", () => {
  const late = turn("f", { recalled: [0, 2] });
  const root = buildTree([{ name: "main", turns: [turn("a"), turn("b", { seed: 1 }), turn("c"), late] }, ...LINES.slice(1)]);
  const recalled = recalledBy(findTurn(root, "main", 4));
  assert.equal(recalled[0], root);
  assert.deepEqual(recalled.slice(1).map((at) => [at.number, at.turn.seed]), [[2, 1]]);
  assert.deepEqual([root, findTurn(root, "main", 3)].map(recalledBy), [[], []]);
});

test("a workflow keeps the last hundred turns of the course, without their texts", () => {
  const course = Array.from({ length: 150 }, (_, index) => ({ turn: index + 1, stamina: 1, instruction: "secret" }));
  const kept = savedState({ turn: 150, instruction: "now", course });
  assert.equal(kept.course.length, 100);
  assert.equal(kept.course[0].turn, 51);
  assert.equal(JSON.stringify(kept).includes("secret"), false);
  assert.equal(course.length, 150);
});

test("the item of a path is the last turn with the course of all", () => {
  const item = itemOfPath(pathTo(findTurn(buildTree(LINES), "main", 3)));
  assert.equal(item.turn, 3);
  assert.deepEqual(item.course.map((point) => [point.turn, point.motion]), [[1, 2], [2, 2], [3, 2]]);
});

test("high values are high; a single one is still a line, also where all are the same", () => {
  assert.deepEqual(cornersOf([[1, 100], [2, 0]], [1, 2], [0, 100]), [[0, 0], [400, 100]]);
  assert.deepEqual(cornersOf([[3, 5]], [1, 3], [1, 5]), [[400, 0], [402, 0]]);
  assert.deepEqual(cornersOf([[5, 1]], [5, 5], [1, 1]), [[0, 100], [2, 100]]);
});

test("the course: motion as bars, and as words the first and the last stats", () => {
  const course = [{ turn: 1, stamina: 100, motion: 5 }, { turn: 2, stamina: 0, motion: 0 }];
  assert.deepEqual(motionBars(course, 10, 10).map(([, y, , height]) => [y, height]), [[0, 10], [10, 0]]);
  assert.equal(describeHistory([], [], say), "");
  assert.match(describeHistory(course, [{ name: "stamina" }], say), /^Stats, turns 1 to 2: stamina 100 \u2192 0/);
});

test("fields make the published form, and it gives them back", () => {
  const fields = { character: "Miko, Taro", adverb: "softly", motion: "hug a friend", time: "day", place: "street" };
  const text = "Character: Miko, Taro; Motion: softly hug a friend; Background: day street.";
  assert.equal(composeInstruction(fields), text);
  assert.deepEqual(readFields(text, { adverbs: ["softly"], times: ["day", "night"] }), fields);
  assert.deepEqual(instructionLines(text), ["Miko, Taro", "softly hug a friend", "day street"]);
});

test("half-filled and hostile fields", () => {
  assert.equal(composeInstruction({}), "");
  assert.equal(composeInstruction({ character: " Miko \n", motion: "run" }), "Character: Miko; Motion: run.");
  assert.equal(
    composeInstruction({ character: "Miko; Motion: fly", motion: "run", place: "sea" }),
    "Character: Miko, Motion: fly; Motion: run; Background: sea.",
  );
  assert.equal(readFields("Miko runs", {}), null);
  assert.deepEqual(instructionLines("Miko\nruns"), ["Miko runs"]);
  assert.equal(oneLine(" a \n\t b "), "a b");
});

test("branches become a tree that shares its turns", () => {
  const root = buildTree(LINES);
  assert.equal(allTurns(root).length, 7);
  assert.deepEqual(root.children.map((at) => at.turn.state), ["a", "z"]);
  assert.deepEqual(pathTo(findTurn(root, "branch-3", 4)).map((at) => at.turn.state), ["a", "b", "d", "e"]);
  assert.deepEqual(findTurn(root, "main", 2).branches, ["main", "branch-3"]);
  assert.equal(findTurn(root, "main", Infinity).number, 3);
  assert.equal(findTurn(root, "nowhere", 2), root);
  assert.deepEqual(turnsAfter(findTurn(root, "main", 1), "branch-3").map((at) => at.turn.state), ["b", "d", "e"]);
  assert.equal(buildTree([]).children.length, 0);
});

test("no two turns share a place on the map, and a branch's run is straight", () => {
  const root = buildTree(LINES);
  const places = allTurns(root).map((at) => `${at.number}/${at.lane}`);
  assert.equal(new Set(places).size, places.length);
  assert.deepEqual(pathTo(findTurn(root, "main", 3)).map((at) => at.lane), [0, 0, 0]);
  for (const at of allTurns(root)) assert.ok(at.lane >= at.parent.lane);
});

test("takes are the siblings of the same state", () => {
  const root = buildTree(LINES);
  assert.deepEqual(takesOf(findTurn(root, "main", 2)).map((at) => at.turn.seed), [1, 9]);
  assert.equal(takesOf(findTurn(root, "main", 3)).length, 1);
  assert.deepEqual(takesOf(root), []);
  assert.equal(branchThrough(findTurn(root, "branch-2", 2), "main"), "branch-2");
});

test("arrow keys walk along a branch and between lanes", () => {
  const root = buildTree(LINES);
  const first = findTurn(root, "main", 1);
  assert.equal(neighbour(root, first, "ArrowRight", "branch-2").turn.seed, 9);
  assert.equal(neighbour(root, first, "ArrowLeft", "main"), root);
  assert.equal(neighbour(root, first, "End", "branch-3").turn.state, "e");
  assert.equal(neighbour(root, findTurn(root, "branch-3", 4), "Home", "branch-3"), first);
  const keys = ["ArrowLeft", "ArrowRight", "End"];
  const fromStart = keys.map((key) => neighbour(root, root, key, "main"));
  assert.deepEqual(fromStart, [root, first, findTurn(root, "main", 3)]);
  const below = neighbour(root, findTurn(root, "main", 3), "ArrowDown", "main");
  assert.ok(below.lane > 0);
  assert.equal(neighbour(root, first, "ArrowUp", "main"), first);
  const reached = new Set([first]);
  for (const at of reached)
    for (const key of ["ArrowRight", "ArrowDown", "ArrowUp", "ArrowLeft"])
      for (const branch of ["main", "branch-2", "branch-3"]) reached.add(neighbour(root, at, key, branch));
  assert.equal(reached.size, 1 + allTurns(root).length, "every turn can be reached by keys");
});

test("a turn's prompt plays the asked turn in the asked world", () => {
  const prompt = turnPrompt({ world: "toybox", story: "s", instruction: "go", after: 2, branch: "main", seed: 7, motion: "wild" });
  const [, play] = Object.values(prompt);
  assert.deepEqual([play.inputs.after, play.inputs.seed, play.inputs.motion, play.inputs.export], [2, 7, "wild", false]);
  assert.ok(prompt[play.inputs.model[0]], "the model link leads to a node of the prompt");
});

test("seeds of takes are new ones", () => {
  const seeds = takeSeeds([2, 1011], 2, 3);
  assert.equal(new Set(seeds).size, 3);
  for (const seed of seeds) assert.ok(![2, 1011].includes(seed + 2));
  assert.equal(takeSeeds([], 0, 1, 41)[0], 41);
});

test("a story as a graph draws nothing anew: what one seed explains is text, the rest is read", () => {
  const root = buildTree(LINES);
  const main = graphPrompt({ world: "toybox", story: "s", at: findTurn(root, "main", 3), branch: "main" })[2].inputs;
  assert.deepEqual([main.instructions, main.after, main.seed], ["a\nb\nc", 0, 0]);
  const second = { world: "toybox", story: "s", at: findTurn(root, "branch-2", 2), branch: "branch-2" };
  const mixed = graphPrompt(second)[2].inputs;
  assert.deepEqual([mixed.instructions, mixed.after, mixed.seed, mixed.branch], ["b", 1, 8, "branch-2"]);
  const whole = graphPrompt({ ...second, whole: true })[2].inputs;
  assert.deepEqual([whole.instructions, whole.after, whole.seed], ["a\nb", 0, 8]);
  const forced = [{ name: "main", turns: [turn("a"), turn("b", { seed: 1, overridden: true, motion: { level: 2, value: 40 } })] }];
  const custom = graphPrompt({
    world: "toybox",
    story: "s",
    at: findTurn(buildTree(forced), "main", 2),
    branch: "main",
  })[2].inputs;
  assert.deepEqual([custom.instructions, custom.after, custom.motion, custom.motion_value], ["b", 1, "custom", 40]);
});

test("the graph links the video of the story node, which shows the state itself", () => {
  const graph = graphPrompt({ world: "toybox", story: "100%/x", at: buildTree([]), branch: "" });
  assert.deepEqual(Object.values(graph).map((node) => node.class_type), ["LoadAnimeGamer", "PlayGameStory", "SaveVideo"]);
  assert.deepEqual([graph[2].inputs.model, graph[3].inputs.video], [["1", 0], ["2", 4]]);
  assert.equal(graph[3].inputs.filename_prefix, "animegamer/100--x");
});

test("addresses of files are escaped", () => {
  assert.equal(
    viewPath({ filename: "a&b=\u65e5.mp4", subfolder: "x y", type: "output" }),
    "/view?filename=a%26b%3D%E6%97%A5.mp4&subfolder=x+y&type=output",
  );
});

test("errors become one sentence, whatever their shape", () => {
  const refused = {
    response: {
      error: { message: "Prompt outputs failed validation" },
      node_errors: { 1: { errors: [{ message: "m", details: "steps - too many" }] } },
    },
  };
  assert.equal(errorSentence(refused, "x"), "m: steps - too many");
  const bare = { node_errors: { 1: { errors: [{ message: "Value -1 smaller than min of 0", details: "seed" }] } } };
  assert.equal(errorSentence(bare, "x"), "Value -1 smaller than min of 0: seed");
  assert.equal(errorSentence({ exception_message: " No such world.\n  File ..." }, "x"), "No such world.");
  assert.equal(errorSentence({ error: "bad name" }, "x"), "bad name");
  assert.equal(errorSentence(new Error("lost"), "x"), "lost");
  assert.equal(errorSentence({ exception_message: "" }, "It failed."), "It failed.");
});

test("all languages say the same things, with the same blanks", () => {
  const blanks = (text) => (text.match(/\{\w+\}/g) ?? []).sort();
  for (const [name, table] of Object.entries(TABLES)) {
    assert.deepEqual(Object.keys(table), Object.keys(TABLES.en), name);
    for (const [key, text] of Object.entries(table))
      assert.deepEqual(blanks(text), blanks(TABLES.en[key]), `${name}.${key}`);
  }
  assert.equal(translator("zh-TW")("undo"), TABLES.zh.undo);
  assert.equal(translator("xx")("undo"), TABLES.en.undo);
  assert.equal(say("turn", { number: "{number}" }), "Turn {number}");
  assert.equal(say("leftOut", { words: ["red", "umbrella"] }), "Left out: 'red', 'umbrella'.");
  assert.equal(translator("zh")("unknownWords", { words: ["a", "b"] }), "这个世界不认识：“a”, “b”。");
});

test("links keep their colours under a palette that does not name them", () => {
  const table = { IMAGE: "#fff" };
  addColours(table);
  const ours = table.ANIMEGAMER_STATE;
  assert.match(ours, /^#[0-9a-f]{6}$/);
  Object.assign(table, { IMAGE: "", ANIMEGAMER_STATE: "" }, { IMAGE: "#000" });
  assert.deepEqual([table.IMAGE, table.ANIMEGAMER_STATE], ["#000", ours]);
  Object.assign(table, { ANIMEGAMER_STATE: "#123456" });
  assert.equal(table.ANIMEGAMER_STATE, "#123456");
});

test("what others wrote into the browser's storage is left out by kind", () => {
  const read = (text) => createStorage({ getItem: () => text }).read();
  for (const text of ["5", "[]", '"x"', "null", "{", "", null, "true"]) assert.deepEqual(read(text), {});
  const whole = { story: "tale", world: "toybox", branch: "main", number: 3, jobs: [{ id: "a", after: 2 }], settings: { seed: 1 } };
  assert.deepEqual(read(JSON.stringify(whole)), whole);
  const wrong = { story: 5, world: [], branch: {}, number: 1.5, jobs: [{ id: 3 }], settings: "x", opening: { name: 2 }, other: 1 };
  assert.deepEqual(read(JSON.stringify(wrong)), {});
  assert.deepEqual(read(JSON.stringify({ ...whole, jobs: 7, settings: [] })).jobs, undefined);
});

test("the number of takes stays within its bounds, whatever the settings' file holds", () => {
  let takes = 0;
  const settings = createSettings(() => {}, (wanted) => (takes = wanted));
  const { onChange } = settings.find(({ id }) => id === "AnimeGamer.PlayTab.Takes");
  for (const [value, kept] of [[1e9, 8], [-5, 2], [2.4, 2], [NaN, 3], [{}, 3], ["x", 3]]) {
    onChange(value);
    assert.equal(takes, kept);
  }
});
