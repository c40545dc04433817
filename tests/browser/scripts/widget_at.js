// Where on the page a widget lies that the canvas draws: [x, y] of its middle.
([kind, label]) => {
  const node = app.graph.nodes.find((candidate) => candidate.comfyClass === kind);
  const widget = node.widgets.find((candidate) => (candidate.label ?? candidate.name) === label);
  const { ds, canvas } = app.canvas;
  const place = canvas.getBoundingClientRect();
  const y = (widget.y ?? widget.last_y) + (widget.computedHeight ?? LiteGraph.NODE_WIDGET_HEIGHT) / 2;
  return [
    place.left + (node.pos[0] + node.size[0] / 2 + ds.offset[0]) * ds.scale,
    place.top + (node.pos[1] + y + ds.offset[1]) * ds.scale,
  ];
}
