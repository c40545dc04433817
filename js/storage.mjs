// State that survives a reload, in local storage: the story, the current turn, the queued prompts, the form's settings.

const KEY = "animegamer.play";

/** read() returns what write(state) has saved in `store` (local storage), or {}. Neither of them throws. */
export function createStorage(store) {
  return {
    read() {
      try {
        return JSON.parse(attempt(() => store.getItem(KEY)) ?? null) ?? {};
      } catch (error) {
        if (error instanceof SyntaxError) return {};
        throw error;
      }
    },
    write: (state) => attempt(() => store.setItem(KEY, JSON.stringify(state))),
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
