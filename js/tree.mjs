// A story's lines as one tree: turns that lines share are one node. Pure; play_map.mjs draws it.

/**
 * The tree of `lines` (GET /animegamer/story). A node: number, turn (as it came; null at the root), parent, children,
 * lines (the names of those that pass through it), key (its oldest line and number: unique, and stable while the story
 * grows) and lane (0 is the first line's).
 */
export function buildTree(lines) {
  const root = node(0, null, null, "");
  for (const line of [...lines].sort((a, b) => age(a.name) - age(b.name))) {
    let at = root;
    at.lines.push(line.name);
    for (const turn of line.turns) {
      let next = at.children.find((child) => same(child.turn, turn));
      if (!next) {
        next = node(at.number + 1, turn, at, `${line.name}/${at.number + 1}`);
        at.children.push(next);
      }
      next.lines.push(line.name);
      at = next;
    }
  }
  giveLanes(root);
  return root;
}

/** All turns, parents first. */
export function allTurns(root) {
  const found = [];
  const open = [...root.children].reverse();
  while (open.length) {
    const at = open.pop();
    found.push(at);
    open.push(...[...at.children].reverse());
  }
  return found;
}

/** Turn `number` of a line; its last turn if it is shorter, the root if there is no such line. */
export function findTurn(root, line, number) {
  let at = root;
  while (at.number < number) {
    const next = at.children.find((child) => child.lines.includes(line));
    if (!next) break;
    at = next;
  }
  return at;
}

/** The turns from the first to this one. */
export function pathTo(at) {
  const path = [];
  for (let step = at; step.parent; step = step.parent) path.unshift(step);
  return path;
}

/** The turns of a line that come after this one. */
export function turnsAfter(at, line) {
  const found = [];
  for (let step = nextOf(at, line); step; step = nextOf(step, line)) found.push(step);
  return found;
}

/** The takes of a turn: it and its siblings that were predicted from the same words, and drawn anew. */
export function takesOf(at) {
  return at.parent ? at.parent.children.filter((other) => other.turn.state === at.turn.state) : [];
}

/** A line through this turn: the preferred one, or else the first. */
export function lineThrough(at, preferred) {
  return at.lines.includes(preferred) ? preferred : (at.lines[0] ?? "");
}

/** Where an arrow key leads from a turn: along its line, or to the nearest turn of the lane above or below. */
export function neighbour(root, at, key, line) {
  if (key === "ArrowLeft") return at.parent?.parent ? at.parent : at;
  if (key === "ArrowRight") return nextOf(at, line) ?? at;
  if (key === "Home") return pathTo(at)[0] ?? at;
  if (key === "End") return turnsAfter(at, line).pop() ?? at;
  const way = { ArrowUp: -1, ArrowDown: 1 }[key];
  const others = way ? allTurns(root).filter((other) => (other.lane - at.lane) * way > 0) : [];
  const far = (other) => Math.abs(other.lane - at.lane) * 1e6 + Math.abs(other.number - at.number);
  return others.reduce((best, other) => (best === at || far(other) < far(best) ? other : best), at);
}

function nextOf(at, line) {
  return at.children.find((child) => child.lines.includes(line)) ?? at.children[0];
}

/** Lines are named main, line-2, line-3 ... as they come about. */
function age(name) {
  return Number(/^line-(\d+)$/.exec(name)?.[1] ?? 1);
}

function same(one, other) {
  return one.state === other.state && one.shot === other.shot && one.seed === other.seed;
}

function node(number, turn, parent, key) {
  return { number, turn, parent, key, children: [], lines: [], lane: 0 };
}

/** Every turn goes on in its parent's lane; further children get the first lane below that is free for their run. */
function giveLanes(root) {
  const ends = [[]]; // lane -> taken stretches [first, last]
  const open = root.children.map((child, index) => [child, index === 0 ? 0 : null]).reverse();
  while (open.length) {
    const [start, fixed] = open.pop();
    const run = [start];
    while (run[run.length - 1].children.length) run.push(run[run.length - 1].children[0]);
    const stretch = [start.number - 1, run[run.length - 1].number];
    const lane = fixed ?? freeLane(ends, start.parent.lane + 1, stretch);
    (ends[lane] ??= []).push(stretch);
    for (const at of run) at.lane = lane;
    for (const at of run)
      open.push(
        ...at.children
          .slice(1)
          .map((child) => [child, null])
          .reverse(),
      );
  }
}

function freeLane(ends, from, [first, last]) {
  let lane = from;
  while ((ends[lane] ?? []).some(([start, end]) => start <= last && first <= end)) lane += 1;
  return lane;
}
