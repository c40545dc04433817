// Parse and compose instructions in the published format, `Character: ..; Motion: .. ..; Background: .. ...`.

export const FIELDS = ["character", "adverb", "motion", "time", "place"];
const PUBLISHED = /^Character: ([^;]+); Motion: ([^;]+); Background: ([^;]+?)\.?$/;

/** Text as one line with single spaces. */
export function oneLine(text) {
  return String(text ?? "")
    .replace(/\s+/g, " ")
    .trim();
}

/** The instruction composed from the fields, without empty parts. */
export function composeInstruction(fields) {
  const tidy = Object.fromEntries(FIELDS.map((name) => [name, oneLine(fields[name]).replace(/[;]/g, ",")]));
  const parts = [
    ["Character", tidy.character],
    ["Motion", oneLine(`${tidy.adverb} ${tidy.motion}`)],
    ["Background", oneLine(`${tidy.time} ${tidy.place}`)],
  ].filter(([, words]) => words);
  return parts.length ? `${parts.map(([label, words]) => `${label}: ${words}`).join("; ")}.` : "";
}

/** What the player wrote for a turn; its instruction, unless that is how something else was read. */
export function writtenFor(turn) {
  return turn?.typed || turn?.instruction || "";
}

/** Three lines (who, what, where) for the published format; one line for any other text. */
export function instructionLines(text) {
  const match = PUBLISHED.exec(oneLine(text));
  return match ? match.slice(1, 4) : [oneLine(text)];
}

/** The fields of a published instruction, or null. `words` (GET /animegamer/words) has the adverbs and times. */
export function readFields(text, words) {
  const match = PUBLISHED.exec(oneLine(text));
  if (!match) return null;
  const [adverb, motion] = firstWord(match[2], words.adverbs);
  const [time, place] = firstWord(match[3], words.times);
  return { character: match[1], adverb, motion, time, place };
}

function firstWord(text, known) {
  const found = (known ?? []).find((word) => text.toLowerCase().startsWith(`${word.toLowerCase()} `));
  return found ? [text.slice(0, found.length), text.slice(found.length + 1)] : ["", text];
}
