// The state of the Play tab: the open story, the current turn, the queued prompts. Knows nothing about the page.

import { writtenFor } from "./instruction.mjs";
import { Jobs, missedEvents } from "./jobs.mjs";
import { createStorage } from "./storage.mjs";
import { errorSentence, graphPrompt, readingPrompt, settingsOf, takeSeeds, turnPrompt, TURN_NODE } from "./prompt.mjs";
import { allTurns, branchThrough, buildTree, findTurn, pathTo, takesOf } from "./tree.mjs";

const READ = 40; // past instructions that a plain sentence is read with

export const TAKES = 3;

/** `port`, `onChange`: see Jobs; `port` also has postJson(path, values) and upload(file). `store` is local storage. */
export class PlaySession extends Jobs {
  #settled = Promise.resolve();
  #started = null; // the promise of `start`
  #opening = false;
  #uploading = null; // what is being uploaded, an opening or the sound of an export

  constructor(port, store, onChange) {
    super(port, onChange);
    this.storage = createStorage(store);
    this.takes = TAKES; // of a turn that is drawn several times
    this.worlds = ["toybox"];
    this.absent = []; // the worlds that are not installed
    this.stories = [];
    this.starting = true; // until `start` has opened the story that was open before a reload, if there was one
    this.places = {}; // story -> {branch, number} where the player left it, if what came after was undone
    this.settings = null; // seed, motion, motionValue, steps ...; null until one is known
    this.leave();
  }

  /** Read the lists of worlds and stories, and open the story that was open before a reload. Runs only once. */
  start() {
    return (this.#started ??= this.#start());
  }

  async #start() {
    const saved = this.storage.read();
    this.settings = saved.settings ?? null;
    this.places = saved.places ?? {};
    await this.guard(() => this.#readStories());
    if (saved.story && this.#knows(saved.story)) await this.open(saved.story, undefined, saved);
    else if (saved.story && (saved.jobs?.length || saved.opening)) await this.open(saved.story, saved.world, saved);
    this.starting = false;
    this.onChange(this, "");
  }

  /**
   * Start a new story, or open the saved one of this name. If that fails, `error` says why and no story is open. `chosen`
   * is the {file, film, at, text} that a new story begins with; the file is uploaded.
   */
  async begin(story, world, chosen = null) {
    if (this.#knows(story) && !chosen) return this.open(story);
    if (this.#knows(story))
      return this.changed("failed", `Story ${story} has begun already. Choose another name, or no opening.`);
    if (!(await this.guard(() => this.#readWords({ world, story })))) return;
    const opening = chosen && (await this.guard(() => this.#upload(chosen)));
    if (opening || !chosen) await this.open(story, world, { opening });
  }

  /** The file of a picture that shows what a world reads in a chosen opening; undefined if `error` says why there is none. */
  readOpening(world, chosen) {
    return this.guard(async () => {
      const opening = await this.#upload(chosen);
      if (!opening) return undefined;
      const id = await this.port.queue(readingPrompt(world, opening));
      for (;;) {
        const [[event, detail] = []] = await missedEvents(this.port, id);
        if (event === "failed") throw detail;
        if (event && event !== "began") return detail.output?.images[0]; // none after an interrupt
        await new Promise((later) => setTimeout(later, 500));
      }
    });
  }

  /** Open a saved story, or (with a world) start one; `place` is {branch, number, jobs, opening} from before a reload. */
  async open(story, world, place = this.places[story] ?? {}) {
    this.leave();
    this.#opening = true;
    Object.assign(this, { story, world: world ?? "", jobs: place.jobs ?? [], opening: place.opening ?? null });
    if (this.#knows(story) || world === undefined) await this.guard(() => this.#readStory(place));
    await this.guard(async () => void (this.words = await this.#readWords({ world: this.world })));
    this.notes = this.words.warnings ?? [];
    this.#opening = false;
    await this.catchUp();
    this.changed();
  }

  /** Close the story and read the list of stories again. Opened again, it is at the same turn. */
  async close() {
    const { story, branch, here } = this;
    this.places = { ...this.places, [story]: here.children.length ? { branch, number: here.number } : undefined };
    this.leave();
    this.storage.write({ settings: this.settings, places: this.places });
    await this.guard(() => this.#readStories());
    this.changed();
  }

  /** Reset the state to no open story, without calling `onChange`. */
  leave() {
    Object.assign(this, {
      story: "",
      world: "",
      jobs: [],
      batch: null,
      opening: null, // the uploaded {name, subfolder, film, at, text} that the story begins with; turn 1 takes it along
      sent: 0,
      finished: 0,
      files: [],
      notes: [],
      words: {},
      error: "",
    });
    this.#uploading = null;
    this.#clear();
  }

  /** Turn 0 of the branch, or of the story that turn 1 begins: {instruction, clip, still}; null without an opening. */
  get turnZero() {
    const saved = this.root.openings[this.branch] ?? null;
    if (saved || !this.opening || this.root.children.length) return saved;
    const { name, subfolder, film, at, text } = this.opening;
    return { instruction: text, clip: { filename: name, subfolder, type: "input", at: film ? at : 0 }, still: !film };
  }

  get busy() {
    return super.busy || this.batch !== null || (this.uploading && Boolean(this.story));
  }

  get uploading() {
    return this.#uploading !== null;
  }

  /** Whether one of our prompts is running. */
  get running() {
    return this.jobs.some((job) => job.running);
  }

  /** Play an instruction after the current turn, in `takes` takes, each of them a prompt. `settings`: seed, motion, motionValue. */
  async play(instruction, takes = 1, settings = {}) {
    if (this.busy) return;
    const after = this.here.number;
    const drawn = this.here.children.filter((child) => writtenFor(child.turn) === instruction).map((child) => child.turn.seed);
    const seeds = takes === 1 ? [settings.seed ?? 0] : takeSeeds(drawn, after, takes, settings.seed);
    await this.#send(seeds.map((seed) => ({ ...settings, instruction, after, branch: this.branch, seed })));
  }

  /** Play one turn that the director proposes. */
  async autoplay(settings = {}) {
    await this.#send([{ ...settings, after: this.here.number, branch: this.branch, autoplay: 1 }]);
  }

  /** Proposals for the next turn; none if there is an error, which is not shown if `quiet`. Another seed: others. */
  async suggest(seed = 0, quiet = false) {
    const { world, story, branch, here, turnZero } = this;
    const asked = { world, story, branch, after: here.number, seed, opening: turnZero?.instruction ?? "" };
    const read = () => this.port.getJson(`/animegamer/suggestions?${new URLSearchParams(asked)}`);
    const found = await (quiet ? read().catch(() => null) : this.guard(read)); // a world may have no words
    return found?.suggestions ?? [];
  }

  /**
   * What to know of an instruction before it is played: {reading, words, notes, draft, nearest, untried}, {error,
   * note} if it is refused, or null.
   */
  async check(instruction, steps, world = this.world) {
    const refused = (error) => (error.status === 400 ? { error: error.message, note: error.response?.note } : null);
    const turns = [this.turnZero, ...pathTo(this.here).map(({ turn }) => turn)].filter(Boolean).slice(-READ);
    const past = turns.map((turn) => turn.instruction);
    return this.port.postJson("/animegamer/check", { world, instruction, past, steps }).catch(refused);
  }

  /** Draw the current turn again, until it has as many takes as the setting says, or once more. */
  async drawAgain(settings = {}) {
    const { parent, turn } = this.here;
    if (!parent) return;
    const drawn = takesOf(this.here).map((take) => take.turn.seed);
    const after = parent.number;
    const seeds = takeSeeds(drawn, after, Math.max(1, this.takes - drawn.length), settings.seed);
    const request = { ...settings, instruction: turn.instruction, after, branch: branchThrough(parent, this.branch) };
    await this.#send(seeds.map((seed) => ({ ...request, seed, stay: true })));
  }

  /**
   * Export the story up to the current turn: as a `film` (see `turnPrompt`), or as one clip and a contact sheet. `music`
   * of a film is the file of its sound; it is uploaded. `showOpening`: beginning with turn 0.
   */
  async exportStory(film = null, showOpening = false) {
    if (this.busy) return;
    const request = { after: this.here.number, branch: this.branch, exported: true, film, showOpening };
    if (film?.music) {
      const { music, ...look } = film;
      const sound = await this.guard(() => this.#upload({ file: music }));
      if (!sound) return;
      request.film = { ...look, sound };
    }
    await this.#send([request]);
  }

  /** Save some of the form's settings for a reload. */
  keep(settings) {
    this.settings = { ...this.settings, ...settings };
    this.changed("progress");
  }

  /** Let the page show something that is not part of this state. */
  notify() {
    this.changed("progress");
  }

  /** Go to a turn; the next instruction is played after it. */
  goTo(at) {
    this.here = at;
    this.branch = branchThrough(at, this.branch);
    Object.assign(this, { error: "", files: [] });
    this.changed();
  }

  /** Go back one turn, and return its instruction or an empty text. The turn stays in the story, on its branch. */
  undo() {
    if (!this.here.parent || this.busy) return "";
    const written = writtenFor(this.here.turn);
    this.goTo(this.here.parent);
    return written;
  }

  /** Interrupt the running prompt and cancel the waiting ones. */
  async stop() {
    const ids = this.jobs.map((job) => job.id);
    this.batch = this.#uploading = null;
    await this.guard(() => this.port.cancel(ids));
    const queued = await this.port.queued().catch(() => this.jobs);
    this.jobs = this.jobs.filter((job) => queued.some(({ id }) => id === job.id));
    this.changed(this.busy ? "" : "stopped");
  }

  /** A node has finished; ours has the results. */
  executed({ prompt_id: id, node, output }) {
    if (String(node) !== TURN_NODE) return;
    const result = output?.animegamer_story?.[0];
    const notes = output?.animegamer_notes ?? [];
    this.update(id, { result: result && { branch: result.branch, files: result.files ?? [] }, notes });
  }

  /** One of our prompts has succeeded: read the story again, and go to the new turn. */
  succeeded(detail) {
    return this.#inTurn(() => this.#settle(detail));
  }

  /** Run `settle` functions one after another, since only the first of three takes moves to its turn. */
  #inTurn(settle) {
    return (this.#settled = this.#settled.then(settle, settle));
  }

  async #settle(detail) {
    const job = this.take(detail);
    if (!job) return;
    const { story } = this;
    const result = job.result ?? {};
    if (job.exported) this.files = result.files ?? [];
    this.notes = job.notes ?? [];
    const place = { branch: result.branch, number: job.after + 1 };
    const moves = !job.exported && !job.stay && this.here.number === job.after;
    await this.guard(() => this.#readStory(moves ? place : undefined));
    if (story === this.story) this.changed(moves ? "turn" : "");
  }

  /** One of our prompts has failed. Read the story again, since it may have been changed or deleted. */
  failed(detail) {
    return this.#inTurn(() => this.#settleFailed(detail));
  }

  async #settleFailed(detail) {
    if (!this.take(detail)) return;
    const { story } = this;
    await this.guard(async () => {
      await this.#readStories();
      if (this.#knows(story)) await this.#readStory();
      else if (story === this.story) this.#clear();
    });
    if (story === this.story) this.changed("failed", errorSentence(detail, "failed"));
  }

  /** One of our prompts was interrupted. */
  interrupted(detail) {
    if (this.take(detail)) this.changed("stopped");
  }

  async catchUp() {
    if (!this.#opening) await super.catchUp(); // `open` calls this itself at its end
  }

  async #send(requests) {
    if (this.busy) return;
    const { story, world } = this;
    const window = this.here.turn?.window;
    const opening = this.root.children.length ? null : this.opening;
    const batch = [];
    Object.assign(this, { error: "", notes: [], files: [], sent: requests.length, finished: 0, batch });
    this.changed();
    if (this.root.children.length && !(await this.#isThere())) requests = [];
    for (const { stay, ...request } of requests) {
      if (this.batch !== batch) return;
      const sent = await this.guard(async () => {
        const kept = { world, story, at: this.here, branch: this.root.openings[this.branch] ? this.branch : "", whole: true };
        const graph = request.exported ? graphPrompt(kept) : undefined;
        const id = await this.port.queue(turnPrompt({ world, story, window, opening, ...request }), graph);
        if (this.batch !== batch) {
          if (story === this.story) await this.port.cancel([id]); // stopped; prompts of a story that was closed go on
          return false;
        }
        const { after, exported, instruction = "" } = request;
        this.jobs.push({ id, after, exported: Boolean(exported), stay: Boolean(stay), instruction });
        this.changed();
        return true;
      });
      if (!sent) break;
    }
    if (this.batch !== batch) return;
    this.batch = null;
    this.changed();
    for (const [event, detail] of batch) await this.hear(event, detail); // a known turn may have ended already
  }

  /** Whether a story with turns is still on the disk. A prompt for a deleted one would only fail. */
  async #isThere() {
    const { story } = this;
    const read = await this.guard(() => this.#readStories());
    if (story !== this.story || this.#knows(story)) return read;
    this.#clear();
    this.changed("failed", `Story ${story} was removed from the output folder. The next turn starts it again.`);
    return false;
  }

  /** The {name, subfolder} of an uploaded file, with the other values; undefined if stopped or left meanwhile. */
  async #upload({ file, ...values }) {
    const mine = (this.#uploading = {});
    this.changed();
    try {
      const { name, subfolder } = await this.port.upload(file);
      return this.#uploading === mine ? { ...values, name, subfolder } : undefined;
    } finally {
      if (this.#uploading === mine) this.#uploading = null;
      this.changed();
    }
  }

  async #readStories() {
    const { stories, worlds, absent } = await this.port.getJson("/animegamer/stories");
    Object.assign(this, { stories, worlds, absent });
    this.changed();
    return true;
  }

  /** The words of a world. With `story`: an error if a story cannot have that name or the world cannot be played. */
  #readWords(asked) {
    return this.port.getJson(`/animegamer/words?${new URLSearchParams(asked)}`);
  }

  #knows(name) {
    return this.stories.some((story) => story.name === name);
  }

  /** An empty tree, at its beginning. */
  #clear() {
    this.here = this.root = buildTree([]);
    this.branch = "";
  }

  async #readStory(place) {
    const name = this.story;
    const saved = await this.port.getJson(`/animegamer/story?${new URLSearchParams({ name })}`);
    if (name !== this.story) return; // another story was opened meanwhile
    this.world = saved.world;
    const key = this.here.key;
    this.root = buildTree(saved.branches ?? [], saved.gauges);
    this.error = (saved.branches ?? []).find((branch) => branch.error)?.error ?? this.error;
    const branch = place?.branch ?? saved.branch;
    if (place) Object.assign(this, { branch, here: findTurn(this.root, branch, place.number ?? Infinity) });
    else if (!key) this.here = this.root;
    else this.here = allTurns(this.root).find((at) => at.key === key) ?? findTurn(this.root, branch, Infinity);
    this.branch = branchThrough(this.here, this.branch);
  }

  /** Also save what a reload needs. */
  changed(event, error) {
    if (this.story) {
      const jobs = this.jobs.map(({ running, value, max, result, notes, ...job }) => job); // without what it has done
      const { story, world, branch, settings, opening, places } = this;
      this.storage.write({ story, world, branch, number: this.here.number, jobs, settings, opening, places });
    }
    super.changed(event, error);
  }
}
