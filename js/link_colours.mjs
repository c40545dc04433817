// The colours of links and slots that carry the pack's own values.

const COLOURS = {
  ANIMEGAMER_MODEL: "#8f6fe0",
  ANIMEGAMER_HISTORY: "#d07a1c",
  ANIMEGAMER_STATE: "#2fae71",
  ANIMEGAMER_SHOT: "#4a8ae0",
  ANIMEGAMER_LORA: "#d8563f",
  ANIMEGAMER_DATASET: "#a3a838",
};

/**
 * Give a table of colours by type ours. A palette that is chosen later empties every type that it does not name: an
 * empty colour is ours again, another one is the palette's own.
 */
export function addColours(table) {
  for (const [type, ours] of Object.entries(COLOURS)) {
    let colour = ours;
    Object.defineProperty(table, type, {
      get: () => colour,
      set: (wanted) => {
        colour = wanted || ours;
      },
      enumerable: true,
      configurable: true,
    });
  }
}

const slots = Object.entries(COLOURS).map(([type, colour]) => `--color-datatype-${type}: ${colour};`);

/** The same for the slots of Nodes 2.0, which take theirs from the page's style: a palette's own stands before it. */
export const SLOT_STYLE = `:root { ${slots.join(" ")} }\n`;
