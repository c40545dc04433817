// Give the page a file of the server, as if it were dropped there; resolves to the kinds of nodes on the canvas.
async (address) => {
  const bytes = await (await fetch(address)).blob();
  app.graph.clear();
  await app.handleFile(new File([bytes], "film.mp4", { type: "video/mp4" }));
  const late = Date.now() + 5000; // the frontend of 0.3.64 does not wait for the graph
  while (!app.graph.nodes.length && Date.now() < late) await new Promise((resolve) => setTimeout(resolve, 50));
  return app.graph.nodes.map((node) => node.comfyClass);
}
