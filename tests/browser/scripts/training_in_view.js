// Whether the panel Training shows the log, the curve and a picture of shots of a run that is still at work.
() => {
  const panel = document.querySelector(".ag-training");
  return (
    panel.querySelector(".ag-status-words").innerText.startsWith("Training: step") &&
    panel.querySelectorAll(".ag-training-log li").length > 0 &&
    panel.querySelector("polyline.ag-of-loss")?.getAttribute("points").includes(" ") &&
    panel.querySelector(".ag-training-shots img").naturalWidth > 0
  );
}
