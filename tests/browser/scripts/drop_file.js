// Give the page a file of the server, as if it were dropped there; resolves to the kinds of nodes on the canvas.
async (address) => {
  const bytes = await (await fetch(address)).blob();
  app.graph.clear();
  await app.handleFile(new File([bytes], "film.mp4", { type: "video/mp4" }));
  return app.graph.nodes.map((node) => node.comfyClass);
}
