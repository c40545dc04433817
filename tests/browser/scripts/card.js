// What a card says: {gauge: [value, change]}, the motion's word and steps, the width of a bar.
(card) => {
  const row = (name) => document.querySelector(`${card} .ag-row.ag-${name}`);
  const level = (name) => Number(row(name).querySelector(".ag-track").getAttribute("aria-valuenow"));
  const gauges = ["stamina", "social", "entertainment"].map((name) => [name, [level(name), row(name).querySelector(".ag-change").textContent]]);
  const motion = row("motion");
  return {
    ...Object.fromEntries(gauges),
    motion: motion.querySelector(".ag-scope").getAttribute("aria-valuetext"),
    steps: motion.querySelectorAll(".ag-on").length,
    width: row("stamina").querySelector(".ag-fill").style.width,
  };
}
