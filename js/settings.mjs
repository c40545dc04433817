// The pack's settings in ComfyUI's own dialog. What belongs to a turn (seed, motion, steps) stays in the Play tab's form.

import { reducedMotion } from "./clips.mjs";
import { whole } from "./state.mjs";

export const CLIPS = "AnimeGamer.PlayTab.ClipsMove";
export const PREVIEW = "AnimeGamer.PlayTab.Preview";
export const MESSAGES = "AnimeGamer.Messages";
const TAKES = "AnimeGamer.PlayTab.Takes";

/**
 * The settings, as an extension registers them. `clipsChanged(wanted)` is called with the value of CLIPS,
 * `takesChanged(takes)` with that of TAKES.
 */
export function createSettings(clipsChanged, takesChanged) {
  return [
    {
      id: CLIPS,
      category: ["AnimeGamer", "Play tab", "Clips"],
      name: "Play clips automatically",
      tooltip: "Off: clips show their first frame until you hover over them. The pause button of the Play tab also changes this.",
      type: "boolean",
      defaultValue: () => !reducedMotion(),
      onChange: clipsChanged,
    },
    {
      id: PREVIEW,
      category: ["AnimeGamer", "Play tab", "Preview"],
      name: "Show a shot while it is drawn",
      tooltip: "A preview replaces the clip. ComfyUI's setting Live preview method controls how it is made.",
      type: "boolean",
      defaultValue: true,
    },
    {
      id: TAKES,
      category: ["AnimeGamer", "Play tab", "Takes"],
      name: "Takes",
      tooltip: "How many takes the second button of the Play tab draws of each turn.",
      type: "slider",
      attrs: { min: 2, max: 8, step: 1 },
      defaultValue: 3,
      onChange: (takes) => takesChanged(Math.max(2, Math.min(8, whole(takes, 3)))),
    },
    {
      id: MESSAGES,
      category: ["AnimeGamer", "Messages", "Ended"],
      name: "Notify me when work ends while its tab is closed",
      tooltip: "A short message at the edge of the page when a turn was played or has failed, or a training run has ended.",
      type: "boolean",
      defaultValue: true,
    },
  ];
}
