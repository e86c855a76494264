/** A second run beside the first: with changes, of another prompt or of another model; and how the two compare. */

import { forget, post } from "./api.js";
import * as dialogs from "./dialogs.js";
import { asked } from "./example.js";
import { portions } from "./portions.js";
import { attempt } from "./queue.js";
import { busy } from "./status.js";
import { set, state } from "./store.js";
import { t } from "./texts.js";

/** Start it, as long as the first, and compare the two; `more` is what changes in the state with it. */
async function beside(model, prompt, changes, label, more) {
  busy(t("running"));
  if (model !== state.model) await post("models", { model });
  const began = await post("runs", asked(model, prompt, changes));
  const answers = await grown(began.run).catch((error) => { forget(began.run); throw error; });
  const all = (name) => [...(began[name] ?? []), ...answers.flatMap((answer) => answer[name] ?? [])];
  if (state.other) forget(state.other.run);
  set({ changes, second: changes.length ? null : { model, prompt }, comparison: null, other: { run: began.run, model, prompt, label, ids: all("ids"), texts: all("texts"), bytes: all("bytes"), special: all("special"), promptLength: began.prompt }, ...more });
  await compareRuns();
  busy("");
}

/** Make it as long as the first run: what the steps answered. */
async function grown(run) {
  const answers = [await post(`runs/${run}/step`, { count: 0 })];
  for await (const answer of portions(run, state.made)) answers.push(answer);
  return answers;
}

/** What was done to the first run (a step, a step back), done to the second. */
export async function both(what, body) {
  if (!state.other) return;
  const answer = await post(`runs/${state.other.run}/${what}`, body), other = state.other, from = (answer.length ?? answer.ids.length) - answer.ids.length;
  const joined = (name) => [...other[name].slice(0, from), ...(answer[name] ?? [])];
  set({ other: { ...other, ids: joined("ids"), texts: joined("texts"), bytes: joined("bytes"), special: joined("special") } });
  await compareRuns();
}

async function compareRuns() {
  const found = await post("compare", { a: state.run, b: state.other.run });
  if (state.other) set({ comparison: found });
}

/** The first run alone again. */
export function clearOther() {
  if (state.other) forget(state.other.run);
  set({ other: null, comparison: null, changes: [], second: null });
}

const SHOWN = { view: "compare" }; // where it was asked for on the page

/** What a link puts beside the first run: {changes, second}, of both what differs from it; nothing else stays there. */
export async function besideOf({ changes = [], second = null }, more = {}) {
  if (changes.length) await beside(state.model, state.prompt, changes, changes.map(dialogs.changeWords).join(", "), more);
  else if (second) await besidePrompt(second.model ?? state.model, second.prompt ?? state.prompt, more);
  else clearOther();
}

const besidePrompt = (model, prompt, more) => beside(model, prompt, [], model === state.model ? `“${prompt}”` : `${model} · “${prompt}”`, more);

/** The same prompt with these changes; without any, the first run alone. */
export async function runChanges(changes) {
  if (!changes.length) { clearOther(); return; }
  await attempt(() => besideOf({ changes }, SHOWN));
}

/** Ask for the prompt or the model of the second run. */
export const openCompare = () => dialogs.compare((model, prompt) => attempt(() => besidePrompt(model, prompt, SHOWN)), clearOther);
