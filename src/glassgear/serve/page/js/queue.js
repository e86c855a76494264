/** The page's work with the server, one thing after the other. */

import * as dialogs from "./dialogs.js";
import { busy, trouble } from "./status.js";
import { set, state } from "./store.js";

let working = Promise.resolve();

/** Resolves when all that has been asked for by now is done. */
export const idle = () => working;

/** One thing after the other: a run isn't stepped while it is loading. */
export function queue(work) {
  working = working.then(work).then(() => { if (state.prompt === state.ran) set({ failed: "" }); }).catch((error) => { busy(""); set({ playing: false }); trouble(error); });
  return working;
}

/** The same for a window that says itself what went wrong: the promise fails with it. */
export async function attempt(work) {
  let wrong = null;
  await queue(() => Promise.resolve().then(work).catch((error) => { wrong = error; busy(""); }));
  if (wrong && !dialogs.isOpen()) trouble(wrong);
  if (wrong) throw wrong;
}
