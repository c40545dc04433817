// A download of weights: what the server offers, and the prompt that downloads it. Knows nothing about the page.

import { Jobs } from "./jobs.mjs";
import { errorSentence } from "./prompt.mjs";

export const WEIGHTS_NODE = "animegamer-weights"; // the node's id in the prompt

/** A download. `port`, `onChange`: see Jobs. */
export class WeightsJob extends Jobs {
  offer = null;
  asking = null;
  done = false;

  /** Ask what downloading `weights` would bring, and whether a download of this or another page is under way. */
  async ask(weights, towers) {
    const asked = new URLSearchParams({ weights, towers: towers ? "1" : "0" });
    Object.assign(this, { asking: asked, done: false }); // the offer is still the one before
    this.changed("", "");
    const answer = this.port.getJson(`/animegamer/weights?${asked}`);
    await Promise.allSettled([answer]);
    if (this.asking !== asked) return; // other weights were chosen meanwhile
    await this.guard(async () => {
      this.offer = { ...(await answer), towers };
      if (!this.busy) await this.#adopt();
    });
    if (this.asking === asked) this.asking = null;
    this.changed();
  }

  /** Download what is offered. Only called after the licences were accepted, which the prompt states. */
  async start() {
    if (this.busy || this.asking || !this.offer) return;
    const { weights, towers } = this.offer;
    const inputs = { weights, towers: Boolean(towers), accept: true };
    Object.assign(this, { done: false, error: "" });
    await this.guard(async () => {
      const id = await this.port.queue({ [WEIGHTS_NODE]: { class_type: "GetAnimeGamerWeights", inputs } });
      this.jobs = [{ id }];
    });
    this.changed();
  }

  /** Stop the download. What has arrived is kept. */
  async stop() {
    await this.guard(() => this.port.cancel(this.jobs.map((job) => job.id)));
  }

  executed() {} // the prompt has one node: `succeeded` follows at once

  succeeded(detail) {
    return this.#ended(detail, { done: true });
  }

  failed(detail) {
    return this.#ended(detail, { error: errorSentence(detail, "failed") });
  }

  interrupted(detail) {
    return this.#ended(detail);
  }

  /** Follow a download that is in the queue already, from before a reload or from another page. */
  async #adopt() {
    const found = (await this.port.queued()).find(({ prompt }) => prompt?.[WEIGHTS_NODE]);
    if (!found) return;
    this.jobs = [{ id: found.id }];
    await this.catchUp();
  }

  /** Ask again what is missing, and then show how the download ended. */
  async #ended(detail, how = {}) {
    if (!this.take(detail)) return;
    this.finished = 0;
    await this.ask(this.offer.weights, this.offer.towers);
    Object.assign(this, how);
    this.changed();
  }
}
