"use strict";
// What the page shows, what was changed of it, and the rules that values have to keep (those of records.py).

const DATA = JSON.parse(document.getElementById("dataset").textContent);
const FIELDS = ["character", "motion", "adverb", "background", "stats"];
const CLIPS = DATA.clips.map((row, index) => ({
  index, aside: row.aside, game: row.game, ...Object.fromEntries(DATA.keys.map((key, at) => [key, row.values[at]])),
}));
const BY_PATH = new Map(CLIPS.map((clip) => [clip.clip, clip]));
const keyOf = (digest) => `animegamer-review ${digest}`;
const KEY = keyOf(DATA.digest);
// path -> {field: value, ...} and drop; drop: false brings back what was dropped before. A change of scene has a key in
// place of a path, and its whole line.
const changes = new Map();
const past = []; // [path, its change before], for undo
let exported = ""; // the corrections as they were last exported

// What state.clean_text turns into spaces: control characters and separators. Half of a character is one of them.
const isText = (value) => typeof value === "string" && !/^[\p{C}\p{Z}]*$/u.test(value);
const trimmed = (text) => text.replace(/^[\p{C}\p{Z}]+|[\p{C}\p{Z}]+$/gu, "");
const same = (one, other) => JSON.stringify(one) === JSON.stringify(other);

/** What is wrong with a value of a field, in a sentence; "" if nothing is. null is a missing value. */
function problemOf(name, value) {
  if (value === null) return "";
  if (name === "stats") {
    const known = typeof value === "object" && Object.keys(value).length === DATA.stats.length;
    const odd = DATA.stats.find((stat) => !known || ![null, ...stat.choices].includes(value[stat.name]));
    return odd ? `Choose ${odd.choices.join(" or ")} for ${odd.name}.` : "";
  }
  if (name === "character") {
    if (!Array.isArray(value) || !value.length || !value.every(isText)) return "Give at least one name.";
    const odd = value.find((one) => /[;,]| and /.test(one));
    return odd === undefined ? "" : `Give each name its own entry, without “,”, “;” and “and”.`;
  }
  if (typeof value !== "string" || (name !== "adverb" && !isText(value))) return "Say it in a few words.";
  return value.includes(";") ? "Remove the “;”, which separates an instruction's parts." : "";
}

const changeOf = (clip) => changes.get(clip.clip) ?? {};
const valueOf = (clip, name) => (name in changeOf(clip) ? changeOf(clip)[name] : clip[name]);
const isOut = (clip) => changeOf(clip).drop === true;
const labelOf = (stat) => stat.label || stat.name[0].toUpperCase() + stat.name.slice(1);
const statOf = (clip, name) => valueOf(clip, "stats")?.[name] ?? null;
const isThere = (clip, name) => (name === "stats"
  ? DATA.stats.every((stat) => statOf(clip, stat.name) !== null) : valueOf(clip, name) !== null);
// A caption is complete without an adverb.
const needsNoAdverb = (clip) => changes.has(clip.clip) && valueOf(clip, "adverb") === null
  && FIELDS.every((name) => name === "adverb" || isThere(clip, name));
const isWhole = (clip) => needsNoAdverb(clip) || FIELDS.every((name) => isThere(clip, name));

/** Replace a clip's change, as one step of undo; returns whether that is a change at all. */
function commit(path, next) {
  const before = changes.get(path);
  if (same(before ?? {}, next)) return false;
  past.push([path, before]);
  put(path, next);
  return true;
}

function put(path, next) {
  if (next && Object.keys(next).length) changes.set(path, next);
  else changes.delete(path);
  keep();
  document.dispatchEvent(new CustomEvent("changed", { detail: path }));
}

const setField = (clip, name, value) => setFields(clip, { [name]: value });

/** Change fields of a clip; what follows from them is proposed where nobody has said it. */
function setFields(clip, values) {
  const next = { ...changeOf(clip), ...values, ...proposed(clip, values) };
  for (const name of Object.keys(next)) if (name !== "drop" && same(next[name], clip[name])) delete next[name];
  return commit(clip.clip, next);
}

// The paper's rules for the stats (supplement, section 2): in company; at play, sport or leisure; whether it restores.
const PLAYS = /\b(play|read|rid(e|ing)|fly|swim|whisper|dance|sing|shoot|jump|game|watch|relax|listen|smile|laugh)/i;
const RESTORES = /\b(eat|drink|lie|lying|sleep|rest|hug|sit|heal|treat|nap|relax|chew)/i;
const RULES = { social: (who) => who.length > 1, entertainment: (_, what) => PLAYS.test(what), stamina: (_, what) => RESTORES.test(what) };

/** The stats that the rules give; a stat without a rule is null, and so are all until somebody says who does what. */
function ruledStats(who, what) {
  if (!who || !what) return null;
  const of = ({ name, choices }) => (RULES[name] ? Math[RULES[name](who, what) ? "max" : "min"](...choices) : null);
  return Object.fromEntries(DATA.stats.map((stat) => [stat.name, of(stat)]));
}

/** What follows from new values: the adverb from the measured level, the stats by the rules, unless a person chose. */
function proposed(clip, values) {
  const [before, after] = [(name) => valueOf(clip, name), (name) => (name in values ? values[name] : valueOf(clip, name))];
  const found = {}, stats = ruledStats(after("character"), after("motion"));
  if (!stats) return found;
  if (after("adverb") === null && !("adverb" in values) && clip.motion_level) found.adverb = DATA.adverbs[clip.motion_level - 1];
  const chosen = before("stats") && clip.stats !== null;
  if (!chosen && !("stats" in values) && (!before("stats") || same(before("stats"), ruledStats(before("character"), before("motion")))))
    found.stats = stats;
  return found;
}

function setStat(clip, name, value) {
  const stats = Object.fromEntries(DATA.stats.map((stat) => [stat.name, statOf(clip, stat.name)]));
  return setField(clip, "stats", { ...stats, [name]: value });
}

function toggleDrop(clip) {
  const { drop, ...rest } = changeOf(clip);
  return commit(clip.clip, drop ? rest : { ...rest, drop: true });
}

/** Take back the last step; returns the path of its clip. */
function undo() {
  const [path, before] = past.pop() ?? [];
  if (path !== undefined) put(path, before);
  return path;
}

/** The lines of corrections.jsonl, and how many set-aside clips are left out because their caption is incomplete. */
function corrections() {
  const lines = [];
  let unfinished = 0;
  for (const [path, change] of changes) {
    const clip = BY_PATH.get(path);
    if ("film" in change) lines.push(change);
    else if ("drop" in change) lines.push({ clip: path, drop: change.drop });
    else if (clip.aside && !isWhole(clip)) unfinished += 1;
    else lines.push({ clip: path, ...change, ...(clip && needsNoAdverb(clip) ? { adverb: "" } : {}) });
  }
  return { lines, unfinished, text: lines.map((line) => `${JSON.stringify(line)}\n`).join("") };
}

const unexported = () => changes.size > 0 && corrections().text !== exported;

function keep() {
  remembering((memory) =>
    changes.size ? memory.setItem(KEY, JSON.stringify({ changes: [...changes], exported })) : memory.removeItem(KEY));
}

/** Read what an earlier visit left; returns how many clips it changed. */
function recall() {
  const kept = remembering((memory) => JSON.parse(memory.getItem(KEY)));
  const gone = new Set(DATA.dropped.map((row) => row[4])); // all that can be done to these is to bring them back
  const known = (path, change) => BY_PATH.has(path) || (gone.has(path) && change.drop === false)
    || ("film" in change && isOpenSceneChange(change));
  for (const [path, change] of kept?.changes ?? []) if (known(path, change)) changes.set(path, change);
  exported = kept?.exported ?? "";
  return changes.size;
}
