// Turns that are drawn ahead while the player looks at a clip: when a prompt for that is sent, and what is there by now.
// Knows nothing about the page.

import { missedEvents } from "./jobs.mjs";
import { aheadPrompt, TURN_NODE } from "./prompt.mjs";
import { createStorage } from "./storage.mjs";

const MINUTE = 60_000; // ms
const KEY = "animegamer.ahead"; // of what a reload needs
const LOOK_AGAIN = 2000; // ms until it is asked again whether the tab is visible

/**
 * `session` is the PlaySession. `port` is the server as for PlaySession, with forget(ids), which removes prompts from the
 * history, and prompts() and lastPrompts(), which give [id, prompt] of those in the queue and of those that ended last.
 * `page` has now() in ms, later(ms, act), visible(), wanted() -> {mode, turns, seconds} of the settings, and changed(),
 * which is called when more is there. `store` is session storage. One prompt is sent at a time, and only while nothing
 * else is queued. The server stops it by itself as soon as another prompt waits.
 */
export class Ahead {
  #place = ""; // where the proposals are for
  #proposals = [];
  #settings = () => ({});
  #how = ""; // the settings with which `#ready` was drawn
  #ready = new Map(); // instruction -> {predicted, clip, shot}
  #more = false;
  #job = null; // {id, place, began} of the prompt in the queue
  #sending = false;
  #spent = []; // [ended, ms] of the prompts of the last minute
  #past; // ids of prompts that are to leave the history: those that have ended, and those from before a reload
  #unknown; // whether the page before a reload sent a prompt and never heard its id
  #waits = false;
  #failed = false; // then no more is drawn until the page is loaded again or a setting changes

  constructor(session, port, page, store) {
    Object.assign(this, { session, port, page, storage: createStorage(store, KEY) });
    const { ids, sending } = this.storage.read();
    this.#past = ids ?? [];
    this.#unknown = Boolean(sending);
  }

  /** Whether turns are drawn ahead. `auto`: unless turns are drawn on a CPU and take longer than their clips. */
  get on() {
    const { mode } = this.page.wanted();
    const { pace } = this.session.settings ?? {};
    return mode === "on" || (mode === "auto" && Boolean(pace) && !(pace.cpu && pace.seconds > pace.clip));
  }

  /** Instructions that may come next, the likeliest first. settings(): those of the form. */
  offer(proposals, settings) {
    this.#place = this.#here;
    this.#proposals = proposals;
    this.#settings = settings;
    this.#forget();
    return this.react();
  }

  /** What is drawn of an instruction that is offered here, as {clip, shot}; null if nothing is, or with other settings. */
  ready(instruction) {
    const found = this.#place === this.#here && this.#how === this.#key() ? this.#ready.get(instruction) : null;
    return found?.clip ? { clip: found.clip, shot: found.shot } : null;
  }

  /**
   * Whether the player chose a turn that may be half drawn. The server knows: it finishes what that turn needs, and ends
   * anything else by itself.
   */
  get finishing() {
    const { busy, asked } = this.session;
    return Boolean(busy && this.#job?.running && this.#isWanted(this.#job) && this.#proposals.includes(asked));
  }

  /** A setting has changed. */
  changed() {
    this.#failed = false;
    if (!this.on) return this.stop();
    return this.react();
  }

  /** Something has changed: send the next prompt, if it may be sent now. */
  async react() {
    if (this.#how !== this.#key()) this.#forget();
    if (this.#job && !this.finishing && (this.session.busy || !this.#isWanted(this.#job))) return this.#stopOnce();
    if (!this.#may()) return;
    const wait = this.page.visible() ? this.#wait() : LOOK_AGAIN;
    if (wait > 0) return this.#later(wait);
    this.#sending = true;
    try {
      await this.#send();
    } catch {
      this.#more = false; // refused, or no answer: the player's own turn will say why
    } finally {
      this.#sending = false;
    }
    if (this.#job) await this.catchUp(); // it may have ended before its id was known
  }

  /** Stop what is being drawn ahead, and take it out of the queue. */
  async stop() {
    const id = this.#job?.id;
    if (id) await this.port.cancel([id]).catch(() => {});
  }

  /** The player's own prompt is sent at the same time: a second request to stop could come when that one runs. */
  async #stopOnce() {
    if (this.#job.stopped) return;
    this.#job.stopped = true;
    await this.stop();
  }

  /** Our prompt has started. */
  began({ prompt_id: id }) {
    if (id === this.#job?.id) Object.assign(this.#job, { began: this.page.now(), running: true });
  }

  /** Progress is not shown. */
  progressed() {}

  /** Our prompt has made a piece. */
  executed({ prompt_id: id, node, output }) {
    if (id !== this.#job?.id || String(node) !== TURN_NODE) return;
    const found = output?.animegamer_ahead?.[0];
    if (!found || this.#job.place !== this.#place || this.#job.how !== this.#how) return;
    this.#more = found.more;
    for (const turn of found.turns) this.#ready.set(turn.instruction, turn);
    this.page.changed();
  }

  succeeded({ prompt_id: id }) {
    return this.#ended(id);
  }

  interrupted({ prompt_id: id }) {
    return this.#ended(id);
  }

  failed({ prompt_id: id }) {
    if (id === this.#job?.id) this.#failed = true;
    return this.#ended(id);
  }

  /** The queue has changed, or the connection is back: find out what has happened to our prompt. */
  async catchUp() {
    await this.#clean();
    const id = this.#job?.id;
    if (!id) return this.react();
    const events = await missedEvents(this.port, id).catch(() => []);
    for (const [method, detail] of events) await this[method](detail);
  }

  #isWanted({ place, how }) {
    return place === this.#here && how === this.#how && this.page.visible();
  }

  get #here() {
    const { story, line, here } = this.session;
    return `${story}/${line}/${here.number}/${here.key}`;
  }

  #key() {
    return JSON.stringify(this.#settings());
  }

  #forget() {
    this.#how = this.#key();
    this.#ready.clear();
    this.#more = this.#proposals.length > 0;
  }

  #may() {
    const { story, busy, starting, root, opening } = this.session;
    const isEncoded = !opening || root.children.length > 0; // before, turn 1 would be drawn without its opening
    const idle = story && isEncoded && !busy && !starting && !this.#job && !this.#sending;
    return idle && this.on && !this.#failed && this.#more && this.#place === this.#here;
  }

  async #send() {
    const { running, waiting } = await this.port.queued();
    if (running.length || waiting.length || this.session.busy || this.#place !== this.#here) return;
    const { world, story, line, here } = this.session;
    const { turns } = this.page.wanted();
    const instruction = this.#proposals.join("\n");
    const game = { world, story, line, after: here.number, window: here.turn?.window, ...this.#settings(), instruction };
    const job = { place: this.#place, how: this.#how, began: this.page.now() };
    this.#keep({ sending: true });
    try {
      job.id = await this.port.queue(aheadPrompt({ ...game, turns }));
      this.#job = job;
    } finally {
      this.#keep();
    }
    if (!this.#isWanted(job)) await this.stop();
  }

  async #ended(id) {
    if (id !== this.#job?.id) return;
    const now = this.page.now();
    this.#spent.push([now, now - this.#job.began]);
    this.#job = null;
    this.#past.push(id);
    // A prompt that was found in the history has left the queue before: no change of the queue will follow.
    await Promise.all([this.#clean(), this.react()]);
  }

  /** Find the prompt whose id was lost: it is in the queue, or one of the last that have ended. */
  async #find() {
    const found = await Promise.all([this.port.prompts(), this.port.lastPrompts()]).catch(() => null);
    if (!found) return; // no answer: at the next look
    this.#unknown = false;
    const ours = found.flat().filter(([, prompt]) => prompt?.[TURN_NODE]?.class_type === "DrawTurnsAhead");
    this.#past = [...new Set([...this.#past, ...ours.map(([id]) => id)])];
    this.#keep();
  }

  /** Remove our prompts from the history. They get there, and leave the queue, a moment after they have ended. */
  async #clean() {
    if (this.#unknown) await this.#find();
    const past = [...this.#past]; // the answer may be older than the end of those that are added meanwhile
    if (!past.length) return;
    const { running, waiting } = await this.port.queued().catch(() => ({ running: past, waiting: [] }));
    const over = past.filter((id) => !running.includes(id) && !waiting.includes(id));
    if (!over.length) return;
    const gone = await this.port.forget(over).then(
      () => over,
      () => [], // no answer: at the next look
    );
    this.#past = this.#past.filter((id) => !gone.includes(id));
    this.#keep();
  }

  /** Save which prompts are to leave the history, for the page after a reload. */
  #keep(more = {}) {
    this.storage.write({ ids: this.#job ? [...this.#past, this.#job.id] : this.#past, ...more });
  }

  /** How many ms to wait until a further prompt is within the seconds a minute that may be spent. */
  #wait() {
    const now = this.page.now();
    this.#spent = this.#spent.filter(([ended]) => ended > now - MINUTE);
    let left = this.#spent.reduce((sum, [, ms]) => sum + ms, 0) - this.page.wanted().seconds * 1000;
    for (const [ended, ms] of this.#spent) {
      if (left < 0) return 0;
      left -= ms;
      if (left < 0) return ended + MINUTE - now;
    }
    return 0;
  }

  #later(ms) {
    if (this.#waits) return;
    this.#waits = true;
    this.page.later(ms, () => {
      this.#waits = false;
      this.react();
    });
  }
}
