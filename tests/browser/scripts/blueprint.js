// Put a blueprint on the canvas, between a world and a new game, and nodes that show its states or its report. Returns
// its nodes' kinds, those that are unknown, the number of its links, and the sockets that got no link.
async ([blueprint, world]) => {
  await app.loadGraphData(blueprint, true, true, "blueprint");
  const graph = app.graph;
  const [inserted] = graph.nodes;
  const add = (kind, x, y) => {
    const node = LiteGraph.createNode(kind);
    node.pos = [x, y];
    graph.add(node);
    return node;
  };
  const given = { ANIMEGAMER_MODEL: "LoadAnimeGamer", ANIMEGAMER_HISTORY: "GameHistory" };
  inserted.inputs.forEach((input, slot) => {
    if (given[input.type]) add(given[input.type], -350, slot * 250).connect(0, inserted, slot);
  });
  for (const load of graph.nodes.filter((node) => node.comfyClass === "LoadAnimeGamer"))
    load.widgets.find((widget) => widget.name === "world").value = world;
  const shown = { ANIMEGAMER_STATE: "StateDisplay", STRING: "PreviewAny" };
  inserted.outputs.forEach((output, slot) => {
    if (shown[output.type]) inserted.connect(slot, add(shown[output.type], 450, slot * 250), 0);
  });
  const parts = inserted.subgraph.nodes;
  return {
    kinds: parts.map((node) => node.type),
    unknown: parts.filter((node) => !LiteGraph.registered_node_types[node.type]).map((node) => node.type),
    links: inserted.subgraph.links.size,
    open: inserted.inputs.filter((input) => !input.widget && input.link === null).map((input) => input.name),
  };
}
