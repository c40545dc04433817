// Commands of the Play tab for ComfyUI's list of commands, with keys that neither ComfyUI nor browsers use.

import { takesOf } from "./tree.mjs";

export const OPEN = "Workspace.ToggleSidebarTab.animegamer.play"; // ComfyUI's own command, made for the tab

// Letters with Shift alone, since Alt and Ctrl with letters write signs on some keyboards; in a text field they are text.
export const KEYBINDINGS = [
  { combo: { key: "p", shift: true }, commandId: OPEN },
  { combo: { key: "Enter", alt: true }, commandId: "AnimeGamer.PlayTurn" },
  { combo: { key: "u", shift: true }, commandId: "AnimeGamer.UndoTurn" },
  { combo: { key: "t", shift: true }, commandId: "AnimeGamer.NextTake" },
];

/** The commands, as an extension registers them. `openTab()` returns the Play tab, after opening it where it is closed. */
export function createCommands(session, openTab) {
  const command = (id, label, icon, act) => ({ id: `AnimeGamer.${id}`, label, icon: `pi pi-${icon}`, function: act });
  return [
    command("PlayTurn", "AnimeGamer: play the turn that is written in the Play tab", "play", async () => {
      (await openTab()).play();
    }),
    command("UndoTurn", "AnimeGamer: undo the last turn, or bring back the story that was deleted last", "undo", async () => {
      const tab = await openTab();
      if (session.story) tab.undo();
      else await tab.takeBack();
    }),
    command("NextTake", "AnimeGamer: show the next take of the turn", "clone", async () => {
      await openTab();
      const next = nextTake(session.here);
      if (next && !session.busy) session.goTo(next);
    }),
  ];
}

/** The take after the turn's current one, wrapping around; null if there is no other. */
export function nextTake(at) {
  const takes = at.parent ? takesOf(at) : [];
  return takes.length > 1 ? takes[(takes.indexOf(at) + 1) % takes.length] : null;
}
