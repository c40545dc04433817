// Open an example of the pack, which comes as a graph, in this world and quickly drawn, and switch to App mode.
async ([name, world]) => {
  const answer = await fetch(`/api/workflow_templates/ComfyUI-AnimeGamer/${name}.json`);
  await app.loadGraphData(await answer.json());
  const change = (kind, values) => {
    for (const node of app.graph.nodes.filter((candidate) => candidate.comfyClass === kind))
      for (const widget of node.widgets) widget.value = values[widget.name] ?? widget.value;
  };
  change("LoadAnimeGamer", { world });
  change("DecodeShot", { steps: 1 });
  change("PlayGameStory", { steps: 1 });
  await app.extensionManager.command.execute("Comfy.ToggleLinear");
}
