// Put a prompt (API form) on the canvas, its nodes in rows and in view.
async (prompt) => {
  app.graph.clear();
  await app.loadApiJson(prompt, "test");
  app.graph.nodes.forEach((node, index) => {
    node.pos = [(index % 4) * 400, Math.floor(index / 4) * 440];
  });
  Object.assign(app.canvas.ds, { scale: 0.75, offset: [110, 110] });
  app.canvas.setDirty(true, true);
}
