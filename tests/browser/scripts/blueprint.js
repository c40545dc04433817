// Put a blueprint of one turn on the canvas, between a world, a new game and a StateDisplay.
async ([blueprint, world]) => {
  await app.loadGraphData(JSON.parse(blueprint), true, true, "blueprint");
  const graph = app.graph;
  const turn = graph.nodes[0];
  const add = (kind, x) => {
    const node = LiteGraph.createNode(kind);
    node.pos = [x, 0];
    graph.add(node);
    return node;
  };
  const load = add("LoadAnimeGamer", -700);
  load.widgets.find((widget) => widget.name === "world").value = world;
  const slot = (name) => turn.inputs.findIndex((input) => input.name === name);
  load.connect(0, turn, slot("model"));
  add("GameHistory", -350).connect(0, turn, slot("history"));
  turn.connect(turn.outputs.findIndex((output) => output.name === "state"), add("StateDisplay", 350), 0);
}
