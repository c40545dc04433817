import assert from "node:assert/strict";
import { test } from "node:test";

import { createServer, listen } from "../../js/server.mjs";

const answer = (body, status = 200) => ({ ok: status < 400, status, json: async () => body });

function fakeApi(answers) {
  const sent = [];
  const listeners = {};
  return {
    sent,
    clientId: "page",
    fetchApi: async (path, { body } = {}) => (body && sent.push(JSON.parse(body)), answers[path] ?? answer({ error: "no such page" }, 404)),
    deleteItem: async (kind, id) => sent.push(["delete", kind, id]),
    interrupt: async (id) => sent.push(["interrupt", id]),
    addEventListener: (event, listener) => (listeners[event] = listener),
    tell: (event, detail) => listeners[event]({ detail }),
  };
}

test("a prompt is queued as ComfyUI queues its own, with the graph that its films keep", async () => {
  const api = fakeApi({ "/prompt": answer({ prompt_id: "p1" }) });
  assert.equal(await createServer(api).queue({ a: {} }, { b: {} }), "p1");
  assert.deepEqual(api.sent, [{ client_id: "page", prompt: { a: {} }, extra_data: { extra_pnginfo: { prompt: { b: {} } } } }]);
});

test("running and waiting prompts are told apart; history of an unknown prompt is none", async () => {
  const api = fakeApi({ "/queue": answer({ queue_running: [[0, "a", {}]], queue_pending: [[1, "b", {}]] }), "/history/x%2Fy": answer({}) });
  assert.deepEqual(await createServer(api).queued(), [{ id: "a", prompt: {}, running: true }, { id: "b", prompt: {}, running: false }]);
  assert.equal(await createServer(api).history("x/y"), null);
});

test("stopping drops what waits before it interrupts what runs, so that nothing starts in between", async () => {
  const api = fakeApi({});
  await createServer(api).cancel(["a", "b"]);
  assert.deepEqual(api.sent, [["delete", "queue", "a"], ["delete", "queue", "b"], ["interrupt", "a"], ["interrupt", "b"]]);
});

test("refusals carry the server's sentence, a lost server one of ours", async () => {
  const api = fakeApi({
    "/broken": {
      ok: true,
      status: 200,
      json: async () => {
        throw new SyntaxError("<html>");
      },
    },
  });
  await assert.rejects(createServer(api).getJson("/nowhere"), /^Error: no such page$/);
  await assert.rejects(createServer(api).getJson("/broken"), /answered 200 to \/broken/);
  api.fetchApi = async () => {
    throw new TypeError("Failed to fetch");
  };
  await assert.rejects(createServer(api).getJson("/queue"), /ComfyUI does not answer/);
});

test("every event of a prompt reaches the session", () => {
  const heard = [];
  const api = fakeApi({});
  listen(api, { hear: (event) => heard.push(event), catchUp: () => heard.push("catchUp") });
  for (const event of ["execution_start", "progress", "executed", "execution_success", "execution_error", "execution_interrupted"])
    api.tell(event, { prompt_id: event });
  api.tell("reconnected", null);
  assert.deepEqual(heard, ["began", "progressed", "executed", "succeeded", "failed", "interrupted", "catchUp"]);
});

test("a change of the queue makes the session look what became of its prompts, a lost server does not", () => {
  let looks = 0;
  const api = fakeApi({});
  listen(api, { catchUp: () => (looks += 1) });
  api.tell("status", { exec_info: { queue_remaining: 0 } });
  api.tell("status", null);
  assert.equal(looks, 1);
});
