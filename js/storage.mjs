// State that survives a reload: the story, the current turn, the queued prompts, and the form's settings.

const KEY = "animegamer.play";
const isObject = (value) => typeof value === "object" && value !== null && !Array.isArray(value);
const isText = (value) => typeof value === "string";
// What may be kept. Other pages of this address, and older versions of this one, may have written anything.
const KINDS = {
  story: isText,
  world: isText,
  branch: isText,
  number: Number.isInteger,
  jobs: (value) => Array.isArray(value) && value.every((job) => isObject(job) && isText(job.id)),
  settings: isObject,
  places: isObject,
  opening: (value) => isObject(value) && isText(value.name) && isText(value.text ?? ""),
};

/**
 * read() returns what write(state) has saved in `store` (storage of the browser), without values of another kind, or {}.
 * Neither of them throws.
 */
export function createStorage(store, key = KEY) {
  return {
    read() {
      const saved = parsed(attempt(() => store.getItem(key)));
      return isObject(saved) ? Object.fromEntries(Object.entries(saved).filter(([name, value]) => KINDS[name]?.(value))) : {};
    },
    write: (state) => attempt(() => store.setItem(key, JSON.stringify(state))),
  };
}

function parsed(text) {
  try {
    return JSON.parse(text ?? null);
  } catch (error) {
    if (error instanceof SyntaxError) return null;
    throw error;
  }
}

/** If storage is full or forbidden, only the state after a reload is lost. */
function attempt(act) {
  try {
    return act();
  } catch (error) {
    if (error instanceof DOMException) return undefined;
    throw error;
  }
}
