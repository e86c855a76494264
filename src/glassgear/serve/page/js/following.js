/** What a link says, shown: at the start, after Back or Forward, and when another link is opened. */

import { get } from "./api.js";
import { besideOf } from "./beside.js";
import { byId } from "./dom.js";
import { exampleOf, firstPrompt, leaving, otherModel } from "./example.js";
import * as explaining from "./explain.js";
import { VIEWS, decode, defaultSampling, encode } from "./link.js";
import { loadModel } from "./models.js";
import { ended, queue } from "./queue.js";
import { asItIs, startRun, wasChat } from "./runs.js";
import { token } from "./selecting.js";
import { say, trouble } from "./status.js";
import { blockOf, set, state } from "./store.js";
import * as tour from "./tour.js";
import * as valueView from "./valueview.js";
import * as visited from "./visited.js";

/**
 * Follow a link: first the model and the run that it names, then what was selected in them. What somebody chooses meanwhile
 * stays chosen. `ids`: the tokens after the prompt, where they are known already.
 */
export async function follow(given, entry = null, ids = null) {
  const from = state.model, name = given.model || state.model || otherModel();
  if (given.open === undefined && blockOf(given.value ?? given.gear ?? "") >= 0) given.open = blockOf(given.value ?? given.gear);
  if (exampleOf(name)) leaving(from, state.prompt);
  set({ ...given, prompt: given.prompt ?? firstPrompt(name), ...visited.choices() });
  inBox();
  if (state.model !== state.tree?.model) await loadModel(name);
  const cut = await startRun({ made: given.made ?? 0, ids });
  const at = visited.choices().token ?? given.token;
  if (Number.isInteger(at)) token(at);
  try { await besideOf(given); } finally { // without a second run, the first is shown all the same
    if (!ended()) await selected(given, entry);
  }
  if (cut && !ended()) say(cut, true);
}

async function selected(given, entry) {
  set({ view: viewOf(given) });
  await explained(given, entry);
  if (given.tour) tour.render();
}

/** The view that a link names, or the one that was chosen since. */
const viewOf = ({ view }) => visited.choices().view ?? (VIEWS.includes(view) ? view : "value");

/** The prompt, unless somebody is typing another one. */
function inBox() {
  if (!visited.hasTyped()) byId("prompt").value = state.prompt;
}

/** The number that a link names; of an entry of the history, with the way that led to it. */
async function explained(given, entry) {
  if (visited.chose("gear", "value", "token", "index") || explaining.asked()) return;
  const trail = entry?.numbers ?? [], last = trail.at(-1);
  if (!entry && given.index?.length) await valueView.explainAt(state.token, given.index);
  if (!last || last.token >= state.tokensRun) return;
  set({ numbers: trail.slice(0, -1) });
  await explaining.explain(last.path, last.token, last.index, trail.length - 1).catch(trouble);
}

/** Back, Forward or another link: what is missing in it is as in the beginning. */
export async function arrive(given, entry) {
  const whole = { changes: [], second: null, index: [], head: 0, tour: "", habit: "", chat: false, ...(entry ? { gear: "", value: "" } : {}), ...given };
  if (entry) whole.language = state.language;
  const same = entry && state.run && whole.model === state.tree?.model && whole.prompt === state.ran && whole.chat === wasChat();
  if (same) await revisit(whole, entry); else await follow({ sampling: defaultSampling(), ...whole }, entry);
}

/** An entry of the run that is there: it stays as it is, with the tokens made since. */
async function revisit(given, entry) {
  explaining.close();
  const { changes, second, made, ...rest } = given, focus = state.focus && !rest.value.startsWith(state.focus) ? "" : state.focus;
  set({ sampling: defaultSampling(), open: Math.max(0, blockOf(rest.value)), ...rest, focus, failed: "", playing: false, view: rest.view ?? "value", token: Math.min(rest.token ?? 0, state.texts.length - 1), ...visited.choices() });
  inBox();
  if (JSON.stringify([changes, wholeOf(second)]) !== JSON.stringify([state.changes, wholeOf(state.second)])) {
    await besideOf({ changes, second });
    set({ view: viewOf(rest) });
  }
  await explained(rest, entry);
}

/** After the server was away: the run is as it has it, or it is made again with the same model, prompt, tokens and changes. */
export const restart = () => visited.during(location.hash, () => queue(async () => {
  if (!state.about) set({ about: await get("about") });
  if (state.run && await isThere()) return;
  const ids = state.run ? state.ids.slice(state.promptLength) : null;
  await loadModel(state.model || otherModel());
  await follow(decode(encode(visited.shown())), null, ids);
}, "link"));

async function isThere() {
  try { await asItIs(); return true; } catch (error) {
    if (error.lost !== "run") throw error;
    return false;
  }
}

/** A second run with what it has in common with the first, or null. */
const wholeOf = (second) => second && [second.model ?? state.model, second.prompt ?? state.prompt];
