// The state of a turn from the server (the ui value `animegamer_state`), checked and completed.

export const SCOPES = ["still", "gentle", "brisk", "fast", "wild"];
const SAVED_TURNS = 100; // turns of the chart that a saved workflow contains

/** A complete state from any value, or null if it is not a state. */
export function readState(item) {
  if (!item || typeof item !== "object" || !item.stats) return null;
  const names = Object.keys(item.stats); // the stats of its world, in their order
  const readStats = (stats, low, high) =>
    Object.fromEntries(names.map((name) => [name, Math.max(low, Math.min(high, whole(stats?.[name], 0)))]));
  const readPoint = (point) => ({
    turn: whole(point?.turn, 0),
    motion: levelOf(point?.motion),
    ...readStats(point, 0, 100),
  });
  return {
    turn: whole(item.turn, 0),
    instruction: String(item.instruction ?? ""),
    motion: readMotion(item.motion),
    gauges: names.map((name) => ({ name, label: "", ...item.gauges?.[name] })),
    stats: readStats(item.stats, 0, 100),
    changes: readStats(item.changes, -100, 100),
    course: (Array.isArray(item.course) ? item.course : []).map(readPoint),
    refused: (Array.isArray(item.refused) ? item.refused : []).filter((name) => names.includes(name)),
    unknownWords: (Array.isArray(item.unknown_words) ? item.unknown_words : []).map(String),
    recalled: (Array.isArray(item.recalled) ? item.recalled : []).map((number) => whole(number, 0)),
  };
}

/** The state for a saved workflow: with the last turns only, without their texts. */
export function savedState(item) {
  const course = (Array.isArray(item?.course) ? item.course : []).slice(-SAVED_TURNS);
  return { ...item, course: course.map(({ instruction, ...point }) => point) };
}

/** What a stat is called: its world's word, or its translated name. */
export function labelOf({ name, label }, say) {
  return label || say(name);
}

/** `+5`, `-5` with a true minus sign, or an empty text for no change. */
export function signed(points) {
  if (!points) return "";
  return points > 0 ? `+${points}` : `\u2212${-points}`;
}

/**
 * The turns that a state remembers (0 is the opening picture), and the stats whose change the world's rules did not
 * count, as words; an empty text if there are none.
 */
export function rememberedWords(state, say) {
  const turns = state.recalled.map((number) => (number ? say("turn", { number }) : say("openingPicture")));
  const stats = state.gauges.filter(({ name }) => state.refused.includes(name)).map((gauge) => labelOf(gauge, say));
  const notes = [
    turns.length ? say("remembered", { turns: turns.join(", ") }) : "",
    stats.length ? say("refused", { stats: stats.join(", ") }) : "",
  ];
  return notes.filter(Boolean).join(" \u00b7 ");
}

/** A state in one sentence, for screen readers. */
export function describeState(state, say) {
  const stats = state.gauges.map((gauge) => {
    const change = signed(state.changes[gauge.name]);
    return `${labelOf(gauge, say)} ${state.stats[gauge.name]}${change ? ` (${change})` : ""}`;
  });
  const motion = `${say("motion")} ${say(state.motion.scope)}`;
  const words = [motion, ...stats, rememberedWords(state, say)].filter(Boolean);
  return `${say("turn", { number: state.turn })}: ${words.join(", ")}`;
}

/** An `animegamer_state` item for the last turn of a path (nodes of tree.mjs), with the turns up to it. */
export function itemOfPath(path) {
  const course = path.map(({ number, turn }) => ({ turn: number, ...turn.stats, motion: levelOf(turn.motion) }));
  const { number, turn } = path[path.length - 1];
  return { ...turn, turn: number, gauges: path[0].parent?.gauges, course };
}

function readMotion(motion) {
  const level = levelOf(motion);
  const value = Number(motion?.value);
  return {
    level,
    scope: SCOPES[level - 1] ?? "unread",
    value: motion?.value != null && Number.isFinite(value) ? value : null,
  };
}

function levelOf(motion) {
  if (motion && typeof motion === "object") return whole(motion.level ?? SCOPES.indexOf(motion.scope) + 1, 0);
  return typeof motion === "string" && SCOPES.includes(motion) ? SCOPES.indexOf(motion) + 1 : whole(motion, 0);
}

/** A whole number from any value. */
export function whole(value, otherwise) {
  const number = Number(value);
  return Number.isFinite(number) ? Math.round(number) : otherwise;
}
