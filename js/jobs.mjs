// The page's prompts in ComfyUI's queue: how far they are, and what happened to one while the page was away.

import { errorSentence, TURN_NODE } from "./prompt.mjs";

/**
 * Queued prompts. `port` is the server: queue(prompt) -> id, cancel(ids), history(id) -> entry or null, queued() ->
 * [{id, prompt, running}], getJson(path). Each change calls `onChange(this, event)`.
 */
export class Jobs {
  constructor(port, onChange) {
    Object.assign(this, { port, onChange, jobs: [], sent: 1, finished: 0, error: "" });
    this.batch = null; // events that arrive while prompts are sent; they wait until the ids of the prompts are known
  }

  get busy() {
    return this.jobs.length > 0;
  }

  /**
   * The running (or next) prompt as `job`, its number among the `sent` ones as `take` (one prompt each), and as `done`
   * which part of all sent prompts is done, 0..1, or null if unknown.
   */
  get progress() {
    const { jobs, finished, sent } = this;
    const job = jobs.find((entry) => entry.running) ?? jobs[0];
    const part = job?.max ? job.value / job.max : null;
    const all = Math.max(finished + jobs.length, sent);
    return { job, take: finished + 1, done: part === null && !finished ? null : (finished + (part ?? 0)) / all };
  }

  /** An event of a prompt, ours or another one, by the name of its method. */
  hear(event, detail) {
    return this.batch ? this.batch.push([event, detail]) : this[event](detail);
  }

  /** One of our prompts has started. */
  began({ prompt_id: id }) {
    this.update(id, { running: true });
  }

  /** A node has made progress: `value` of `max`. */
  progressed({ prompt_id: id, value, max }) {
    this.update(id, { running: true, value, max });
  }

  /** After a lost connection or a reload, find out what has happened to the queued prompts. */
  async catchUp() {
    for (const { id } of [...this.jobs])
      await this.guard(async () => {
        for (const [event, detail] of await missedEvents(this.port, id)) await this.hear(event, detail);
      });
  }

  update(id, changes) {
    const job = this.jobs.find((entry) => entry.id === id);
    if (!job) return;
    Object.assign(job, changes);
    this.changed("progress");
  }

  /** Forget a prompt that has ended, and return it; undefined if it was not ours. */
  take({ prompt_id: id }) {
    const job = this.jobs.find((entry) => entry.id === id);
    this.jobs = this.jobs.filter((entry) => entry !== job);
    if (job) this.finished += 1;
    return job;
  }

  changed(event = "", error = this.error) {
    this.error = error;
    this.onChange(this, event);
  }

  /** Act, and show an error. */
  async guard(act) {
    try {
      return await act();
    } catch (error) {
      this.changed("failed", errorSentence(error, String(error)));
      return undefined;
    }
  }
}

/** The events of a queued prompt that a page has missed, as [method of Jobs, detail]. `port`: see Jobs. */
export async function missedEvents(port, id) {
  const detail = { prompt_id: id };
  // The queue first: a prompt that ends between the two requests is then found in the history.
  const queued = (await port.queued()).find((entry) => entry.id === id);
  const entry = await port.history(id);
  if (!entry && queued) return queued.running ? [["began", detail]] : [];
  if (!entry) return [["interrupted", detail]];
  const messages = Object.fromEntries(entry.status?.messages ?? []);
  if (entry.status?.status_str === "success") {
    const executed = { ...detail, node: TURN_NODE, output: entry.outputs?.[TURN_NODE] };
    return [
      ["executed", executed],
      ["succeeded", detail],
    ];
  }
  return [messages.execution_error ? ["failed", { ...messages.execution_error, ...detail }] : ["interrupted", detail]];
}
