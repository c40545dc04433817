import assert from "node:assert/strict";
import { test } from "node:test";

import { Ahead } from "../../js/ahead.mjs";
import { PlaySession } from "../../js/session.mjs";
import { FakeServer, memoryStore } from "./fake_server.mjs";

const OFFERED = ["one", "two", "three"];

/** A story of one turn, three proposals, and what the page and its clock would say. */
async function begun({ mode = "on", turns = 1, seconds = 60, pace = null } = {}) {
  const server = new FakeServer();
  const page = { clock: 0, seen: true, timers: [], wanted: { mode, turns, seconds }, form: { seed: 0 }, marks: 0 };
  const session = new PlaySession(server.port, memoryStore(), () => ahead?.react());
  const store = memoryStore();
  const load = () => new Ahead(session, server.port, shownOn(page), store);
  const ahead = load();
  await session.start();
  await session.open("a", "toybox");
  await session.play("first");
  await server.run(session);
  server.sent.length = 0;
  if (pace) session.keep({ pace });
  const offer = async () => {
    await ahead.offer(OFFERED, () => page.form);
    await settled();
  };
  return { server, session, ahead, page, offer, load };
}

const shownOn = (page) => ({
  now: () => page.clock,
  later: (ms, act) => page.timers.push([ms, act]),
  visible: () => page.seen,
  wanted: () => page.wanted,
  changed: () => (page.marks += 1),
});

const settled = async () => {
  for (let count = 0; count < 20; count += 1) await null;
};

/** Let the server play the prompt that waits; both hear of it. */
async function run(server, session, ahead) {
  const both = (method) => (detail) => Promise.all([session[method](detail), ahead[method](detail)]);
  const methods = ["began", "progressed", "executed", "succeeded", "failed", "interrupted"];
  await server.run(Object.fromEntries(methods.map((method) => [method, both(method)])), 1);
  await ahead.catchUp?.(); // the queue has changed
  await settled();
}

const kinds = (server) => server.sent.map((prompt) => prompt["animegamer-turn"].class_type);

test("pieces are sent one at a time until all is drawn, and leave nothing in the queue or history", async () => {
  const { server, session, ahead, page, offer } = await begun();
  await offer();
  assert.equal(server.waiting.length, 1);
  for (let count = 0; count < 10 && server.waiting.length; count += 1) {
    assert.equal(server.waiting.length, 1, "never two");
    assert.equal(ahead.ready("one") !== null, count > 3, "three states and a shot");
    await run(server, session, ahead);
  }
  assert.equal(server.sent.length, 6);
  assert.deepEqual(ahead.ready("two"), { clip: { filename: "two.mp4", subfolder: "animegamer/.ahead", type: "output" }, shot: "two" });
  assert.equal(ahead.ready("another"), null);
  assert.equal(Object.keys(server.done).length, 1, "only the player's own turn is in the history");
  const { inputs } = server.sent[0]["animegamer-turn"];
  assert.deepEqual([inputs.instructions, inputs.after, inputs.pieces, inputs.turns_ahead], [OFFERED.join("\n"), 1, 1, 1]);
  assert.ok(!("export" in inputs));
  assert.equal(page.marks, 6);
});

test("a turn that was drawn ahead is shown while its prompt is on its way", async () => {
  const { server, session, ahead, offer } = await begun();
  await offer();
  for (let count = 0; count < 6; count += 1) await run(server, session, ahead);
  const playing = session.play("two", 1, {}, ahead.ready("two"));
  assert.deepEqual([session.early.instruction, session.early.number, session.early.shot], ["two", 2, "two"]);
  await playing;
  await run(server, session, ahead);
  assert.equal(session.early, null);
  assert.equal(session.here.number, 2);
  assert.equal(ahead.ready("one"), null, "it was for another turn");
});

test("nothing is sent while something else is queued, and it goes on afterwards", async () => {
  const { server, ahead, offer } = await begun();
  server.waiting.push({ id: "other", game: {} });
  await offer();
  assert.equal(server.sent.length, 0);
  server.waiting.length = 0;
  await ahead.catchUp(); // the server says that the queue has changed
  await settled();
  assert.equal(server.sent.length, 1);
});

test("what is being drawn of the chosen turn goes on, and of any other is stopped", async () => {
  for (const [chosen, finishing] of [["one", true], ["typed", false]]) {
    const { server, session, ahead, offer } = await begun();
    await offer();
    const [{ id }] = server.waiting;
    ahead.began({ prompt_id: id });
    assert.equal(ahead.finishing, false);
    await session.play(chosen);
    await settled();
    assert.equal(ahead.finishing, finishing);
    assert.equal(server.cancelled.includes(id), !finishing);
  }
});

test("a prompt that has not begun is taken out of the queue for the chosen turn too", async () => {
  const { server, session, ahead, offer } = await begun();
  await offer();
  const [{ id }] = server.waiting;
  await session.play("one");
  await settled();
  assert.deepEqual([ahead.finishing, server.cancelled.includes(id)], [false, true]);
});

test("nothing is sent while the player's turn is on its way", async () => {
  const { server, session, ahead, offer } = await begun();
  await offer();
  await run(server, session, ahead);
  server.waiting.length = 0;
  await session.play("typed");
  await settled();
  assert.equal(kinds(server).at(-1), "PlayGameStory");
  await ahead.react();
  assert.equal(kinds(server).at(-1), "PlayGameStory");
});

test("a hidden tab draws nothing, is asked again later, and stops what runs", async () => {
  const { server, session, ahead, page, offer } = await begun();
  page.seen = false;
  await offer();
  assert.equal(server.sent.length, 0);
  page.seen = true;
  page.timers.pop()[1]();
  await settled();
  assert.equal(server.sent.length, 1);
  page.seen = false;
  await ahead.react();
  assert.deepEqual(server.cancelled, [`p${server.count}`]);
  await ahead.interrupted({ prompt_id: `p${server.count}` });
  assert.equal(server.waiting.length, 0);
});

test("the seconds a minute are kept to", async () => {
  const { server, session, ahead, page, offer } = await begun({ seconds: 10 });
  await offer();
  for (let count = 0; count < 3; count += 1) {
    assert.equal(server.waiting.length, 1);
    const [{ id }] = server.waiting;
    const heard = { ...hearing(ahead), executed: () => (page.clock += 4000) };
    await run(server, session, heard);
    await ahead.catchUp();
    assert.equal(server.done[id], undefined);
  }
  assert.equal(server.waiting.length, 0, "12 of 10 seconds are spent");
  const [ms, act] = page.timers.pop();
  assert.ok(ms > 40_000 && ms <= 60_000, `${ms}`);
  page.clock += ms + 1;
  act();
  await settled();
  assert.equal(server.waiting.length, 1);
});

const hearing = (ahead) =>
  Object.fromEntries(["began", "progressed", "executed", "succeeded", "failed", "interrupted"].map((name) => [name, (detail) => ahead[name](detail)]));

for (const [pace, on] of [
  [null, false],
  [{ cpu: true, seconds: 5, clip: 2 }, false],
  [{ cpu: true, seconds: 1, clip: 2 }, true],
  [{ cpu: false, seconds: 9, clip: 2 }, true],
])
  test(`auto is ${on} with a pace of ${JSON.stringify(pace)}`, async () => {
    const { server, ahead, page, offer } = await begun({ mode: "auto", pace });
    await offer();
    assert.equal(server.sent.length, on ? 1 : 0);
    page.wanted.mode = on ? "off" : "on";
    await ahead.changed();
    await settled();
    assert.equal(server.sent.length, 1);
    assert.equal(server.cancelled.length, on ? 1 : 0, "off stops what runs");
  });

test("other settings of the form forget what was drawn, and the same ones find it again on the server", async () => {
  const { server, session, ahead, page, offer } = await begun();
  await offer();
  for (let count = 0; count < 6; count += 1) await run(server, session, ahead);
  page.form = { seed: 7 };
  assert.equal(ahead.ready("one"), null);
  await ahead.react();
  await settled();
  assert.equal(server.sent.at(-1)["animegamer-turn"].inputs.seed, 7);
  await run(server, session, ahead);
  assert.ok(ahead.ready("one"));
});

test("going to another turn stops what was for this one", async () => {
  const { server, session, offer } = await begun();
  await offer();
  session.goTo(session.root);
  await settled();
  assert.deepEqual(server.cancelled, [`p${server.count}`]);
});

test("a failure ends it until a setting changes; a refusal until the next proposals", async () => {
  const { server, session, ahead, offer } = await begun();
  await offer();
  server.failure = "out of memory";
  await run(server, session, ahead);
  assert.equal(server.waiting.length, 0);
  await offer();
  assert.equal(server.waiting.length, 0);
  await ahead.changed();
  await settled();
  assert.equal(server.waiting.length, 1);
});

test("what ends before the page knows its id is found in the history", async () => {
  const { server, session, ahead, offer } = await begun();
  const { queue } = server.port;
  ahead.port = {
    ...server.port,
    queue: async (prompt) => {
      const id = await queue(prompt);
      await server.run(undefined, 1); // nobody hears of it
      return id;
    },
  };
  await offer();
  await settled();
  assert.equal(server.sent.length, 6);
  assert.ok(ahead.ready("three"));
  assert.equal(session.busy, false);
  assert.equal(Object.keys(server.done).length, 1, "also the last one left the history");
});

test("a prompt that ends while the page asks what runs is not taken for one that has left the queue", async () => {
  const { server, ahead, offer } = await begun();
  await offer();
  server.start();
  await ahead.succeeded({ prompt_id: "p2" }); // a prompt says so a moment before it leaves the queue
  await server.run(undefined, 1);
  const { queued } = server.port;
  let asked = 0;
  const slow = async () => {
    const answer = await queued();
    asked += 1;
    if (asked === 2) {
      server.start(); // after the answer was written: p3 waits in it
      await ahead.succeeded({ prompt_id: "p3" });
    }
    return answer;
  };
  ahead.port = { ...server.port, queued: slow };
  await ahead.react(); // sends p3, and asks whether p2 has left
  assert.ok(asked >= 2);
  await server.run(undefined, 1);
  await ahead.catchUp();
  assert.deepEqual(Object.keys(server.done), ["p1"]);
});

test("a prompt that the server does not remove yet is removed at the next look", async () => {
  const { server, session, ahead, offer } = await begun();
  await offer();
  ahead.port = { ...server.port, forget: () => Promise.reject(new Error("no answer")) };
  await run(server, session, ahead);
  assert.deepEqual(Object.keys(server.done), ["p1", "p2"]);
  ahead.port = server.port;
  await ahead.catchUp();
  assert.deepEqual(Object.keys(server.done), ["p1"]);
});

for (const when of ["waits", "has ended"])
  test(`a prompt that ${when}, and whose id a reload lost, leaves the history`, async () => {
    const { server, page, offer, load, ahead } = await begun();
    const { queue } = server.port;
    ahead.port = {
      ...server.port,
      queue: (prompt) => {
        queue(prompt);
        return new Promise(() => {}); // the page is gone before the answer
      },
    };
    offer();
    await settled();
    page.seen = false;
    if (when === "has ended") await server.run(undefined, 1);
    const reloaded = load();
    await reloaded.catchUp();
    if (when === "waits") await server.run(undefined, 1);
    await reloaded.catchUp(); // the queue has changed
    assert.deepEqual(Object.keys(server.done), ["p1"], "the player's own turn stays");
  });

for (const when of ["waits", "runs", "has ended"])
  test(`a prompt that ${when} at a reload leaves the history`, async () => {
    const { server, page, offer, load } = await begun();
    await offer();
    page.seen = false; // nothing more is sent
    if (when === "runs") server.start();
    if (when === "has ended") await server.run(undefined, 1);
    const reloaded = load();
    await reloaded.catchUp();
    assert.equal(server.waiting.length, when === "has ended" ? 0 : 1, "it goes on");
    if (when !== "has ended") await server.run(undefined, 1);
    await reloaded.catchUp(); // the queue has changed
    assert.deepEqual(Object.keys(server.done), ["p1"]);
  });
