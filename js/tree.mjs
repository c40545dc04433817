// A story's branches as a tree: turns that branches share are one node. No DOM here; play_map.mjs draws the tree.

/**
 * The tree of the branches in `branches` (of GET /animegamer/story). A node has number, turn (from the server; null at the
 * root), parent, children, branches (names of the branches through it), key (its oldest branch and number: unique, and
 * stable while the story grows) and lane (0 for the first branch). The root also has openings: branch -> {instruction,
 * clip} of turn 0, for the branches that began with a picture or clip; the clip may be null. And it has the story's
 * `gauges`: how each stat is shown.
 */
export function buildTree(branches, gauges = {}) {
  const root = { ...node(0, null, null, ""), openings: {}, gauges };
  for (const branch of [...branches].sort((a, b) => age(a.name) - age(b.name))) {
    let at = root;
    at.branches.push(branch.name);
    if (branch.opening) root.openings[branch.name] = { instruction: branch.opening, clip: branch.opening_clip ?? null };
    for (const turn of branch.turns) {
      let next = at.children.find((child) => same(child.turn, turn));
      if (!next) {
        next = node(at.number + 1, turn, at, `${branch.name}/${at.number + 1}`);
        at.children.push(next);
      }
      next.branches.push(branch.name);
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

/** Turn `number` of a branch; its last turn if it is shorter, the root if the branch does not exist. */
export function findTurn(root, branch, number) {
  let at = root;
  while (at.number < number) {
    const next = at.children.find((child) => child.branches.includes(branch));
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

/** The turns that this one remembers; the root stands for the opening picture. */
export function recalledBy(at) {
  const numbers = new Set(at.turn?.recalled ?? []);
  const found = pathTo(at).filter((other) => numbers.has(other.number));
  let root = at;
  while (root.parent) root = root.parent;
  return numbers.has(0) ? [root, ...found] : found;
}

/** The turns of a branch after this one. */
export function turnsAfter(at, branch) {
  const found = [];
  for (let step = nextOf(at, branch); step; step = nextOf(step, branch)) found.push(step);
  return found;
}

/** The takes of a turn: it and its siblings with the same predicted state, drawn with other settings. */
export function takesOf(at) {
  return at.parent ? at.parent.children.filter((other) => other.turn.state === at.turn.state) : [];
}

/** A branch through this turn: the preferred one, or else the first. */
export function branchThrough(at, preferred) {
  return at.branches.includes(preferred) ? preferred : (at.branches[0] ?? "");
}

/** Where an arrow key leads, from the root too: along the branch, or to the nearest turn of the lane above or below. */
export function neighbour(root, at, key, branch) {
  if (key === "ArrowLeft") return at.parent ?? at;
  if (key === "ArrowRight") return nextOf(at, branch) ?? at;
  if (key === "Home") return pathTo(at)[0] ?? at;
  if (key === "End") return turnsAfter(at, branch).pop() ?? at;
  const way = { ArrowUp: -1, ArrowDown: 1 }[key];
  const others = way ? allTurns(root).filter((other) => (other.lane - at.lane) * way > 0) : [];
  const far = (other) => Math.abs(other.lane - at.lane) * 1e6 + Math.abs(other.number - at.number);
  return others.reduce((best, other) => (best === at || far(other) < far(best) ? other : best), at);
}

function nextOf(at, branch) {
  return at.children.find((child) => child.branches.includes(branch)) ?? at.children[0];
}

/** Branches are named main, branch-2, branch-3 ... in order of their creation. */
function age(name) {
  return Number(/^branch-(\d+)$/.exec(name)?.[1] ?? 1);
}

function same(one, other) {
  return one.state === other.state && one.shot === other.shot && one.seed === other.seed;
}

function node(number, turn, parent, key) {
  return { number, turn, parent, key, children: [], branches: [], lane: 0 };
}

/** The first child continues in its parent's lane; further children get the first free lane below. */
function giveLanes(root) {
  const ends = [[]]; // lane -> occupied ranges [first, last]
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
