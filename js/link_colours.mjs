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
 * Add our colours to a table of colours by type. A palette that is chosen later sets types that it does not name to an
 * empty colour; then our colour is used. A palette's own colour is kept.
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

/** The same for the slots of Nodes 2.0, which use the page's style; a palette's own colour comes first. */
export const SLOT_STYLE = `:root { ${slots.join(" ")} }\n`;
