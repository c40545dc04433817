// What the page knows of trainings: the runs, and one run's log, losses and shots. Knows nothing about the page.

/** `getJson(path)` asks the server. Each change calls `onChange(watch)`; `onEnd(event)` hears how a run at work ended. */
export class TrainingWatch {
  #asking = null;
  #again = false;

  constructor(getJson, onChange, onEnd) {
    Object.assign(this, { getJson, onChange, onEnd, chosen: null, now: null, found: { runs: [] }, error: "", open: false });
  }

  /** The step that the shown run has reached, and of how many: {step, steps, pace, left, done}; `pace` in seconds,
   * `left` in seconds and `done` as a part of 1 of all stages that its node trains; null if unknown. */
  get progress() {
    const { curve = [], steps = null, active, before = 0, of = steps, left = null, prepares } = this.found;
    const step = curve.at(-1)?.step ?? 0;
    const pace = active ? paceOf(this.found.log) : null;
    const done = prepares && !before ? prepares[0] / prepares[1] : of ? (before + step) / of : null; // as on the node
    return { step, steps, pace, left, done };
  }

  /** Show this run, and no longer the one at work; null shows that again. */
  async choose(run) {
    this.chosen = run;
    await this.ask();
  }

  /** The server says that a run has begun, gone on or ended. */
  async heard(event) {
    if (["finished", "stopped", "failed"].includes(event.state)) this.onEnd(event);
    if (event.state === "begun") this.chosen = null;
    if (this.open) await this.ask();
  }

  /** Read the shown run from the server. What is asked meanwhile is asked once more at the end. */
  ask() {
    if (this.#asking) this.#again = true;
    return (this.#asking ??= this.#ask().finally(() => {
      this.#asking = null;
      if (this.#again && this.open) this.ask();
      this.#again = false;
    }));
  }

  async #ask() {
    const names = this.chosen ? `?${new URLSearchParams({ run: this.chosen.run, stage: this.chosen.stage })}` : "";
    try {
      this.found = await this.getJson(`/animegamer/training${names}`);
      this.error = "";
    } catch (error) {
      this.error = error.message;
    }
    this.onChange(this);
  }
}

/** Seconds of a step between the last two lines of a log; null where it has fewer. */
export function paceOf(log = []) {
  const [first, last] = log.slice(-2);
  return last ? (last.seconds - first.seconds) / (last.step - first.step) : null;
}

/** A line of the log as people read it: its step, and its other numbers with four digits. */
export function logLine({ step, ...values }, say) {
  const shown = Object.entries(values).filter(([name]) => name !== "seconds");
  return [say("trainedStep", { step }), ...shown.map(([name, value]) => `${name} ${Number(value.toPrecision(4))}`)].join("  ");
}

/** A time in words: 45 s, 12 min, 3 h 05 min. */
export function timeWords(seconds) {
  if (seconds < 90) return `${Math.round(seconds)} s`;
  const minutes = Math.round(seconds / 60);
  const [hours, rest] = [Math.floor(minutes / 60), minutes % 60];
  return hours ? `${hours} h ${String(rest).padStart(2, "0")} min` : `${minutes} min`;
}
