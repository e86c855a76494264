/** Models: loading one, and going over to another with a prompt that suits it. */

import { forget, get, post } from "./api.js";
import { clearOther } from "./beside.js";
import { placeBefore, exampleOf, firstPrompt, leaving, otherModel } from "./example.js";
import * as explaining from "./explain.js";
import * as machine from "./machine.js";
import { attempt, ended, queue } from "./queue.js";
import { startRun } from "./runs.js";
import { layer, select } from "./selecting.js";
import { busy } from "./status.js";
import { nodeOf, set, state } from "./store.js";
import { t } from "./texts.js";
import * as valueView from "./valueview.js";

/** Load it, and select something that it has; the gears that are there stay. */
export async function loadModel(name) {
  busy(t("loading", { name }));
  const slow = setTimeout(() => busy(`${t("loading", { name })} ${t("first_time")}`), 1500);
  try {
    const tree = await post("models", { model: name });
    const nodes = new Map(tree.nodes.map((node) => [node.path, node]));
    const other = tree.model !== state.tree?.model;
    set({ tree, nodes, model: tree.model ?? name, focus: "", open: Math.min(state.open, Math.max(0, tree.layers - 1)) });
    if (other) blank();
    const known = tree.nodes.some((node) => node.values.includes(state.value));
    if (!known) select("embed", nodes.has("embed") ? machine.valueOf("embed") : tree.nodes.find((n) => n.values.length)?.values[0] ?? "");
    else if (!state.gear || !nodes.has(state.gear)) set({ gear: nodeOf(state.value).path });
  } finally { clearTimeout(slow); busy(""); }
}

/** No run, or none of this model: nothing is left of another one. */
function blank() {
  if (state.run) forget(state.run);
  valueView.values.clear();
  explaining.close();
  set({ run: null, ids: [], texts: [], bytes: [], special: [], promptLength: 0, tokensRun: 0, done: null, token: 0, index: [], growth: null, lens: null, heads: null, habits: null, candidates: null, comparison: null, pipeline: null, warnings: [], cache: null });
}

/** Load another model and run the prompt; the worked example has its own, and gives the old one back. */
export const changeModel = (name) => queue(() => toModel(name), "model");

/** The same for a window that says what went wrong. */
export const namedModel = (name) => attempt(() => toModel(name), "model");

/** Run the prompt; the model is loaded first where it isn't, or isn't any more: the server may have been started anew. */
export async function runAgain() {
  if (!state.tree || state.model !== state.tree.model) await loadModel(state.model || otherModel());
  await startRun().catch(async (error) => {
    if (error.lost !== "model") throw error;
    await loadModel(state.model);
    await startRun();
  });
}

/** The same for somebody who waits in the queue already. */
export async function toModel(name) {
  const example = exampleOf(name), from = state.model;
  if (example) leaving(from, state.prompt);
  const place = placeBefore(), untouched = state.prompt === firstPrompt(from) ? firstPrompt(name) : state.prompt;
  const prompt = example ?? (exampleOf(from) ? place?.prompt ?? firstPrompt(name) : untouched);
  await loadModel(name);
  if (ended()) return; // another prompt is run
  set({ prompt, playing: false });
  if (exampleOf(from) && place) layer(place.open); // the values shown too
  clearOther();
  await startRun();
  set({ about: await get("about") });
}
