// A server for the session's tests: it keeps stories as branches of turns, the way the real one does.

const SCOPES = ["still", "gentle", "brisk", "fast", "wild"];

/** `port` as PlaySession wants it; run() plays what waits and tells the session; fail(sentence) makes the next run fail. */
export class FakeServer {
  constructor() {
    Object.assign(this, { stories: {}, waiting: [], done: {}, sent: [], failure: "", count: 0 });
    this.cancelled = [];
    this.uploads = [];
    this.prompts = {}; // id -> what was sent
  }

  get port() {
    return {
      getJson: async (path) => this.#answer(path),
      postJson: async () => ({}), // a check that finds nothing
      queue: async (prompt, graph) => this.#queue(prompt, graph),
      upload: async (file) => {
        if (this.failure) throw new Error(this.failure);
        this.uploads.push(file);
        return { name: file.name, subfolder: "", type: "input" };
      },
      queued: async () => this.waiting.map(({ id, prompt, runs }) => ({ id, prompt, running: Boolean(runs) })),
      history: async (id) => this.done[id] ?? null,
      cancel: async (ids) => {
        this.waiting = this.waiting.filter((job) => !ids.includes(job.id));
        this.cancelled.push(...ids);
      },
    };
  }

  /** The first waiting prompt starts to run; no page hears of it. */
  start() {
    this.waiting[0].runs = true;
  }

  /** Play the waiting prompts, at most `most`; `session` hears of it, as over the socket. */
  async run(session, most = Infinity) {
    for (let count = 0; count < most && this.waiting.length; count += 1) {
      const { id, game } = this.waiting.shift();
      session?.hear("began", { prompt_id: id });
      if (this.failure) {
        const error = { prompt_id: id, exception_message: this.failure };
        this.done[id] = { status: { status_str: "error", messages: [["execution_error", error]] } };
        this.failure = "";
        await session?.hear("failed", error);
        continue;
      }
      session?.hear("progressed", { prompt_id: id, value: 3, max: 12 });
      const output = this.#play(game);
      this.done[id] = { status: { status_str: "success", messages: [] }, outputs: { "animegamer-turn": output } };
      session?.hear("executed", { prompt_id: id, node: "animegamer-turn", output });
      await session?.hear("succeeded", { prompt_id: id });
    }
  }

  #queue(prompt, graph) {
    this.sent.push(prompt);
    this.graph = graph;
    const { world } = prompt["animegamer-world"]?.inputs ?? {}; // a film needs none
    if (world === "nowhere")
      throw Object.assign(new Error("refused"), {
        response: {
          error: { message: "Prompt outputs failed validation" },
          node_errors: { a: { errors: [{ message: "Value not in list", details: "world: 'nowhere' not in ['toybox']" }] } },
        },
      });
    this.count += 1;
    const { class_type: kind, inputs } = prompt["animegamer-turn"];
    const said = prompt[inputs.opening?.[0]]?.inputs.motion_text; // of turn 0
    this.waiting.push({ id: `p${this.count}`, prompt, game: { kind, world, ...inputs, opening: said } });
    this.prompts[`p${this.count}`] = prompt;
    return `p${this.count}`;
  }

  #play({ kind: _, ...game }) {
    return "subtitles" in game ? this.#film(game) : this.#turns(game);
  }

  #film({ story, branch, turns, name }) {
    const files = [{ filename: `${name}.mp4`, subfolder: `animegamer/${story}/films`, type: "output" }];
    return { animegamer_story: [{ story, branch, turns, files }] };
  }

  #turns({ world, story: name, branch, after, instructions, seed, export: exported, autoplay, opening }) {
    const story = (this.stories[name] ??= { name, world, branch: "main", branches: { main: [] }, opening });
    let current = branch || story.branch;
    let turns = story.branches[current].slice(0, after);
    if (instructions || autoplay) {
      const turn = this.#turn(turns, instructions || "proposed", seed + after);
      turns = [...turns, turn];
      const known = story.branches[current][after];
      if (known && known.shot !== turn.shot) current = this.#lineFor(story, turns);
      if (!story.branches[current]?.[after]) story.branches[current] = turns;
    }
    story.branch = current;
    const files = exported ? [{ filename: "story.mp4", subfolder: `animegamer/${name}`, type: "output" }] : [];
    return {
      animegamer_story: [{ story: name, branch: current, turns: turns.length, files }],
      animegamer_state: [{ turn: turns.length }],
    };
  }

  #lineFor(story, turns) {
    const same = (branch) => turns.every((turn, index) => branch[index]?.shot === turn.shot);
    return (
      Object.keys(story.branches).find((name) => same(story.branches[name])) ?? `branch-${Object.keys(story.branches).length + 1}`
    );
  }

  #turn(before, text, seed) {
    const instruction = text;
    const last = before.at(-1);
    const state = `${last?.state ?? ""}>${instruction}`;
    const stats = { stamina: (last?.stats.stamina ?? 50) - 5, social: 50, entertainment: 50 };
    const motion = { scope: SCOPES[before.length % 5], level: (before.length % 5) + 1, value: 2.5 };
    return {
      number: before.length + 1,
      instruction,
      seed,
      state,
      shot: `${last?.shot ?? ""}>${instruction}#${seed}`,
      stats,
      changes: { stamina: -5, social: 0, entertainment: 0 },
      motion,
      clip: null,
    };
  }

  #answer(path) {
    const url = new URL(path, "http://server");
    if (url.pathname === "/animegamer/stories")
      return {
        stories: Object.values(this.stories).map(({ name, world, branch, branches, error }) => ({
          name,
          world,
          branch,
          turns: branches[branch].length,
          error,
        })),
        worlds: ["toybox", "qiqi"],
        absent: ["qiqi"],
      };
    const asked = url.searchParams;
    if (url.pathname === "/animegamer/words" && asked.has("story") && /[/?]/.test(asked.get("story")))
      throw new Error(`story name ${asked.get("story")} is not a valid folder name`);
    if (url.pathname === "/animegamer/words" && asked.has("story") && asked.get("world") === "qiqi")
      throw new Error("world qiqi is not installed");
    if (url.pathname === "/animegamer/words" && asked.get("world") === "film") return { warnings: ["hardly trained"] };
    if (url.pathname === "/animegamer/words")
      return { characters: ["Miko"], motions: ["run"], adverbs: ["gently"], times: ["day"], places: ["beach"] };
    const story = this.stories[url.searchParams.get("name")];
    if (!story) throw new Error("no story of this name");
    const { opening = null } = story;
    const opening_clip = opening && { filename: "0.mp4", subfolder: `animegamer/${story.name}/openings`, type: "output" };
    return { ...story, branches: Object.entries(story.branches).map(([name, turns]) => ({ name, turns, opening, opening_clip })) };
  }
}


/** Local storage for one test. */
export function memoryStore() {
  const kept = new Map();
  return {
    getItem: (key) => kept.get(key) ?? null,
    setItem: (key, value) => kept.set(key, String(value)),
    removeItem: (key) => kept.delete(key),
  };
}
