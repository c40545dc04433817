// Open the pack's first example in this world, quickly drawn, and switch to App mode.
async (world) => {
  const answer = await fetch("/api/workflow_templates/ComfyUI-AnimeGamer/1-one-turn.json");
  await app.loadGraphData(await answer.json());
  const set = (kind, name, value) => {
    const node = app.graph.nodes.find((candidate) => candidate.comfyClass === kind);
    node.widgets.find((widget) => widget.name === name).value = value;
  };
  set("LoadAnimeGamer", "world", world);
  set("DecodeShot", "steps", 1);
  await app.extensionManager.command.execute("Comfy.ToggleLinear");
}
