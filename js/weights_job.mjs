// A download of weights: what the server offers, and the prompt that downloads it. Knows nothing about the page.

import { missedEvents, progressOf } from "./jobs.mjs";
import { errorSentence } from "./prompt.mjs";

export const WEIGHTS_NODE = "animegamer-weights"; // the node's id in the prompt

/** `port` is the server, as for PlaySession, with prompts() -> [[id, prompt]] of the queue. Each change calls `onChange`. */
export class WeightsJob {
  constructor(port, onChange) {
    Object.assign(this, { port, onChange, offer: null, asking: null, jobs: [], error: "", done: false, finished: 0, sent: 1 });
  }

  get busy() {
    return this.jobs.length > 0;
  }

  get progress() {
    return progressOf(this);
  }

  /** Ask what downloading `weights` would bring, and whether a download of this or another page is under way. */
  async ask(weights, towers) {
    const asked = new URLSearchParams({ weights, towers: towers ? "1" : "0" });
    this.done = false;
    this.asking = asked; // the offer is still the one before
    this.onChange(this);
    await this.#guard(async () => {
      const offer = await this.port.getJson(`/animegamer/weights?${asked}`);
      if (this.asking !== asked) return; // other weights were chosen meanwhile
      this.offer = { ...offer, towers };
      if (!this.busy) await this.#adopt();
    }, () => this.asking === asked);
    if (this.asking === asked) this.asking = null;
    this.onChange(this);
  }

  /** Download what is offered. Only called after the licences were accepted, which the prompt states. */
  async start() {
    if (this.busy || this.asking || !this.offer) return;
    const { weights, towers } = this.offer;
    const inputs = { weights, towers: Boolean(towers), accept: true };
    this.done = false;
    await this.#guard(async () => {
      const id = await this.port.queue({ [WEIGHTS_NODE]: { class_type: "GetAnimeGamerWeights", inputs } });
      this.jobs = [{ id }];
    });
    this.onChange(this);
  }

  /** Stop the download. What has arrived is kept. */
  async stop() {
    await this.#guard(() => this.port.cancel(this.jobs.map((job) => job.id)));
  }

  began(detail) {
    this.#update(detail, { running: true });
  }

  progressed(detail) {
    this.#update(detail, { running: true, value: detail.value, max: detail.max });
  }

  executed() {} // the prompt has one node: `succeeded` follows at once

  async succeeded(detail) {
    if (this.#end(detail)) await this.#asked({ done: true });
  }

  async failed(detail) {
    if (this.#end(detail)) await this.#asked({ error: errorSentence(detail, "failed") });
  }

  async interrupted(detail) {
    if (this.#end(detail)) await this.#asked({});
  }

  /** After a lost connection, find out what has happened. */
  async catchUp() {
    for (const { id } of [...this.jobs]) {
      await this.#guard(async () => {
        for (const [method, detail] of await missedEvents(this.port, id)) await this[method](detail);
      });
    }
  }

  /** Follow a download that is in the queue already, from before a reload or from another page. */
  async #adopt() {
    const found = (await this.port.prompts()).find(([, prompt]) => prompt?.[WEIGHTS_NODE]);
    if (!found) return;
    this.jobs = [{ id: found[0] }];
    await this.catchUp();
  }

  /** Ask again what is missing, and then show how the download ended. */
  async #asked(ended) {
    await this.ask(this.offer.weights, this.offer.towers);
    Object.assign(this, ended);
    this.onChange(this);
  }

  #update(detail, changes) {
    const job = this.jobs.find((entry) => entry.id === detail.prompt_id);
    if (!job) return;
    Object.assign(job, changes);
    this.onChange(this);
  }

  #end(detail) {
    const job = this.jobs.find((entry) => entry.id === detail.prompt_id);
    this.jobs = this.jobs.filter((entry) => entry !== job);
    return job;
  }

  /** Act, and show an error, unless it no longer matters. */
  async #guard(act, matters = () => true) {
    this.error = "";
    try {
      await act();
    } catch (error) {
      if (!matters()) return;
      this.error = errorSentence(error, String(error));
      this.onChange(this);
    }
  }
}
