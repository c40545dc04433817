// The queued prompts of the Play tab: how far they are, and what happened to one while the page was away.

import { TURN_NODE } from "./prompt.mjs";

/**
 * The running (or next) prompt as `job`, its number among the `sent` ones as `take` (one prompt each), and as `done`
 * which part of all sent prompts is done, 0..1, or null if unknown.
 */
export function progressOf({ jobs, finished, sent }) {
  const job = jobs.find((entry) => entry.running) ?? jobs[0];
  const part = job?.max ? job.value / job.max : null;
  const all = Math.max(finished + jobs.length, sent);
  return { job, take: finished + 1, done: part === null && !finished ? null : (finished + (part ?? 0)) / all };
}

/** The events of a queued prompt that a page has missed, as [method of PlaySession, detail]. `port`: see PlaySession. */
export async function missedEvents(port, id) {
  const detail = { prompt_id: id };
  // The queue first: a prompt that ends between the two requests is then found in the history.
  const { running, waiting } = await port.queued();
  const entry = await port.history(id);
  if (!entry && running.includes(id)) return [["began", detail]];
  if (!entry) return waiting.includes(id) ? [] : [["interrupted", detail]];
  const messages = Object.fromEntries(entry.status?.messages ?? []);
  if (entry.status?.status_str === "success") {
    const executed = { ...detail, node: TURN_NODE, output: entry.outputs?.[TURN_NODE] };
    return [
      ["executed", executed],
      ["succeeded", detail],
    ];
  }
  return [messages.execution_error ? ["failed", { ...messages.execution_error, ...detail }] : ["interrupted", detail]];
}
