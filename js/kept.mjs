// What local storage keeps over a reload: the story, the place in it, the prompts on their way, the form's settings.

const KEPT = "animegamer.play";

/** Over `store` (local storage): read() -> what was written, or {}; write(place). Neither fails. */
export function createKept(store) {
  return {
    read() {
      try {
        return JSON.parse(tried(() => store.getItem(KEPT)) ?? null) ?? {};
      } catch (error) {
        if (error instanceof SyntaxError) return {};
        throw error;
      }
    },
    write: (place) => tried(() => store.setItem(KEPT, JSON.stringify(place))),
  };
}

/** A store that is full or forbidden costs the place after a reload, never the game. */
function tried(act) {
  try {
    return act();
  } catch (error) {
    if (error instanceof DOMException) return undefined;
    throw error;
  }
}
