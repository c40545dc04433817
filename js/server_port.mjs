// The server as the Play tab needs it, over ComfyUI's own api object.

/** Errors carry the server's own sentence. */
export function createPort(api) {
  async function getJson(path) {
    const reply = await reached(api.fetchApi(path));
    const body = await reply.json().catch(() => null);
    if (!reply.ok || body === null) throw new Error(body?.error ?? `The server answered ${reply.status} to ${path}`);
    return body;
  }

  async function queued() {
    const { queue_running: running = [], queue_pending: pending = [] } = await getJson("/queue");
    return [...running, ...pending].map((entry) => entry[1]);
  }

  return {
    getJson,
    queued,
    queue: async (prompt) => (await reached(api.queuePrompt(0, { output: prompt }))).prompt_id,
    history: async (id) => (await getJson(`/history/${encodeURIComponent(id)}`))[id] ?? null,
    cancel: async (ids) => {
      for (const id of ids) await api.deleteItem("queue", id);
      for (const id of ids) await api.interrupt(id);
    },
  };
}

/** What the server answers; a browser calls an answer that never came a TypeError. */
async function reached(answer) {
  try {
    return await answer;
  } catch (error) {
    if (error instanceof TypeError) throw new Error("ComfyUI does not answer. Is it still running?", { cause: error });
    throw error;
  }
}

/** Tell the session what the server tells about prompts. */
export function listen(api, session) {
  const events = {
    execution_start: "began",
    progress: "progressed",
    executed: "executed",
    execution_success: "succeeded",
    execution_error: "failed",
    execution_interrupted: "interrupted",
  };
  for (const [event, method] of Object.entries(events))
    api.addEventListener(event, ({ detail }) => detail && session[method](detail));
  api.addEventListener("reconnected", () => session.catchUp());
  // A prompt that another page sent, or that somebody took out of the queue, ends without any of these events here.
  api.addEventListener("status", ({ detail }) => detail && session.catchUp());
}
