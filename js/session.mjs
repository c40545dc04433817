// The Play tab's game: which story, where in it, which prompts are on their way. Knows nothing of the page.

import { createKept } from "./kept.mjs";
import { comboOptions, errorSentence, takeSeeds, turnPrompt, TURN_NODE } from "./prompt.mjs";
import { allTurns, buildTree, findTurn, lineThrough, takesOf } from "./tree.mjs";

export const TAKES = 3;

/**
 * `port` is the server: queue(prompt) -> id, cancel(ids), history(id) -> entry or null, queued() -> ids, getJson(path),
 * `store` is local storage. Every change is told to `onChange(session)`.
 */
export class PlaySession {
  #settled = Promise.resolve();
  #started = false;
  #opening = false;

  constructor(port, store, onChange) {
    Object.assign(this, { port, onChange, kept: createKept(store) });
    this.worlds = ["toybox"];
    this.absent = []; // those of the worlds that are not installed
    this.stories = [];
    this.settings = null; // of the form: seed, motion, motionValue, steps; null until the player sets one
    this.leave();
  }

  /** The worlds and stories that there are; then back into the story that was open when the page was left. Once. */
  async start() {
    if (this.#started) return;
    this.#started = true;
    const kept = this.kept.read();
    this.settings = kept.settings ?? null;
    await this.#guard(async () => {
      const info = await this.port.getJson("/object_info/LoadAnimeGamer");
      this.worlds = comboOptions(info.LoadAnimeGamer?.input?.required?.world);
      await this.#readStories();
    });
    if (kept.story && this.#knows(kept.story)) await this.open(kept.story, undefined, kept);
    else if (kept.story && kept.jobs?.length) await this.open(kept.story, kept.world, kept);
  }

  /** Begin a new story, or open the saved one of this name; where it cannot be, `error` says why and nothing is open. */
  async begin(story, world) {
    if (this.#knows(story)) return this.open(story);
    if (await this.#guard(() => this.#readWords({ world, story }))) await this.open(story, world);
  }

  /** Open a saved story, or (with a world) begin one; `place` is {line, number, jobs} of an earlier visit. */
  async open(story, world, place = {}) {
    this.leave();
    this.#opening = true;
    Object.assign(this, { story, world: world ?? "", jobs: place.jobs ?? [] });
    if (this.#knows(story) || world === undefined) await this.#guard(() => this.#readStory(place));
    await this.#guard(async () => void (this.words = await this.#readWords({ world: this.world })));
    this.#opening = false;
    await this.catchUp();
    this.#changed();
  }

  /** Close the story; the list of stories is read anew. */
  async close() {
    this.leave();
    this.kept.write({ settings: this.settings });
    await this.#guard(() => this.#readStories());
    this.#changed();
  }

  /** Forget the story, without a word to anybody. */
  leave() {
    Object.assign(this, {
      story: "",
      world: "",
      jobs: [],
      batch: null, // the prompts that are being sent; what is told meanwhile waits in it until their ids are known
      sent: 0,
      finished: 0,
      files: [],
      notes: [],
      words: {},
      error: "",
    });
    this.#clear();
  }

  get busy() {
    return this.jobs.length > 0 || this.batch !== null;
  }

  /** Whether a prompt of ours runs now. */
  get running() {
    return this.jobs.some((job) => job.running);
  }

  /** The prompt that runs (or will run first), and how much of all that was sent is done, 0..1 or null if unknown. */
  get progress() {
    const job = this.jobs.find((entry) => entry.running) ?? this.jobs[0];
    const part = job?.max ? job.value / job.max : null;
    const all = this.finished + this.jobs.length;
    return {
      job,
      take: this.finished + 1, // of `sent`, one prompt each
      done: part === null && !this.finished ? null : (this.finished + (part ?? 0)) / Math.max(all, this.sent),
    };
  }

  /** Play one instruction after the turn that we stand at, drawn `takes` times. `settings`: seed, motion, motionValue. */
  async play(instruction, takes = 1, settings = {}) {
    const after = this.here.number;
    const alike = this.here.children.filter((child) => child.turn.instruction === instruction);
    const drawn = alike.map((child) => child.turn.seed);
    const seeds = takes === 1 ? [settings.seed ?? 0] : takeSeeds(drawn, after, takes, settings.seed);
    await this.#send(seeds.map((seed) => ({ ...settings, instruction, after, line: this.line, seed })));
  }

  /** Draw the turn that we stand at again, until there are three takes (or one more). */
  async drawAgain(settings = {}) {
    const { parent, turn } = this.here;
    if (!parent) return;
    const there = takesOf(this.here);
    const drawn = there.map((take) => take.turn.seed);
    const seeds = takeSeeds(drawn, parent.number, Math.max(1, TAKES - there.length), settings.seed);
    const line = lineThrough(parent, this.line);
    const request = { ...settings, instruction: turn.instruction, after: parent.number, line, stay: true };
    await this.#send(seeds.map((seed) => ({ ...request, seed })));
  }

  /** Write the story up to here as one clip and a contact sheet. */
  async exportStory() {
    await this.#send([{ after: this.here.number, line: this.line, exported: true }]);
  }

  /** Keep the form's settings over a reload. */
  keep(settings) {
    this.settings = settings;
    this.#changed("progress");
  }

  /** Go to a turn; the next instruction is played after it. */
  goTo(at) {
    this.here = at;
    this.line = lineThrough(at, this.line);
    Object.assign(this, { error: "", files: [] });
    this.#changed();
  }

  /** Go back one turn; its instruction, or nothing. What was played stays in the story, as a branch. */
  undo() {
    if (!this.here.parent || this.busy) return "";
    const { instruction } = this.here.turn;
    this.goTo(this.here.parent);
    return instruction;
  }

  /** Stop what runs and drop what waits. */
  async stop() {
    const ids = this.jobs.map((job) => job.id);
    this.batch = null;
    await this.#guard(() => this.port.cancel(ids));
    const queued = await this.port.queued().catch(() => ids);
    this.jobs = this.jobs.filter((job) => queued.includes(job.id));
    this.#changed(this.busy ? "" : "stopped");
  }

  /** A prompt of ours began. */
  began(detail) {
    if (!this.#early("began", detail)) this.#update(detail.prompt_id, { running: true });
  }

  /** A node of ours got on: `value` of `max`. */
  progressed(detail) {
    const { prompt_id: id, value, max } = detail;
    if (this.#early("progressed", detail)) return;
    this.#update(id, { running: true, value, max });
  }

  /** Our node gave its results. */
  executed(detail) {
    const { prompt_id: id, node, output } = detail;
    if (this.#early("executed", detail)) return;
    if (String(node) !== TURN_NODE) return;
    const told = output?.animegamer_story?.[0];
    const notes = output?.animegamer_notes ?? [];
    this.#update(id, { told: told && { line: told.line, files: told.files ?? [] }, notes });
  }

  /** A prompt of ours ended well: read the story again, and go where the turn is. */
  async succeeded(detail) {
    if (!this.#early("succeeded", detail)) await this.#inTurn(() => this.#settle(detail));
  }

  /** One after another: where the first of three takes leads decides that the others lead nowhere. */
  #inTurn(settle) {
    return (this.#settled = this.#settled.then(settle, settle));
  }

  async #settle(detail) {
    const job = this.#take(detail.prompt_id);
    if (!job) return;
    const { story } = this;
    const told = job.told ?? {};
    if (job.exported) this.files = told.files ?? [];
    this.notes = job.notes ?? [];
    const place = { line: told.line, number: job.after + 1 };
    const moves = !job.exported && !job.stay && this.here.number === job.after;
    await this.#guard(() => this.#readStory(moves ? place : undefined));
    if (story === this.story) this.#changed(moves ? "turn" : "");
  }

  /** A prompt of ours failed, perhaps since the story was changed or taken away: read it again. */
  async failed(detail) {
    if (!this.#early("failed", detail)) await this.#inTurn(() => this.#settleFailed(detail));
  }

  async #settleFailed(detail) {
    if (!this.#take(detail.prompt_id)) return;
    const { story } = this;
    await this.#guard(async () => {
      await this.#readStories();
      if (this.#knows(story)) await this.#readStory();
      else if (story === this.story) this.#clear();
    });
    if (story === this.story) this.#changed("failed", errorSentence(detail, "failed"));
  }

  /** A prompt of ours was interrupted. */
  interrupted(detail) {
    if (this.#early("interrupted", detail)) return;
    if (this.#take(detail.prompt_id)) this.#changed("stopped");
  }

  /** After a lost connection or a reload: what became of the prompts on their way? */
  async catchUp() {
    if (this.#opening) return; // it ends with this, once the story is there that jobs are turns of
    for (const job of [...this.jobs]) {
      await this.#guard(async () => {
        // The queue first: a prompt that ends in between is then in the history, not in neither.
        const waits = (await this.port.queued()).includes(job.id);
        const entry = await this.port.history(job.id);
        const messages = Object.fromEntries(entry?.status?.messages ?? []);
        if (!entry) {
          if (!waits) this.interrupted({ prompt_id: job.id });
        } else if (entry.status?.status_str === "success") {
          this.executed({ prompt_id: job.id, node: TURN_NODE, output: entry.outputs?.[TURN_NODE] });
          await this.succeeded({ prompt_id: job.id });
        } else if (messages.execution_error) await this.failed({ ...messages.execution_error, prompt_id: job.id });
        else this.interrupted({ prompt_id: job.id });
      });
    }
  }

  async #send(requests) {
    if (this.busy) return;
    const { story, world } = this;
    const window = this.here.turn?.window;
    const batch = [];
    Object.assign(this, { error: "", notes: [], files: [], sent: requests.length, finished: 0, batch });
    this.#changed();
    for (const { stay, ...request } of requests) {
      const sent = await this.#guard(async () => {
        const id = await this.port.queue(turnPrompt({ world, story, window, ...request }));
        if (this.batch !== batch) {
          if (story === this.story) await this.port.cancel([id]); // stopped; a story that was left plays on
          return false;
        }
        const { after, exported, instruction } = request;
        this.jobs.push({ id, after, exported: Boolean(exported), stay: Boolean(stay), instruction: instruction ?? "" });
        this.#changed();
        return true;
      });
      if (!sent) break;
    }
    if (this.batch !== batch) return;
    this.batch = null;
    this.#changed();
    for (const [method, detail] of batch) await this[method](detail);
  }

  /** Whether this is told while prompts are being sent: a known turn may end before the page has heard its id. */
  #early(method, detail) {
    this.batch?.push([method, detail]);
    return this.batch !== null;
  }

  async #readStories() {
    const { stories = [], absent = [] } = await this.port.getJson("/animegamer/stories");
    Object.assign(this, { stories, absent });
    this.#changed();
  }

  /** The words of a world; with a `story`, an error if no new one can have that name, or the world cannot be played. */
  #readWords(asked) {
    return this.port.getJson(`/animegamer/words?${new URLSearchParams(asked)}`);
  }

  #knows(name) {
    return this.stories.some((story) => story.name === name);
  }

  /** No turns, and nowhere to stand but at the beginning. */
  #clear() {
    this.here = this.root = buildTree([]);
    this.line = "";
  }

  async #readStory(place) {
    const name = this.story;
    const told = await this.port.getJson(`/animegamer/story?${new URLSearchParams({ name })}`);
    if (name !== this.story) return; // another story was opened meanwhile
    this.world = told.world;
    const key = this.here.key;
    this.root = buildTree(told.lines ?? []);
    this.error = (told.lines ?? []).find((line) => line.error)?.error ?? this.error;
    const line = place?.line ?? told.line;
    if (place) Object.assign(this, { line, here: findTurn(this.root, line, place.number ?? Infinity) });
    else if (!key) this.here = this.root;
    else this.here = allTurns(this.root).find((at) => at.key === key) ?? findTurn(this.root, line, Infinity);
    this.line = lineThrough(this.here, this.line);
  }

  #update(id, changes) {
    const job = this.jobs.find((entry) => entry.id === id);
    if (job) this.#changed("progress", undefined, Object.assign(job, changes));
  }

  #take(id) {
    const job = this.jobs.find((entry) => entry.id === id);
    this.jobs = this.jobs.filter((entry) => entry !== job);
    if (job) this.finished += 1;
    return job;
  }

  #changed(event = "", error = undefined) {
    if (error !== undefined) this.error = error;
    if (this.story) {
      const jobs = this.jobs.map(({ running, value, max, told, notes, ...job }) => job); // what a reload asks for
      const { story, world, line, settings } = this;
      this.kept.write({ story, world, line, number: this.here.number, jobs, settings });
    }
    this.onChange(this, event);
  }

  async #guard(act) {
    try {
      return await act();
    } catch (error) {
      this.#changed("failed", errorSentence(error, String(error)));
      return undefined;
    }
  }
}
