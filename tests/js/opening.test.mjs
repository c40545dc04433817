import assert from "node:assert/strict";
import { test } from "node:test";

import { isFilm } from "../../js/opening.mjs";
import { turnPrompt } from "../../js/prompt.mjs";
import { createServer } from "../../js/server.mjs";
import { PlaySession } from "../../js/session.mjs";
import { buildTree } from "../../js/tree.mjs";
import { FakeServer, memoryStore } from "./fake_server.mjs";

const FILM = { file: { name: "walk.mp4", type: "video/mp4" }, film: true, at: 2.5, text: "Miko waves" };
const PICTURE = { file: { name: "own.png", type: "image/png" }, film: false, at: 0, text: "stands still" };
const OPENING = { name: "walk.mp4", subfolder: "", film: true, at: 2.5, text: "Miko waves" };

async function started(server = new FakeServer(), store = memoryStore()) {
  const session = new PlaySession(server.port, store, () => {});
  await session.start();
  return { server, store, session };
}

const openings = (server) => server.sent.map((prompt) => prompt["animegamer-turn"].inputs.opening ?? null);

test("films are told from pictures by their type, and where there is none by their name", () => {
  const films = [{ name: "a", type: "video/webm" }, { name: "A.MKV" }, { name: "a.b.ts", type: "" }];
  const pictures = [{ name: "a.png", type: "image/png" }, { name: "a.gif", type: "image/gif" }, { name: "mp4" }];
  assert.deepEqual([...films, ...pictures].map(isFilm), [true, true, true, false, false, false]);
});

test("a picture is read by two nodes, a part of a film by three, and a story without an opening by none", () => {
  const kinds = (opening) => Object.values(turnPrompt({ world: "toybox", story: "a", opening })).map((node) => node.class_type);
  assert.deepEqual(kinds(null), ["LoadAnimeGamer", "PlayGameStory"]);
  const picture = { ...OPENING, name: "own.png", subfolder: "mine", film: false };
  assert.deepEqual(kinds(picture), ["LoadAnimeGamer", "LoadImage", "EncodeShot", "PlayGameStory"]);
  assert.deepEqual(kinds(OPENING), ["LoadAnimeGamer", "LoadVideo", "ReadFilmSpan", "EncodeShot", "PlayGameStory"]);
  const prompt = turnPrompt({ world: "toybox", story: "a", opening: OPENING });
  assert.deepEqual(prompt["animegamer-opening-span"].inputs, { model: ["animegamer-world", 0], video: ["animegamer-opening-file", 0], at: 2.5 });
  assert.deepEqual(prompt["animegamer-opening"].inputs, {
    model: ["animegamer-world", 0],
    motion_text: "Miko waves",
    frames: ["animegamer-opening-span", 0],
    clip_fps: ["animegamer-opening-span", 1],
    frame: ["animegamer-opening-span", 2],
  });
  const { image } = turnPrompt({ world: "toybox", story: "a", opening: picture })["animegamer-opening-file"].inputs;
  assert.equal(image, "mine/own.png");
});

test("the first turn takes the opening along, later ones do not need it", async () => {
  const { server, session } = await started();
  await session.begin("a", "toybox", FILM);
  assert.deepEqual([session.story, session.opening], ["a", OPENING]);
  assert.deepEqual(server.uploads, [FILM.file]);
  for (const words of ["one", "two"]) {
    await session.play(words);
    await server.run(session);
  }
  assert.deepEqual(openings(server), [["animegamer-opening", 0], null]);
  session.goTo(session.root);
  await session.play("three");
  assert.deepEqual(openings(server)[2], null, "another first turn begins with the branch's own");
  assert.equal(server.sent[2]["animegamer-turn"].inputs.branch, "main");
});

test("each take of the first turn, and a turn that the world plays itself, begin with the opening", async () => {
  for (const play of [(session) => session.play("one", 3), (session) => session.autoplay()]) {
    const { server, session } = await started();
    await session.begin("a", "toybox", PICTURE);
    await play(session);
    assert.ok(openings(server).length && openings(server).every(Boolean));
  }
});

test("a reload before turn 1 keeps the opening, also while turn 1 waits; after it the story has it", async () => {
  const { server, store, session } = await started();
  await session.begin("a", "toybox", FILM);
  const again = (await started(server, store)).session;
  assert.deepEqual([again.story, again.world, again.opening], ["a", "toybox", OPENING]);
  await again.play("one");
  const third = (await started(server, store)).session;
  assert.deepEqual([third.opening, third.busy], [OPENING, true]);
  await server.run(third);
  const fourth = (await started(server, store)).session;
  fourth.goTo(fourth.root);
  assert.equal(fourth.turnZero.clip.subfolder, "animegamer/a/openings");
});

test("a first turn that failed can be played again with the opening, and a deleted story too", async () => {
  const { server, session } = await started();
  await session.begin("a", "toybox", PICTURE);
  await session.play("one");
  server.failure = "out of memory";
  await server.run(session);
  await session.play("one");
  await server.run(session);
  delete server.stories.a;
  await session.play("two"); // says that the story was removed
  await session.play("two");
  assert.deepEqual(openings(server).map(Boolean), [true, true, true]);
});

test("a story that is there already refuses an opening, and a name or world that cannot be uploads nothing", async () => {
  const { server, session } = await started();
  await session.begin("a", "toybox");
  await session.play("one");
  await server.run(session);
  await session.close();
  for (const [story, world, why] of [
    ["a", "toybox", /has begun already/],
    ["bad/name?", "toybox", /is not a valid folder name/],
    ["b", "qiqi", /not installed/],
  ]) {
    await session.begin(story, world, PICTURE);
    assert.equal(session.story, "");
    assert.match(session.error, why);
  }
  assert.deepEqual(server.uploads, []);
});

test("the server gets the file as ComfyUI's own upload sends it", async () => {
  const sent = [];
  const reply = { ok: true, status: 200, json: async () => ({ name: "own (1).png", subfolder: "", type: "input" }) };
  const server = createServer({ fetchApi: async (path, options) => (sent.push([path, options]), reply) });
  assert.equal((await server.upload(new File(["x"], "own.png"))).name, "own (1).png");
  const [[path, { method, body }]] = sent;
  assert.deepEqual([path, method, body.get("type"), body.get("image").name], ["/upload/image", "POST", "input", "own.png"]);
});

test("what stands at the beginning: the chosen file before turn 1, then the clip of the branch's own opening", () => {
  const clip = { filename: "0.mp4", subfolder: "s", type: "output" };
  const turn = { state: "s", shot: "d", seed: 0 };
  const root = buildTree([
    { name: "main", turns: [turn], opening: "Miko waves", opening_clip: clip },
    { name: "branch-2", turns: [{ ...turn, state: "t" }], opening: null, opening_clip: null },
    { name: "branch-3", turns: [{ ...turn, state: "u" }], opening: "lost", opening_clip: null },
  ]);
  const session = new PlaySession(null, null, () => {});
  assert.equal(session.turnZero, null);
  session.opening = OPENING;
  assert.deepEqual(session.turnZero.clip, { filename: "walk.mp4", subfolder: "", type: "input", at: 2.5 });
  const at = (branch) => Object.assign(session, { root, branch }).turnZero;
  assert.deepEqual([at("main"), at("branch-2")], [{ instruction: "Miko waves", clip }, null]);
  assert.deepEqual(at("branch-3"), { instruction: "lost", clip: null });
});
