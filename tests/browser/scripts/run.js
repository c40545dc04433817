// Queue what is on the canvas; window.ended will say how it ended.
() => {
  window.ended = null;
  for (const kind of ["execution_success", "execution_error", "execution_interrupted"]) {
    app.api.addEventListener(kind, (event) => { window.ended ??= [kind, event.detail?.exception_message ?? ""]; }, { once: true });
  }
  app.queuePrompt(0, 1);
}
