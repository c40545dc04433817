// A small map of a story's branches: one stop per turn, one lane per branch. Screen readers and keys see a tree. A ring
// marks the turns that the current one remembers.

import { el, set, svg } from "./dom.mjs";
import { allTurns, neighbour, recalledBy } from "./tree.mjs";

const STEP = 30; // from turn to turn
const LANE = 26; // from lane to lane
const EDGE = 17;

/** A map that calls `goTo(turn)`. show(root, here, branch) draws it; the beginning is turn 0 if the branch has an opening. */
export function createMap(say, goTo) {
  const rails = svg("svg", { class: "ag-rails", "aria-hidden": "true" });
  const stops = el("div", {
    class: "ag-stops",
    role: "tree",
    "aria-label": say("branches"),
    "aria-describedby": "ag-map-help",
  });
  const help = el("span", { class: "ag-unseen", id: "ag-map-help", text: say("branchesHelp") });
  const element = el("div", { class: "ag-map" }, help, rails, stops);
  let shown = { root: null, here: null, branch: "", recalled: [] };

  function show(root, here, branch) {
    const hadFocus = stops.contains(stops.ownerDocument.activeElement);
    shown = { root, here, branch, recalled: recalledBy(here) };
    const turns = allTurns(root);
    const size = [
      EDGE * 2 + STEP * Math.max(0, ...turns.map((at) => at.number)),
      EDGE * 2 + LANE * Math.max(0, ...turns.map((at) => at.lane)),
    ];
    element.style.setProperty("--width", `${size[0]}px`);
    element.style.setProperty("--height", `${size[1]}px`);
    set(rails, { width: size[0], height: size[1] });
    rails.replaceChildren(
      ...turns.map((at) => svg("path", { d: rail(at), class: at.branches.includes(branch) ? "ag-mine" : null })),
    );
    stops.replaceChildren(createStart(here === root), ...turns.map(createStop));
    const current = stops.querySelector("[aria-current]");
    if (hadFocus) current?.focus({ preventScroll: true });
    if (current)
      element.scrollTo({
        left: current.offsetLeft - element.clientWidth / 2,
        top: current.offsetTop - element.clientHeight / 2,
      });
  }

  function createStart(current) {
    const opening = shown.root.openings[shown.branch];
    const words = opening ? `${say("turn", { number: 0 })}: ${opening.instruction}` : say("beginning");
    return stop(shown.root, words, opening ? " ag-opened" : "", current);
  }

  function createStop(at) {
    const words = `${say("turn", { number: at.number })}: ${at.turn.instruction}, ${say("branch", { branch: at.branches.join(", ") })}`;
    return stop(at, words, at.branches.includes(shown.branch) ? " ag-mine" : "", at === shown.here);
  }

  function stop(at, words, kind, current) {
    const place = { "--x": `${EDGE + at.number * STEP}px`, "--y": `${EDGE + at.lane * LANE}px` };
    const recalled = shown.recalled.includes(at);
    const label = [words, current && say("here"), recalled && say("rememberedHere")].filter(Boolean).join(", ");
    return el("button", {
      type: "button",
      class: `ag-stop${kind}${recalled ? " ag-recalled" : ""}`,
      role: "treeitem",
      vars: place,
      text: at.number || (kind === " ag-opened" ? 0 : ""),
      title: recalled ? `${words}, ${say("rememberedHere")}` : words,
      "aria-label": label,
      "aria-level": at.number + 1,
      "aria-selected": String(current),
      "aria-current": current ? "step" : null,
      tabindex: current ? 0 : -1,
      on: { click: () => goTo(at), keydown: (event) => walk(event, at) },
    });
  }

  function walk(event, at) {
    if (!event.key.startsWith("Arrow") && !["Home", "End"].includes(event.key)) return;
    event.preventDefault();
    const all = [shown.root, ...allTurns(shown.root)];
    stops.children[all.indexOf(neighbour(shown.root, at, event.key, shown.branch))].focus();
  }

  return { element, show };
}

/** The path from a turn's parent: straight along the lane, or with a bend if the branch starts in another lane. */
function rail(at) {
  const [x, y] = [EDGE + at.number * STEP, EDGE + at.lane * LANE];
  const [fromX, fromY] = [x - STEP, EDGE + at.parent.lane * LANE];
  if (fromY === y) return `M${fromX} ${y}H${x}`;
  const middle = (fromX + x) / 2;
  return `M${fromX} ${fromY}C${middle} ${fromY} ${middle - 6} ${y} ${x} ${y}`;
}
