import assert from "node:assert/strict";
import { test } from "node:test";

import { WEIGHTS_NODE, WeightsJob } from "../../js/weights_job.mjs";

/** A server with one download; `queue` holds its prompt while it waits or runs. */
function fakeServer() {
  const server = { missing: ["MLLM-Qiqi/"], sent: [], queue: [], running: false, done: {}, cancelled: [] };
  server.port = {
    getJson: async (path) => {
      const asked = new URL(path, "http://server").searchParams;
      if (asked.get("weights") === "nothing") throw new Error("weights 'nothing' are not known");
      return { weights: asked.get("weights"), missing: [...server.missing] };
    },
    queue: async (prompt) => {
      server.sent.push(prompt);
      server.queue.push(prompt);
      return "p1";
    },
    queued: async () => server.queue.map((prompt) => ({ id: "p1", prompt, running: server.running })),
    history: async (id) => server.done[id] ?? null,
    cancel: async (ids) => server.cancelled.push(...ids),
  };
  server.end = () => {
    server.queue = [];
    server.missing = [];
  };
  return server;
}

test("a download is one prompt that states the consent; nothing is sent before it", async () => {
  const server = fakeServer();
  const job = new WeightsJob(server.port, () => {});
  await job.start();
  await job.ask("qiqi", true);
  assert.deepEqual([server.sent, job.busy, job.offer.missing], [[], false, ["MLLM-Qiqi/"]]);
  await job.start();
  const inputs = { weights: "qiqi", towers: true, accept: true };
  assert.deepEqual(server.sent, [{ [WEIGHTS_NODE]: { class_type: "GetAnimeGamerWeights", inputs } }]);
  await job.start();
  assert.equal(server.sent.length, 1, "once");
  job.progressed({ prompt_id: "p1", value: 5, max: 20 });
  assert.equal(job.progress.done, 0.25);
  server.end();
  await job.succeeded({ prompt_id: "p1" });
  assert.deepEqual([job.busy, job.done, job.offer.missing], [false, true, []]);
});

test("after a reload a running download is followed, and one that ended meanwhile is known", async () => {
  const server = fakeServer();
  const job = new WeightsJob(server.port, () => {});
  await job.ask("qiqi", false);
  await job.start();
  server.running = true;
  const again = new WeightsJob(server.port, () => {});
  await again.ask("qiqi", false);
  assert.deepEqual([again.busy, again.progress.job.running], [true, true]);
  server.end();
  server.done.p1 = { status: { status_str: "success", messages: [] }, outputs: {} };
  await again.catchUp();
  assert.deepEqual([again.busy, again.done], [false, true]);
});

test("a download that fails or is stopped says so, and can be started again", async () => {
  const server = fakeServer();
  const job = new WeightsJob(server.port, () => {});
  await job.ask("nothing", false);
  assert.match(job.error, /not known/);
  await job.ask("qiqi", false);
  assert.equal(job.error, "");
  await job.start();
  await job.stop();
  assert.deepEqual(server.cancelled, ["p1"]);
  server.queue = [];
  await job.interrupted({ prompt_id: "p1" });
  assert.deepEqual([job.busy, job.error, job.done], [false, "", false]);
  await job.start();
  server.queue = [];
  await job.failed({ prompt_id: "p1", exception_message: "the disk is full" });
  assert.deepEqual([job.busy, job.error], [false, "the disk is full"]);
});
