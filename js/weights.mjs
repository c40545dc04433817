// The dialog that downloads weights: what is missing, its size, the licences to accept, and the progress.

import { createDialog, createProgress, el, set, showText, wordButton } from "./dom.mjs";

const link = (href) =>
  el("li", {}, el("a", { class: "ag-link", href, text: href, target: "_blank", rel: "noopener noreferrer" }));

/** A dialog over a WeightsJob: show() draws it, open(weights) opens it. `installed()` is called after a download. */
export function createWeights(job, say, installed) {
  const which = el("select", { "aria-label": say("weights"), on: { change: () => ask() } });
  const towers = el("input", { type: "checkbox", on: { change: () => ask() } });
  const towersLine = el("label", { class: "ag-check" }, towers, el("span", { text: say("towers") }));
  const facts = el("div", { class: "ag-weights-facts", role: "status" });
  const notice = el("p", { class: "ag-licence", tabindex: 0 });
  const sources = el("ul", { class: "ag-weights-facts" });
  const limits = el("p", { class: "ag-faint ag-limits", text: say("weightsLimits") });
  const accept = el("input", { type: "checkbox", on: { change: () => show() } });
  const acceptLine = el("label", { class: "ag-check" }, accept, el("span", { text: say("acceptLicences") }));
  const command = el("code", { class: "ag-command" });
  const otherwise = el("span");
  const alert = el("p", { class: "ag-alert", role: "alert", hidden: true });
  const doing = createProgress();
  const get = wordButton("download", say("download"), { class: "ag-main", on: { click: () => job.start() } });
  const stop = wordButton("stop-circle", say("stop"), { class: "ag-second", hidden: true, on: { click: () => job.stop() } });
  const closes = { click: () => dialog.element.close() };
  const close = wordButton("times", say("closeDialog"), { class: "ag-second", on: closes });
  const buttons = el("div", { class: "ag-buttons" }, get, stop, close);
  const dialog = createDialog(
    say("getWeights"),
    "ag-weights",
    which,
    towersLine,
    facts,
    notice,
    sources,
    limits,
    el("p", { class: "ag-faint" }, otherwise, command),
    el("div", { class: "ag-foot" }, acceptLine, alert, doing.element, buttons),
  );
  let told = false;

  function ask(weights = which.value) {
    accept.checked = false; // of other weights there are other licences
    return job.ask(weights, towers.checked);
  }

  /** Open the dialog for these weights; for a name that cannot be downloaded, for the first that can. */
  async function open(weights) {
    dialog.open();
    await ask(weights === "base models" || weights === "sosuke" ? weights : "qiqi");
  }

  function show() {
    const { offer, busy, error } = job;
    const asking = Boolean(job.asking);
    set(dialog.element, { "aria-busy": asking ? "true" : null });
    showText(alert, error);
    showProgress();
    if (!offer) return void (get.disabled = true);
    if (!asking) {
      which.replaceChildren(...offer.choices.map((value) => el("option", { value, text: value })));
      which.value = offer.weights;
    }
    which.disabled = towers.disabled = busy;
    accept.disabled = busy || asking; // what is shown may be the licences of other weights
    towersLine.hidden = offer.weights === "base models"; // they have both encoders
    const complete = !offer.missing.length;
    facts.replaceChildren(...factsOf(offer, complete));
    notice.textContent = offer.notice.replace(/\n(?!-|$)/g, " "); // its lines are those of a terminal
    sources.replaceChildren(...offer.sources.map((href) => link(href)));
    otherwise.textContent = say("orCommand", { folder: offer.command_folder });
    command.textContent = offer.command;
    acceptLine.hidden = complete;
    const focused = document.activeElement;
    get.hidden = busy || complete;
    stop.hidden = !busy;
    if ((focused === get && get.hidden) || (focused === stop && stop.hidden)) (busy ? stop : close).focus();
    get.disabled = asking || !accept.checked || !offer.fits;
    if (job.done && !told) installed();
    told = job.done;
  }

  function factsOf(offer, complete) {
    const { folder, size, room, free } = offer;
    if (complete) return [el("p", { text: say("allThere", { folder }) })];
    return [
      el("p", { text: say("toDownload", { size, room, free, folder }) }),
      offer.fits ? null : el("p", { class: "ag-alert", text: say("noRoom") }),
      el("ul", {}, ...offer.missing.map(({ path, what, size }) => el("li", { text: [path, say(what), size].join(" \u00b7 ") }))),
    ].filter(Boolean);
  }

  function showProgress() {
    const { job: running, done } = job.progress;
    const known = running?.max > 1;
    const does = known ? "downloading" : running?.running ? "checkingFiles" : "downloadWaits";
    doing.show(running ? say(does, running) : "", known ? done : null);
  }

  return { open, show };
}
