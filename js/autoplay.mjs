// Turns that the world plays by itself, one prompt each, so that the player can take over after any of them.

const MOST = 1000;

/** The number of turns to play, from a text of the form: a whole number from 1 to 1000. */
export function turnCount(text) {
  const count = Math.trunc(Number(text));
  return Number.isFinite(count) ? Math.max(1, Math.min(MOST, count)) : 1;
}

/** `session` is the PlaySession; `react(event)` is called with each of its events. */
export class Autoplay {
  #place = ""; // where its next turn is played
  #settings = {};

  constructor(session) {
    this.session = session;
    this.left = 0; // turns to come, the running one included
  }

  get on() {
    return this.left > 0 && this.#place.startsWith(`${this.session.story}/`);
  }

  get #here() {
    const { story, branch, here } = this.session;
    return `${story}/${branch}/${here.number}`; // a story's name has no slash
  }

  /** Play `count` turns after the current one. settings: seed, motion, motionValue, steps of their shots. */
  async start(count, settings = {}) {
    if (this.session.busy) return;
    this.left = count;
    this.#place = this.#here;
    this.#settings = settings;
    await this.session.autoplay(settings);
  }

  /** The player takes over: the running turn is the last one. */
  takeOver() {
    if (!this.on) return;
    this.left = Math.min(this.left, 1);
    this.session.notify();
  }

  /** The running turn is the last one, even if it can no longer be stopped. */
  end() {
    this.left = 0;
  }

  /** A turn was played: play the next one. It ends when something went wrong, or when the player goes elsewhere. */
  async react(event) {
    if (!this.left) return;
    if (event === "failed" || event === "stopped") this.end();
    if (event !== "turn" && this.#place !== this.#here) this.end();
    if (event !== "turn" || !this.on) return;
    this.#place = this.#here;
    this.left -= 1;
    if (this.left > 0) await this.session.autoplay(this.#settings);
  }
}
