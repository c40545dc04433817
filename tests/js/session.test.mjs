import assert from "node:assert/strict";
import { test } from "node:test";

import { Autoplay, turnCount } from "../../js/autoplay.mjs";
import { PlaySession, TAKES } from "../../js/session.mjs";
import { allTurns, pathTo, takesOf } from "../../js/tree.mjs";
import { FakeServer, memoryStore } from "./fake_server.mjs";

/** A story "a" in which the `played` instructions were played. */
async function begun({ server = new FakeServer(), store = memoryStore(), world = "toybox", played = [] } = {}) {
  const events = [];
  const session = new PlaySession(server.port, store, (now, event) => events.push(event));
  await session.start();
  await session.open("a", world);
  const play = async (instruction, takes) => {
    await session.play(instruction, takes);
    await server.run(session);
  };
  for (const instruction of played) await play(instruction);
  return { server, store, session, events, play };
}

async function reloaded(server, store) {
  const again = new PlaySession(server.port, store, () => {});
  await again.start();
  return again;
}

const said = (session) => pathTo(session.here).map((at) => at.turn.instruction);

test("beginning a story that is there already opens it, whatever its world", async () => {
  const { session } = await begun({ played: ["one"] });
  await session.close();
  await session.begin("a", "qiqi");
  assert.deepEqual([said(session), session.world], [["one"], "toybox"]);
});

test("what a world warns of is said wherever it is opened, and not of others", async () => {
  const { session } = await begun({ world: "film" });
  assert.deepEqual(session.notes, ["hardly trained"]);
  await session.close();
  await session.open("b", "toybox");
  assert.deepEqual(session.notes, []);
});

test("two turns: one prompt each, of two ordinary nodes, each after the last", async () => {
  const { server, session, events, play } = await begun();
  await session.play("one");
  assert.equal(session.busy, true);
  await server.run(session);
  await play("two");
  assert.deepEqual(said(session), ["one", "two"]);
  assert.deepEqual(
    server.sent.map((prompt) => Object.values(prompt).map((node) => node.class_type)),
    [["LoadAnimeGamer", "PlayGameStory"], ["LoadAnimeGamer", "PlayGameStory"]],
  );
  assert.deepEqual(server.sent.map((prompt) => prompt["animegamer-turn"].inputs.after), [0, 1]);
  assert.equal(events.filter((event) => event === "turn").length, 2);
  assert.equal(session.busy, false);
});

test("three takes share the state and differ by seed; play goes on from the one that is chosen", async () => {
  const { server, session, play } = await begun();
  await session.play("one", TAKES);
  assert.equal(session.jobs.length, TAKES);
  await server.run(session);
  const takes = takesOf(session.here);
  assert.equal(takes.length, TAKES);
  assert.equal(new Set(takes.map((take) => take.turn.seed)).size, TAKES);
  assert.equal(session.here, takes[0], "we stand at the first take until another is chosen");
  session.goTo(takes[2]);
  await play("two");
  assert.equal(session.here.parent.turn.seed, takes[2].turn.seed);
});

test("more takes of a turn fill up to three, then add one, and leave us where we stand", async () => {
  const { server, session } = await begun({ played: ["one"] });
  const { key } = session.here;
  for (const expected of [3, 4]) {
    await session.drawAgain();
    await server.run(session);
    assert.deepEqual([takesOf(session.here).length, session.here.key], [expected, key]);
  }
});

test("undo and another instruction make a branch; the old one stays and can be gone back to", async () => {
  const { session, play } = await begun({ played: ["one", "two"] });
  const two = session.here;
  session.undo();
  await session.close();
  await session.open("a");
  assert.deepEqual(said(session), ["one"], "what was undone stays undone in a story that is opened again");
  await play("other");
  assert.deepEqual([said(session), session.branch], [["one", "other"], "branch-2"]);
  session.goTo(allTurns(session.root).find((at) => at.key === two.key));
  assert.deepEqual([said(session), session.branch], [["one", "two"], "main"]);
});

test("after a reload the story, the place in it and a turn that was played meanwhile are there", async () => {
  const { server, store, session } = await begun({ played: ["one"] });
  await session.play("two");
  await server.run(); // the page is gone: nobody hears of it
  const again = await reloaded(server, store);
  assert.deepEqual([again.story, said(again), again.busy], ["a", ["one", "two"], false]);
});

test("a turn that ends while a reloaded page asks for it is played, not stopped", async () => {
  const { server, store, session } = await begun();
  await session.play("one");
  const { port } = server;
  let ends = () => server.run(); // between the page's two questions, whichever it asks first
  const asked = (question) => async (id) => {
    const answer = await question(id);
    await ends();
    ends = () => {};
    return answer;
  };
  const events = [];
  const late = { ...port, history: asked(port.history), queued: asked(port.queued) };
  const again = new PlaySession(late, store, (now, event) => events.push(event));
  await again.start();
  assert.deepEqual(said(again), ["one"]);
  assert.ok(events.includes("turn") && !events.includes("stopped"), events.join());
});

test("a reload while the very first turn of a new story is still waiting", async () => {
  const { server, store, session } = await begun();
  await session.play("one");
  const again = await reloaded(server, store);
  assert.deepEqual([again.busy, again.error], [true, ""], "that there is no such story yet is no error");
  await server.run(again);
  assert.deepEqual([said(again), session.story], [["one"], again.story]);
});

test("a change of the queue while the story is still being read does not take us back", async () => {
  const { server, store, session } = await begun();
  for (const instruction of ["one", "two"]) {
    await session.play(instruction);
    if (instruction === "one") await server.run(session);
  }
  await server.run(); // turn two ends while no page is there
  const getJson = async (path) => {
    if (path.startsWith("/animegamer/story?")) await again.catchUp();
    return server.port.getJson(path);
  };
  const again = new PlaySession({ ...server.port, getJson }, store, () => {});
  await again.start();
  assert.deepEqual([said(again), again.busy], [["one", "two"], false]);
});

test("a reload keeps the settings of the form", async () => {
  const { server, store, session } = await begun();
  const settings = { motion: "fast", motionValue: 5, seed: 7, steps: 4 };
  session.keep(settings);
  const again = await reloaded(server, store);
  assert.deepEqual(again.settings, settings);
  await again.close();
  const later = await reloaded(server, store);
  assert.equal(later.story, "");
  assert.deepEqual(later.settings, settings, "also where no story was open");
});

test("a reload in mid-turn shows the turn as running, and one that waits as waiting", async () => {
  const { server, store, session } = await begun();
  await session.play("one", 2);
  const waiting = await reloaded(server, store);
  assert.deepEqual([waiting.busy, waiting.running], [true, false]);
  server.start();
  const running = await reloaded(server, store);
  assert.deepEqual(running.jobs.map((job) => Boolean(job.running)), [true, false]);
  assert.equal(running.progress.job.running, true);
});

test("undo gives the words back, and files of an export belong to the turn that we stood at", async () => {
  const { server, session } = await begun({ played: ["one"] });
  await session.exportStory();
  await server.run(session);
  assert.equal(session.files.length, 1);
  assert.equal(session.undo(), "one");
  assert.deepEqual(session.files, []);
  assert.equal(session.undo(), "");
});

test("a failed turn is one sentence, and nothing is lost", async () => {
  const { server, session, events, play } = await begun();
  server.failure = "This world is not installed: put it into models/animegamer.\nTraceback: ...";
  await play("one");
  assert.equal(session.error, "This world is not installed: put it into models/animegamer.");
  assert.ok(events.includes("failed"));
  assert.equal(session.busy, false);
  await play("one");
  assert.deepEqual([session.error, said(session)], ["", ["one"]]);
});

test("a story that was taken away is named and begun anew, and what was shown of it goes", async () => {
  const { server, session, play } = await begun({ played: ["one"] });
  delete server.stories.a;
  await play("two");
  assert.match(session.error, /was removed/);
  assert.equal(server.sent.length, 1, "no prompt, of whose failure ComfyUI would show its own message");
  assert.equal(session.busy, false);
  assert.deepEqual([session.root.children, session.here, session.branch], [[], session.root, ""]);
  await play("one");
  assert.deepEqual([said(session), session.error], [["one"], ""]);
});

test("a failed turn leaves us where we stand, and shows what others played meanwhile", async () => {
  const { server, session } = await begun({ played: ["one"] });
  const { key } = session.here;
  server.failure = "no";
  await session.play("two");
  server.stories.a.branches.main.push({ ...server.stories.a.branches.main[0], number: 2, instruction: "theirs", shot: "x" });
  await server.run(session);
  assert.deepEqual([session.here.key, session.error], [key, "no"]);
  assert.deepEqual(session.here.children.map((at) => at.turn.instruction), ["theirs"]);
});

test("a refused prompt tells why, and the other takes are not sent", async () => {
  const { server, session } = await begun({ world: "nowhere" });
  await session.play("one", TAKES);
  assert.match(session.error, /world: 'nowhere' not in/);
  assert.deepEqual([session.busy, server.sent.length], [false, 1]);
});

test("stop drops the takes that wait", async () => {
  const { server, session, events } = await begun();
  await session.play("one", TAKES);
  await session.stop();
  assert.deepEqual([session.busy, server.waiting.length], [false, 0]);
  assert.ok(events.includes("stopped"));
});

test("stop waits for the running prompt to say that it was interrupted", async () => {
  const { server, session } = await begun();
  server.port.cancel = async () => {};
  await session.play("one");
  session.port = { ...session.port, cancel: async () => {} };
  await session.stop();
  assert.equal(session.busy, true);
  session.interrupted({ prompt_id: session.jobs[0].id });
  assert.equal(session.busy, false);
});

test("export writes files and does not move", async () => {
  const { server, session } = await begun({ played: ["one"] });
  const { key } = session.here;
  await session.exportStory();
  assert.equal(server.sent.at(-1)["animegamer-turn"].inputs.instructions, "");
  assert.equal(server.sent.at(-1)["animegamer-turn"].inputs.export, true);
  assert.equal(server.graph[2].inputs.instructions, "one");
  await server.run(session);
  assert.deepEqual(session.files.map((file) => file.filename), ["story.mp4"]);
  assert.equal(session.here.key, key);
});

test("a film shows the branch up to the current turn", async () => {
  const { server, session } = await begun({ played: ["one", "two"] });
  session.undo();
  await session.exportStory({ subtitles: true });
  assert.equal(server.graph[2].inputs.instructions, "one");
  const [, sent] = Object.entries(server.sent.at(-1)).flat();
  assert.equal(sent.class_type, "ExportGameStory");
  const { story, turns, subtitles } = sent.inputs;
  assert.deepEqual([story, turns, subtitles], [session.story, 1, true]);
  await server.run(session);
  assert.deepEqual([session.files[0].filename, session.here.number], ["film-main-1.mp4", 1]);
});

test("the sound of a film is uploaded first, and goes into it through ComfyUI's own node", async () => {
  const { server, session } = await begun({ played: ["one"] });
  const music = { name: "song.mp3" };
  const exporting = session.exportStory({ music });
  assert.deepEqual([session.uploading, session.busy], [true, true]);
  await session.exportStory({}); // a second one does not begin
  await exporting;
  assert.deepEqual(server.uploads, [music]);
  const { "animegamer-sound": load, "animegamer-turn": film } = server.sent.at(-1);
  assert.deepEqual(load, { class_type: "LoadAudio", inputs: { audio: "song.mp3" } });
  assert.deepEqual(film.inputs.audio, ["animegamer-sound", 0]);
  assert.ok(!("music" in film.inputs) && !("sound" in film.inputs));
  await server.run(session);
  assert.deepEqual([session.files[0].filename, session.busy], ["film-main-1.mp4", false]);
});

test("an export whose sound is not uploaded, or is stopped or left meanwhile, is not queued", async () => {
  const { server, session } = await begun({ played: ["one"] });
  const before = server.sent.length;
  const film = { music: { name: "song.mp3" } };
  server.failure = "The server answered 413 to /upload/image";
  await session.exportStory(film);
  assert.match(session.error, /413/);
  server.failure = "";
  for (const act of ["stop", "close"]) {
    const exporting = session.exportStory(film);
    await session[act]();
    await exporting;
    assert.equal(session.busy, false, act);
  }
  assert.equal(server.sent.length, before);
});

test("other people's prompts are none of ours", async () => {
  const { server, session } = await begun();
  await session.play("one");
  session.progressed({ prompt_id: "theirs", value: 1, max: 2 });
  await session.succeeded({ prompt_id: "theirs" });
  session.failed({ prompt_id: "theirs", exception_message: "no" });
  assert.deepEqual([session.error, session.jobs.length, session.progress.job.running], ["", 1, undefined]);
  await server.run(session);
});

test("progress counts all takes that were sent", async () => {
  const { session } = await begun();
  await session.play("one", TAKES);
  assert.equal(session.progress.done, null);
  session.progressed({ prompt_id: session.jobs[0].id, value: 6, max: 12 });
  assert.equal(session.progress.done, 0.5 / 3);
  session.interrupted({ prompt_id: session.jobs[0].id });
  assert.equal(session.progress.done, 1 / 3);
  assert.equal(session.progress.take, 2);
});

test("a store that is full, or forbidden, does not stop the game", async () => {
  const full = () => {
    throw new DOMException("The quota has been exceeded.", "QuotaExceededError");
  };
  const { session, events, play } = await begun({ store: { getItem: full, setItem: full, removeItem: full } });
  await play("one");
  assert.deepEqual([said(session), session.busy, session.error], [["one"], false, ""]);
  assert.ok(events.includes("turn"), "the page hears of the turn");
  await session.close();
  assert.equal(session.story, "");
});

test("a damaged branch is named, and the others are there", async () => {
  const { session } = await begun({ played: ["one"] });
  const { getJson } = session.port;
  session.port = {
    ...session.port,
    getJson: async (path) => {
      const reply = await getJson(path);
      return reply.branches
        ? { ...reply, branches: [...reply.branches, { name: "branch-2", turns: [], error: "turn 1 is damaged" }] }
        : reply;
    },
  };
  await session.open("a");
  assert.deepEqual([session.error, said(session)], ["turn 1 is damaged", ["one"]]);
});

test("closing a story leaves the list with it", async () => {
  const { server, session, store } = await begun({ played: ["one"] });
  await session.close();
  assert.deepEqual(session.stories.map((story) => [story.name, story.turns]), [["a", 1]]);
  assert.equal(JSON.parse(store.getItem("animegamer.play")).story, undefined);
});

/** A server that holds the prompts back until `release()`, as a slow line does. */
function slow(server) {
  const held = [];
  const { port } = server;
  const queue = async (prompt) => {
    await new Promise((release) => held.push(release));
    return port.queue(prompt);
  };
  Object.defineProperty(server, "port", { value: { ...port, queue } });
  return { server, release: () => held.shift()?.() };
}

const settled = () => new Promise((done) => setTimeout(done, 0));

test("a second press before the server has answered sends nothing", async () => {
  const { server, release } = slow(new FakeServer());
  const { session } = await begun({ server });
  const first = session.play("one");
  assert.equal(session.busy, true);
  await session.play("one");
  release();
  await first;
  assert.equal(server.sent.length, 1);
  await server.run(session);
  assert.equal(session.busy, false);
});

test("a turn that is known may end before the page has heard the id of its prompt", async () => {
  const server = new FakeServer();
  const { session } = await begun({ server });
  const { port } = session;
  session.port = {
    ...port,
    queue: async (prompt) => {
      const id = await port.queue(prompt);
      await server.run(session);
      return id;
    },
  };
  await session.play("one");
  assert.deepEqual([session.busy, said(session)], [false, ["one"]]);
});

test("stop while prompts are being sent takes back the one on its way and sends no other", async () => {
  const { server, release } = slow(new FakeServer());
  const { session } = await begun({ server });
  const takes = session.play("one", TAKES);
  release();
  await settled();
  await session.stop();
  release();
  await takes;
  assert.deepEqual([session.busy, server.sent.length, server.waiting.length], [false, 2, 0]);
});

test("autoplay plays its turns one prompt each, and ends when the player writes, stops, fails or leaves", async () => {
  const server = new FakeServer();
  const session = new PlaySession(server.port, memoryStore(), (_, event) => autoplay.react(event));
  const autoplay = new Autoplay(session);
  await session.start();
  await session.begin("life", "toybox");

  const playAll = async () => {
    for (let rounds = 0; rounds < 9 && server.waiting.length; rounds += 1) {
      await server.run(session);
      await settled();
    }
  };
  await autoplay.start(3, { steps: 2 });
  assert.equal(autoplay.left, 3);
  await playAll();
  const asked = server.sent.map((prompt) => prompt["animegamer-turn"].inputs);
  assert.deepEqual(asked.map(({ after, autoplay: turns, instructions, steps }) => [after, turns, instructions, steps]), [
    [0, 1, "", 2],
    [1, 1, "", 2],
    [2, 1, "", 2],
  ]);
  assert.deepEqual([session.here.number, autoplay.on], [3, false]);

  await autoplay.start(5);
  autoplay.takeOver();
  await playAll();
  assert.equal(session.here.number, 4);

  await autoplay.start(5);
  await session.stop();
  await playAll();
  assert.deepEqual([session.here.number, autoplay.on], [4, false]);

  server.failure = "no";
  await autoplay.start(5);
  await playAll();
  assert.deepEqual([session.here.number, autoplay.on], [4, false]);

  await autoplay.start(5);
  await session.close();
  assert.equal(autoplay.on, false);
});

test("autoplay ends with a turn that Stop came too late for, and when the player goes to another turn", async () => {
  const server = new FakeServer();
  const late = { ...server.port, cancel: async () => {} };
  const session = new PlaySession(late, memoryStore(), (_, event) => autoplay.react(event));
  const autoplay = new Autoplay(session);
  await session.start();
  await session.begin("life", "toybox");

  await autoplay.start(5);
  server.start();
  autoplay.end(); // what the button does
  await session.stop();
  await server.run(session);
  await settled();
  assert.deepEqual([session.here.number, server.sent.length, session.busy], [1, 1, false]);

  await session.play("two");
  await server.run(session);
  await autoplay.start(5);
  session.goTo(session.here.parent);
  assert.equal(autoplay.on, false);
  await server.run(session);
  await settled();
  assert.deepEqual([session.here.number, server.sent.length, session.busy], [1, 3, false]);
});

test("a number of turns is a whole number in its range", () => {
  assert.deepEqual(["5", "0", "", "x", "2.7", "1e9"].map(turnCount), [5, 1, 1, 1, 2, 1000]);
});

test("a refused sentence is a key of the page's texts, so that each language says why", async () => {
  const { session } = await begun();
  const note = ["knowsNone", { words: ["storm"], acts: "run" }];
  session.port = { postJson: () => Promise.reject(Object.assign(new Error("no"), { status: 400, response: { note } })) };
  assert.deepEqual(await session.check("a storm comes", 0), { error: "no", note });
});
