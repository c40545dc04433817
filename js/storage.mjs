// State that survives a reload: the story, the current turn, the queued prompts, the form's settings, and also the
// prompts of turns that are drawn ahead.

const KEY = "animegamer.play";

/** read() returns what write(state) has saved in `store` (storage of the browser), or {}. Neither of them throws. */
export function createStorage(store, key = KEY) {
  return {
    read() {
      try {
        return JSON.parse(attempt(() => store.getItem(key)) ?? null) ?? {};
      } catch (error) {
        if (error instanceof SyntaxError) return {};
        throw error;
      }
    },
    write: (state) => attempt(() => store.setItem(key, JSON.stringify(state))),
  };
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
