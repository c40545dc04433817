// What the server says of a turn, in the language of the page.

import { TABLES } from "./translations.mjs";

const NOTES = ["lastActGoesOn", "isOnNow", "onlyOne", "onlyTwo", "takesTwo", "shownInstead", "leftOut"];

/** A note of a reading, found by its English; any other text as it is. */
export function noteWords(note, say) {
  for (const key of NOTES) {
    const pattern = TABLES.en[key].replace(/[.?]/g, "\\$&").replace(/\{(\w+)\}/g, "(?<$1>.+)");
    const found = new RegExp(`^${pattern}$`).exec(note);
    if (found) return say(key, found.groups);
  }
  return note;
}

/** Why a turn's shot is only a draft (`draft` of GET /animegamer/story), as one line that begins with `title`. */
export function draftWords({ steps, of: all }, say, title = "draft") {
  return `${say(title)} \u00b7 ${say("draftSteps", { steps, all })}`;
}
