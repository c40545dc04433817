// What ComfyUI shows of the pack outside of its tabs: badges of the About page, and messages about what has ended.

/** The badges: version, and documentation. `about` is the answer of /animegamer/about. */
export function aboutBadges({ version, home, docs }, address) {
  const link = (url) => (url.startsWith("/") ? address(url) : url);
  return [
    { label: `AnimeGamer v${version}`, url: link(home), icon: "pi pi-play-circle" },
    { label: "AnimeGamer docs", url: link(docs), icon: "pi pi-book" },
  ];
}

/** Tell how a turn ended that was played while the Play tab was closed. `tell(severity, summary, detail)` shows it. */
export function tellEnded({ story, here, error }, event, say, tell) {
  if (event === "turn") tell("success", say("turnReady", { number: here.number, story }), here.turn.instruction);
  if (event === "failed") tell("error", say("turnFailed", { story }), error);
}

/** Tell how a training ended while its panel was closed; `event` is the server's. */
export function tellTrained({ run, stage, steps, state }, say, tell) {
  const about = { run, stage, steps };
  if (state === "finished") tell("success", say("trainingDone", about), say("trainingDoneHelp", about));
  else tell("warn", say("trainingBroken", about), say(state === "failed" ? "trainingBrokenHelp" : "trainingEndedEarly", about));
}
