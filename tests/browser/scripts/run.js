// Queue what is on the canvas; window.ended will say how it ended.
() => {
  window.ended = null;
  const { api } = app;
  const ends = new Map(); // prompt's id -> how it ended
  let asked = null; // the id of ours
  const look = () => { if (ends.has(asked)) window.ended ??= ends.get(asked); };
  for (const kind of ["execution_success", "execution_error", "execution_interrupted"]) {
    api.addEventListener(kind, ({ detail }) => {
      ends.set(detail.prompt_id, [kind, detail.exception_message ?? ""]);
      look();
    });
  }
  const { queuePrompt } = api;
  api.queuePrompt = async (number, prompt, ...more) => {
    const answer = await queuePrompt.call(api, number, prompt, ...more);
    if (prompt.workflow) { // ours; a prompt of the Play tab has none
      asked = answer.prompt_id;
      api.queuePrompt = queuePrompt;
      look();
    }
    return answer;
  };
  app.queuePrompt(0, 1);
}
