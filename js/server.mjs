// The server's functions that the Play tab needs, through ComfyUI's own api object.

const TOO_LARGE = 413; // HTTP's status

/** An object as `Jobs` expects it; errors have the server's own message. */
export function createServer(api) {
  const getJson = (path) => answer(path);

  async function answer(path, options) {
    const reply = await answered(api.fetchApi(path, options));
    const body = await reply.json().catch(() => null);
    if (!reply.ok || body === null) {
      const error = new Error(body?.error ?? `The server answered ${reply.status} to ${path}`);
      throw Object.assign(error, { status: reply.status, response: body });
    }
    return body;
  }

  function postJson(path, values) {
    const headers = { "Content-Type": "application/json" };
    return answer(path, { method: "POST", headers, body: JSON.stringify(values) });
  }

  async function upload(file) {
    const body = new FormData();
    body.append("image", file); // ComfyUI's name for any file
    body.append("type", "input");
    try {
      return await answer("/upload/image", { method: "POST", body });
    } catch (error) {
      if (error.status !== TOO_LARGE) throw error;
      throw new Error(`${file.name} is larger than ComfyUI takes (--max-upload-size, by default 100 MB). Choose a shorter one.`);
    }
  }

  async function queued() {
    const { queue_running: running = [], queue_pending: waiting = [] } = await getJson("/queue");
    const listed = (entries, runs) => entries.map(([, id, prompt]) => ({ id, prompt, running: runs }));
    return [...listed(running, true), ...listed(waiting, false)];
  }

  return {
    getJson,
    postJson,
    upload,
    queued,
    // `graph`: what films of this prompt keep as theirs. ComfyUI's own queuePrompt takes only one of a canvas.
    queue: async (prompt, graph) =>
      (await postJson("/prompt", { client_id: api.clientId, prompt, extra_data: { extra_pnginfo: { prompt: graph } } })).prompt_id,
    history: async (id) => (await getJson(`/history/${encodeURIComponent(id)}`))[id] ?? null,
    cancel: async (ids) => {
      for (const id of ids) await api.deleteItem("queue", id);
      for (const id of ids) await api.interrupt(id);
    },
  };
}

/** The server's answer. If there is none, browsers throw a TypeError. */
async function answered(answer) {
  try {
    return await answer;
  } catch (error) {
    if (error instanceof TypeError) throw new Error("ComfyUI does not answer. Is it still running?", { cause: error });
    throw error;
  }
}

/** Pass the server's events about prompts on to the session, or other Jobs. */
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
    api.addEventListener(event, ({ detail }) => detail && session.hear(method, detail));
  api.addEventListener("reconnected", () => session.catchUp());
  // A prompt of another page, or one that was removed from the queue, ends without any of these events.
  api.addEventListener("status", ({ detail }) => detail && session.catchUp());
}
