import assert from "node:assert/strict";
import { test } from "node:test";

import { logLine, paceOf, timeWords, TrainingWatch } from "../../js/training_watch.mjs";
import { translator } from "../../js/translations.mjs";

const say = translator("en");
const lines = [{ step: 1, loss: 2, seconds: 1, lr: 0.001 }, { step: 3, loss: 1, held_out_loss: 3, seconds: 5, lr: 0.00123456 }];

function watch(answer) {
  const asked = [];
  const ended = [];
  const getJson = async (path) => {
    asked.push(path);
    if (answer instanceof Error) throw answer;
    return answer;
  };
  return Object.assign(new TrainingWatch(getJson, () => {}, (event) => ended.push(event.state)), { asked, ended });
}

test("a closed panel asks nothing, but hears how a run ended", async () => {
  const closed = watch({ runs: [] });
  for (const state of ["begun", "trains", "stopped", "failed", "finished"]) await closed.heard({ state });
  assert.deepEqual([closed.asked, closed.ended], [[], ["stopped", "failed", "finished"]]);
});

test("a chosen run stays shown until another begins", async () => {
  const open = watch({ runs: [] });
  open.open = true;
  await open.choose({ run: "a & b", stage: "adapt" });
  await open.heard({ state: "trains" });
  assert.deepEqual(open.asked, Array(2).fill("/animegamer/training?run=a+%26+b&stage=adapt"));
  await open.heard({ state: "begun" });
  assert.equal(open.asked.at(-1), "/animegamer/training");
});

test("an error of the server is shown, and forgotten with the next answer", async () => {
  const broken = watch(new Error("no such run"));
  await broken.ask();
  assert.equal(broken.error, "no such run");
  broken.getJson = async () => ({ runs: [] });
  await broken.ask();
  assert.equal(broken.error, "");
});

test("pace comes from the last two lines of a run at work, the time left from the server", () => {
  const shown = watch({});
  shown.found = { runs: [], active: true, steps: 13, left: 20, curve: lines, log: lines };
  assert.deepEqual(shown.progress, { step: 3, steps: 13, pace: 2, left: 20, done: 3 / 13 });
  Object.assign(shown.found, { before: 13, of: 32 });
  assert.equal(shown.progress.done, 0.5, "of all stages");
  shown.found = { ...shown.found, active: false, left: undefined };
  assert.deepEqual([shown.progress.pace, shown.progress.left], [null, null]);
  assert.equal(paceOf([lines[0]]), null);
});

test("a log line has its step first, four digits, and no seconds", () => {
  assert.equal(logLine(lines[1], say), "step 3  loss 1  held_out_loss 3  lr 0.001235");
});

test("times are words", () => {
  assert.deepEqual([45.4, 720, 11100].map(timeWords), ["45 s", "12 min", "3 h 05 min"]);
});
