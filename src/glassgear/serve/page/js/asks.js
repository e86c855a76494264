/** What is asked of a run again and again: candidates, lens, growth, heads and their habits. The newest question counts. */

import { get, latest } from "./api.js";
import { byId, later } from "./dom.js";
import * as explaining from "./explain.js";
import { point } from "./selecting.js";
import { say, trouble } from "./status.js";
import { on, set, state } from "./store.js";
import * as valueView from "./valueview.js";
import * as visited from "./visited.js";

let habitsFor = ""; // the run and the length that the habits are of

const askCandidates = latest((run, at, sampling, signal) => get(`runs/${run}/candidates`, { token: at, ...sampling }, signal));
const askLens = latest((run, at, signal) => get(`runs/${run}/lens`, { token: at, top: 5 }, signal));
const askHeads = latest((run, at, signal) => get(`runs/${run}/heads`, { token: at }, signal));
const askHabits = latest((run, given, signal) => get(`runs/${run}/habits`, given, signal));
const askGrowth = latest((run, signal) => get(`runs/${run}/growth`, {}, signal));
const askRun = latest((run, signal) => get(`runs/${run}`, {}, signal));

/** Give up the questions about one token that are under way. */
export function stop() {
  for (const ask of [askCandidates, askLens, askHeads]) ask.stop();
}

/** The selected token, or the last one that has been run. */
export const here = () => Math.min(state.token, state.tokensRun - 1);

async function candidates() {
  if (!state.run || !state.tokensRun || !state.nodes.has("head")) return;
  const after = here(), found = await askCandidates(state.run, after, state.sampling).catch(trouble);
  if (found) set({ candidates: { ...found, after } });
}

/** Asked for where it is to be seen alone. */
export async function lens() {
  if (!state.run || !state.tokensRun || !state.nodes.has("head") || !(state.view === "lens" || byId("lens").open)) return;
  const found = await askLens(state.run, here()).catch(trouble);
  if (found) set({ lens: found });
}

async function around() {
  if (!state.run || !state.tokensRun) return;
  const wanted = [askGrowth(state.run).then((growth) => growth && set({ growth })), askRun(state.run).then((cache) => cache && set({ cache }))];
  if (state.view === "heads") wanted.push(askHeads(state.run, here()).then((heads) => heads && set({ heads })));
  await Promise.all(wanted).catch(trouble);
}

/** Habits of heads: of all layers for the view of heads, of one layer beside its weights. */
async function habits() {
  const one = state.view === "value" && /attention\.weights$/.test(state.value);
  if (!state.run || !state.tokensRun || !(one || state.view === "heads")) return;
  const { run, tokensRun } = state, found = await askHabits(run, one ? { path: state.value } : {}).catch(trouble);
  if (!found || run !== state.run || tokensRun !== state.tokensRun) return;
  const fresh = Object.fromEntries(found.layers.map((layer) => [layer.path, layer.heads])), known = habitsFor === `${run} ${tokensRun}` ? state.habits ?? {} : {};
  habitsFor = `${run} ${tokensRun}`;
  set({ habits: { ...known, ...fresh } });
}

/** The number that is explained goes with the token; without one like it there, the explanation closes. */
function explanation() {
  visited.quietly(() => {
    const moved = state.tokensRun ? explaining.move(here()) : null;
    if (!moved) return;
    const { token } = state;
    if (moved.deep) { point(moved.path, token, moved.index); set({ token }); }
    moved.done.catch((error) => { visited.quietly(explaining.close); say(error.message, true); });
  });
}

/** What a token reads; null, and a line that says why, where it can't be had. */
export const reads = (path, at) => valueView.values.reads(state.run, path, at).catch((error) => { trouble(error); return null; });

const candidatesSoon = later(40, candidates), lensSoon = later(220, lens), aroundSoon = later(90, around), habitsSoon = later(120, habits);

/** Ask when the run, its length or what is selected in it changes. */
export function start() {
  on("token tokensRun", explanation);
  on("run tokensRun token sampling language", candidatesSoon);
  on("run tokensRun token view language", () => { lensSoon(); aroundSoon(); });
  on("run tokensRun value view", habitsSoon);
}
