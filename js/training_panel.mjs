// The panel Training: progress, loss curve, log and shots of a run, below the canvas.

import { createProgress, el, iconButton, set, showText } from "./dom.mjs";
import { drawPlot } from "./plot.mjs";
import { viewPath } from "./prompt.mjs";
import { logLine, timeWords } from "./training_watch.mjs";

const LOSSES = { loss: "trainingLoss", held_out_loss: "heldOutLoss" };

/** The panel for a TrainingWatch; `address(path)` is the full URL of a server path. */
export function createTrainingPanel(watch, say, address) {
  const choice = el("select", { "aria-label": say("trainingRun"), on: { change: () => watch.choose(JSON.parse(choice.value)) } });
  const progress = createProgress();
  const alert = el("p", { class: "ag-alert", role: "alert", hidden: true });
  const none = el("p", { class: "ag-empty", text: say("noTraining") });
  const curve = el("section", { class: "ag-training-curve", "aria-label": say("lossCurve") });
  const log = el("ol", { class: "ag-training-log", tabindex: 0, "aria-label": say("trainingLog") });
  const sheets = createSheets(say, address);
  const parts = el("div", { class: "ag-training-parts" }, curve, log, sheets.element);
  const top = el("header", { class: "ag-training-top" }, choice, set(progress.element, { role: "status" }));
  const element = el("div", { class: "ag ag-training" }, top, alert, none, parts);
  let drawn = "";

  function show() {
    const { runs, log: lines = [], ...found } = watch.found;
    showText(alert, watch.error);
    none.hidden = Boolean(found.run);
    top.hidden = parts.hidden = !found.run;
    const text = JSON.stringify(watch.found);
    if (!found.run || text === drawn) return;
    drawn = text;
    showRuns(choice, runs, found);
    showProgress(found);
    curve.replaceChildren(...drawCurve(found.curve, say));
    log.replaceChildren(...lines.toReversed().map((line) => el("li", { text: logLine(line, say) })));
    sheets.show(found);
  }

  function showProgress({ active, ended, number, stages, prepares }) {
    const { step, steps, pace, left, done } = watch.progress;
    const about = { step, steps: steps ?? step, number, stages, clip: prepares?.[0], clips: prepares?.[1] };
    const now = prepares ? "trainingPrepares" : stages > 1 ? "trainingStage" : "trainingNow";
    const state = say(active ? now : ended ? "trainingEnded" : "trainingStopped", about);
    const speed = pace ? say("secondsAStep", { seconds: Number(pace.toPrecision(2)) }) : "";
    const rest = left ? say("timeLeft", { time: timeWords(left) }) : "";
    progress.show([state, speed, rest].filter(Boolean).join(" \u00b7 "), done);
  }

  show();
  return { element, show };
}

function showRuns(choice, runs, { run, stage }) {
  const options = runs.map((item) => el("option", { value: JSON.stringify(item), text: `${item.run} \u00b7 ${item.stage}` }));
  choice.replaceChildren(...options);
  choice.value = JSON.stringify({ run, stage });
}

/** The curve with its scale and its legend; the words are for screen readers. */
function drawCurve(curve, say) {
  const number = (value) => String(Number(value.toPrecision(3)));
  const lines = Object.entries(LOSSES).flatMap(([name, title]) => {
    const points = curve.filter((line) => Number.isFinite(line[name])).map((line) => [line.step, line[name]]);
    return points.length ? [{ kind: `ag-of-${name}`, title, points }] : [];
  });
  if (!lines.length) return [el("p", { class: "ag-faint", text: say("noLoss") })];
  const losses = lines.flatMap(({ points }) => points.map(([, loss]) => loss));
  const words = lines.map(({ title, points }) => {
    const [first, last] = [points[0], points.at(-1)].map(([, loss]) => number(loss));
    return `${say(title)} ${first} \u2192 ${last}`;
  });
  const plot = drawPlot(lines, [Math.min(...losses), Math.max(...losses)], number);
  const legend = lines.map(({ kind }, index) => el("span", { class: `ag-key ${kind}`, text: words[index] }));
  const steps = [curve[0].step, curve.at(-1).step].map((step) => el("span", { text: say("trainedStep", { step }) }));
  return [
    el("div", { class: "ag-legend" }, ...legend),
    set(plot, { role: "img", "aria-label": words.join(", ") }),
    el("div", { class: "ag-training-steps ag-faint", "aria-hidden": "true" }, ...steps),
  ];
}

/** The pictures of shots: the newest, unless the user looks at another; arrow keys on the buttons' group change it. */
function createSheets(say, address) {
  const picture = el("img", { alt: "" });
  const link = el("a", { target: "_blank", rel: "noopener" }, picture);
  const words = el("span", { class: "ag-faint" });
  const [before, after] = [
    iconButton("angle-left", say("shotsBefore"), () => go(-1)),
    iconButton("angle-right", say("shotsAfter"), () => go(1)),
  ];
  const none = el("p", { class: "ag-faint", text: say("noShots") });
  const head = el("div", { class: "ag-training-top", role: "group", "aria-label": say("trainingShots") }, words, before, after);
  const element = el("section", { class: "ag-training-shots", "aria-label": say("trainingShots") }, head, link, none);
  let [all, shown, run] = [[], null, ""]; // shown: a step, null for the newest

  head.addEventListener("keydown", ({ key }) => {
    if (key === "ArrowLeft" || key === "ArrowRight") go(key === "ArrowLeft" ? -1 : 1);
  });

  function go(by) {
    const to = Math.max(0, Math.min(all.length - 1, at() + by));
    shown = to === all.length - 1 ? null : all[to].step;
    draw();
  }

  const at = () => (shown === null ? all.length - 1 : all.findIndex((sheet) => sheet.step === shown));

  function draw() {
    const sheet = all[at()] ?? all.at(-1);
    none.hidden = Boolean(sheet);
    head.hidden = link.hidden = !sheet;
    if (!sheet) return;
    const source = address(viewPath(sheet));
    words.textContent = say("shotsAt", { step: sheet.step });
    if (link.getAttribute("href") !== source) {
      set(link, { href: source });
      set(picture, { src: source, alt: say("shotsAlt", { step: sheet.step }) });
    }
    before.disabled = at() <= 0;
    after.disabled = at() >= all.length - 1;
  }

  function show(found) {
    element.hidden = !found.draws;
    if (run !== `${found.run}/${found.stage}`) shown = null;
    [all, run] = [found.sheets, `${found.run}/${found.stage}`];
    if (at() < 0) shown = null;
    draw();
  }

  return { element, show };
}
