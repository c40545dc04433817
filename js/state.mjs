// What a turn did to the game, as the server tells it (the ui value `animegamer_state`), checked and made whole.

export const GAUGES = ["stamina", "social", "entertainment"];
export const SCOPES = ["still", "gentle", "brisk", "fast", "wild"];
const COURSE_KEPT = 100; // turns of the course that a saved workflow carries

/** A whole state of whatever came in, or null if it is none. */
export function readState(item) {
  if (!item || typeof item !== "object" || !item.gauges) return null;
  return {
    turn: whole(item.turn, 0),
    instruction: String(item.instruction ?? ""),
    motion: readMotion(item.motion),
    gauges: readGauges(item.gauges, 0, 100),
    changes: readGauges(item.changes, -100, 100),
    course: (Array.isArray(item.course) ? item.course : []).map(readPoint),
    unknownWords: (Array.isArray(item.unknown_words) ? item.unknown_words : []).map(String),
  };
}

/** The state as a workflow keeps it: as it came, with a course of the last turns and without their texts. */
export function keptState(item) {
  const course = (Array.isArray(item?.course) ? item.course : []).slice(-COURSE_KEPT);
  return { ...item, course: course.map(({ instruction, ...point }) => point) };
}

/** `+5`, `-5` with a true minus sign, or an empty text for no change. */
export function signed(points) {
  if (!points) return "";
  return points > 0 ? `+${points}` : `\u2212${-points}`;
}

/** A state in one sentence, for screen readers. */
export function describeState(state, say) {
  const gauges = GAUGES.map((name) => {
    const change = signed(state.changes[name]);
    return `${say(name)} ${state.gauges[name]}${change ? ` (${change})` : ""}`;
  });
  const motion = `${say("motion")} ${say(state.motion.scope)}`;
  return `${say("turn", { number: state.turn })}: ${[motion, ...gauges].join(", ")}`;
}

/** The state of the last of a path's turns (nodes of tree.mjs), with the course up to it: an `animegamer_state` item. */
export function itemOfPath(path) {
  const course = path.map(({ number, turn }) => ({ turn: number, ...turn.gauges, motion: levelOf(turn.motion) }));
  const { number, turn } = path[path.length - 1];
  return { ...turn, turn: number, course };
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

function readGauges(gauges, low, high) {
  return Object.fromEntries(GAUGES.map((name) => [name, Math.max(low, Math.min(high, whole(gauges?.[name], 0)))]));
}

function readPoint(point) {
  return { turn: whole(point?.turn, 0), motion: levelOf(point?.motion), ...readGauges(point, 0, 100) };
}

function whole(value, otherwise) {
  const number = Number(value);
  return Number.isFinite(number) ? Math.round(number) : otherwise;
}
