// The pack's settings in ComfyUI's own dialog. What belongs to a turn (seed, motion, steps) stays in the Play tab's form.

import { reducedMotion } from "./clips.mjs";

export const CLIPS = "AnimeGamer.PlayTab.ClipsMove";
export const PREVIEW = "AnimeGamer.PlayTab.Preview";
export const MESSAGES = "AnimeGamer.Messages";

/** The settings, as an extension registers them. `clipsChanged(wanted)` is called with the value of CLIPS. */
export function createSettings(clipsChanged) {
  return [
    {
      id: CLIPS,
      category: ["AnimeGamer", "Play tab", "Clips"],
      name: "Clips move by themselves",
      tooltip: "Off: clips show their first frame until you point at them. The pause button of the Play tab changes it too.",
      type: "boolean",
      defaultValue: () => !reducedMotion(),
      onChange: clipsChanged,
    },
    {
      id: PREVIEW,
      category: ["AnimeGamer", "Play tab", "Preview"],
      name: "Show a shot while it is drawn",
      tooltip: "The picture so far takes the place of the clip. How it is made: the setting Live preview method of ComfyUI.",
      type: "boolean",
      defaultValue: true,
    },
    {
      id: MESSAGES,
      category: ["AnimeGamer", "Messages", "Ended"],
      name: "Tell what has ended while its tab was closed",
      tooltip: "A short message at the edge of the page: a turn is played or has failed, a training has ended.",
      type: "boolean",
      defaultValue: true,
    },
  ];
}
