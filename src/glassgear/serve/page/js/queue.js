/**
 * The page's work with the server, one thing after the other. What is asked for later can make what was asked for before
 * needless: that is dropped while it waits, and given up at its next request once it has begun.
 */

import { within } from "./api.js";
import * as dialogs from "./dialogs.js";
import { busy, trouble } from "./status.js";
import { set, state } from "./store.js";

const KINDS = ["step", "back", "beside", "run", "model", "link"];
/** Kind of work -> the kinds before it that it makes needless. */
const ENDS = { step: [], back: ["step"], beside: ["step", "beside"], run: KINDS.filter((kind) => kind !== "model"), model: KINDS, link: KINDS };
const FINISHED = ["step", "back"]; // once begun, so that the page knows the text that the server has

let waiting = [], now = null;

/** Resolves when nothing is left to do. */
export async function idle() { while (now) await now.ended; }

/** Whether what is being done has been given up. */
export const ended = () => Boolean(now?.life.signal.aborted);

/** Whether something else was asked for since: no more tokens are wanted then. */
export const cutShort = () => Boolean(now?.short);

/** Do it when its turn comes; of steps one waits at most. Resolves when it is done (true), failed (true) or dropped (false). */
export function queue(work, kind = "run") {
  if (kind === "step" && waiting.some((one) => one.kind === kind)) return Promise.resolve(false);
  makeWay(kind);
  const one = { work, kind, life: new AbortController(), short: false };
  one.ended = new Promise((resolve) => { one.end = resolve; });
  waiting.push(one);
  if (!now) perform();
  return one.ended;
}

function makeWay(kind) {
  const needless = (one) => ENDS[kind].includes(one.kind);
  for (const one of waiting) if (needless(one)) one.end(false);
  waiting = waiting.filter((one) => !needless(one));
  if (["run", "model", "link"].includes(kind)) set({ playing: false });
  if (!now || kind === "step") return;
  now.short = true;
  const loads = now.kind === "model" && kind === "run"; // the model is loaded all the same, its run is another one
  if ((needless(now) && !FINISHED.includes(now.kind)) || loads) now.life.abort();
}

async function perform() {
  while ((now = waiting.shift() ?? null)) {
    within(now.life.signal);
    try {
      await Promise.resolve().then(now.work);
      if (state.prompt === state.ran) set({ failed: "" });
    } catch (error) { busy(""); set({ playing: false }); trouble(error); }
    now.end(!ended());
  }
}

/** The same for a window that says itself what went wrong: the promise fails with it. */
export async function attempt(work, kind = "beside") {
  let wrong = null;
  await queue(() => Promise.resolve().then(work).catch((error) => { busy(""); if (error.name !== "AbortError") wrong = error; }), kind);
  if (wrong && !dialogs.isOpen()) trouble(wrong);
  if (wrong) throw wrong;
}
