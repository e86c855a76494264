/** The run: it starts with a prompt, steps, plays, goes back, and continues with another candidate. */

import { forget, get, post } from "./api.js";
import * as asks from "./asks.js";
import { both } from "./beside.js";
import { asked } from "./example.js";
import * as explaining from "./explain.js";
import { grouped } from "./format.js";
import * as machine from "./machine.js";
import { portions } from "./portions.js";
import { cutShort, queue } from "./queue.js";
import { busy, say } from "./status.js";
import { set, state } from "./store.js";
import { t } from "./texts.js";
import * as valueView from "./valueview.js";

const PAUSE = 260; // ms between tokens while playing

let ranAsChat = false, taking = null;

/** Whether the run that is there was asked for as a chat. */
export const wasChat = () => ranAsChat;

/**
 * Run the prompt; what is there of an older one is dimmed meanwhile. Then `made` tokens are added, or those with these `ids`.
 * Returns "", or a sentence where fewer were made than a link asks for.
 */
export async function startRun({ made = 0, ids = null } = {}) {
  busy(t("running"));
  document.body.classList.add("running");
  const ms = await runPrompt().finally(() => document.body.classList.remove("running"));
  if (ids?.length) await repeat(ids); else if (made) await add(Math.min(made, state.about?.limits.tokens ?? made));
  set({ token: state.texts.length - 1 });
  busy("");
  if (state.warnings.length) say(state.warnings[0], true); else if (ms) say(t("ms", { n: Math.round(ms) }));
  return !ids && state.made < made && state.done ? `${t("cut", { all: grouped(made), n: grouped(state.made) })} ${t(state.done === "stop" ? "stopped" : "full")}` : "";
}

/** The run of the prompt alone, in the place of the one that is there; returns how long it took, in ms. */
async function runPrompt() {
  const before = state.run, { prompt, chat } = state, began = await post("runs", asked(state.model, prompt, []));
  const answer = await post(`runs/${began.run}/step`, { count: 0, sampling: state.sampling }).catch((error) => { forget(began.run); throw error; });
  valueView.values.clear();
  explaining.close();
  ranAsChat = chat;
  set({ ran: prompt, failed: "", run: began.run, ids: began.ids, texts: began.texts, bytes: began.bytes ?? [], special: began.special ?? [], promptLength: began.prompt ?? began.ids.length, pipeline: began.pipeline, warnings: began.warnings ?? [], done: null, tokensRun: 0, growth: null, lens: null, heads: null, habits: null, candidates: null, comparison: null });
  took(answer);
  set({ token: state.texts.length - 1, made: 0 });
  if (before) forget(before);
  return answer.ms;
}

/** Add so many tokens, as long as nothing else is asked for and the text goes on. */
async function add(all) {
  if (cutShort()) return;
  for await (const answer of portions(state.run, all)) {
    grew(answer);
    busy(t("making", { n: grouped(state.made), all: grouped(all) }));
    if (cutShort()) return;
  }
}

/** Add just these tokens. */
async function repeat(ids) {
  for (const id of ids) {
    if (state.done || cutShort()) return;
    grew(await post(`runs/${state.run}/choose`, { id }));
    busy(t("making", { n: grouped(state.made), all: grouped(ids.length) }));
  }
}

function grew(answer) {
  took(answer);
  set({ made: state.texts.length - state.promptLength });
}

/** The text as the server has it: of a step without an answer nobody knows whether it was made. */
export async function asItIs() {
  const { ids, texts, special, tokens_run, done } = await get(`runs/${state.run}`);
  grew({ ids, texts, special, tokens_run, done, length: ids.length });
  set({ token: Math.min(state.token, state.texts.length - 1) });
}

/** Take in what a step, a step back or a choice answered: new tokens, or a shorter text. */
function took(answer) {
  const length = answer.length ?? answer.ids.length, from = length - (answer.ids?.length ?? 0);
  const joined = (name) => [...state[name].slice(0, from), ...(answer[name] ?? [])];
  if (length < state.texts.length || answer.tokens_run < state.tokensRun) valueView.values.clear(length);
  set({ ids: joined("ids"), texts: joined("texts"), bytes: state.bytes.length || answer.bytes ? joined("bytes") : [], special: joined("special"), tokensRun: answer.tokens_run, done: answer.done ?? null });
}

/** Whether a token can be added: an encoder has none to say. */
export const canStep = () => Boolean(state.run) && !state.done && state.nodes.has("head") && state.tree?.causal !== false;

/** Add tokens, to the second run too. */
export async function step(count = 1) {
  if (!canStep()) { set({ playing: false }); return; }
  const began = performance.now(), answer = await post(`runs/${state.run}/step`, { count, sampling: state.sampling });
  took(answer);
  set({ token: state.texts.length - 1, made: state.texts.length - state.promptLength });
  if (state.done) set({ playing: false });
  await both("step", { count, sampling: state.sampling });
  say(t("ms", { n: Math.round(answer.ms ?? performance.now() - began) }));
  machine.flow();
}

/** A step when its turn comes; a held key and quick clicks ask for one ahead at most. */
export const stepSoon = () => queue(() => step(), "step");

/** The same back. What is clicked while one waits is taken back with it; a held key (`repeated`) adds nothing to it. */
export function backSoon(repeated = false) {
  if (taking) { if (!repeated) taking.count++; return; }
  const mine = (taking = { count: 1 }), over = () => { if (taking === mine) taking = null; };
  queue(() => { over(); return back(mine.count); }, "back").then(over);
}

/** Take tokens back, of the second run too; the prompt stays. */
async function back(wanted) {
  const count = Math.min(wanted, state.texts.length - state.promptLength);
  if (!state.run || count <= 0) return;
  await shorten(count);
  set({ made: state.texts.length - state.promptLength });
  if (state.other) await both("back", { count });
}

/** Take tokens back: here first, so that nobody asks the server for one that it has forgotten. */
async function shorten(count) {
  const length = Math.max(state.promptLength, state.texts.length - count);
  const cut = (name) => state[name].slice(0, length);
  valueView.values.clear(length);
  asks.stop(); // what is under way may be about such a token
  set({ token: length - 1, ids: cut("ids"), texts: cut("texts"), bytes: cut("bytes"), special: cut("special"), tokensRun: Math.min(state.tokensRun, length), done: null, growth: null, habits: null });
  took(await post(`runs/${state.run}/back`, { count }));
}

/** Continue with this candidate instead, from the token that it follows: the one that was selected when it was chosen. */
export async function choose(id, after) {
  const extra = state.texts.length - 1 - after;
  if (extra < 0) return; // taken back meanwhile
  if (extra > 0) await shorten(extra);
  took(await post(`runs/${state.run}/choose`, { id }));
  set({ token: state.texts.length - 1, made: state.texts.length - state.promptLength });
  machine.flow();
}

/** Step until the end, or until it is called again. */
export async function play() {
  if (state.playing) { set({ playing: false }); return; }
  if (!canStep()) return;
  set({ playing: true });
  while (state.playing && !state.done) {
    const began = performance.now();
    await stepSoon();
    await new Promise((done) => setTimeout(done, Math.max(20, PAUSE - (performance.now() - began))));
  }
  set({ playing: false });
}
