/**
 * The browser's history: an entry for each choice (model, prompt, gear, value, view, number, token, page of the tour),
 * none for what only moves on: steps from token to token, sliders, arrows within a picture. One gesture makes one entry at most,
 * whatever it sets off, and a link that is there already makes none.
 */

import * as explaining from "./explain.js";
import { decode, encode } from "./link.js";
import { tokensChosen } from "./selecting.js";
import { state } from "./store.js";

/** What somebody may choose while a link is loading. */
const CHOICES = ["gear", "value", "view", "language", "tour", "habit", "token", "head", "open", "index", "sampling", "focus"];

let gesture = 0, used = 0, place = "", arriving = null, kept = null, chosen = {}, typed = false, before = {}, follow = () => {};

/** What the address says: the model and the prompt of the run that is there, whatever else has been asked for. */
export const shown = () => (state.run ? { ...state, model: state.tree.model, prompt: state.ran } : state);

/** What a choice changes. Of numbers, one that is explained counts: walking over a picture isn't choosing. */
const placeOf = ({ model, prompt } = shown()) => JSON.stringify([model, prompt, state.chat, state.changes, state.second, state.gear, state.value, state.view, state.tour, state.head, state.habit,
  explaining.asked(), tokensChosen()]);

/** `apply(given, entry)` shows what a link says; `entry` is what was kept with it, or null for a link from elsewhere. */
export function start(apply) {
  follow = apply;
  for (const kind of ["click", "change", "submit", "keydown"]) addEventListener(kind, (event) => { if (!walks(event)) gesture++; }, true);
  for (const kind of ["click", "change", "submit", "keydown", "input"]) {
    addEventListener(kind, () => { before = choosable(); }, true);
    addEventListener(kind, note);
  }
  addEventListener("popstate", (event) => arrive(event.state));
  addEventListener("hashchange", () => arrive(history.state));
}

const walks = (event) => event.type === "keydown" && event.target.tagName === "CANVAS" && /^(Arrow|Page)/.test(event.key);

const choosable = () => Object.fromEntries(CHOICES.map((name) => [name, state[name]]));

/** What a gesture has changed is what somebody wants to see, also when the link is there that is loading. */
function note(event) {
  if (arriving === null) return;
  if (event.type === "input" && event.target.id === "prompt") typed = true;
  for (const [name, value] of Object.entries(choosable())) if (value !== before[name]) chosen[name] = value;
}

/** What was chosen since the link that is loading was opened: {view, token, ...}, as far as it was. */
export const choices = () => chosen;

/** Whether one of these was. */
export const chose = (...names) => names.some((name) => name in chosen);

/** Whether something was typed into the box for the prompt since then. */
export const hasTyped = () => typed;

/** Put the state into the address, as an entry of its own where somebody has chosen something since the last one. */
export function write() {
  if (arriving !== null) return;
  const text = encode(shown()), here = placeOf(), other = text !== location.hash;
  const push = other && place !== "" && here !== place && gesture !== used;
  if (push) used = gesture;
  place = here;
  if (!other && kept === state.numbers) return;
  kept = state.numbers;
  history[push ? "pushState" : "replaceState"]({ numbers: kept }, "", text);
}

/** What `work()` changes at once follows from a step and is no choice; one that was made just before stays one. */
export function quietly(work) {
  const chosen = placeOf() !== place;
  work();
  if (!chosen) place = placeOf();
}

/** Whether the page is still on its way to this entry: another one may have been chosen meanwhile. */
export const isWanted = (hash) => arriving === hash;

/** What is shown next comes from a link, not from a gesture: `work()` shows it, and resolves to whether it wasn't given up. */
export async function during(hash, work) {
  const earlier = gesture;
  arriving = hash;
  chosen = {};
  typed = false;
  const whole = await work();
  if (arriving !== hash) return;
  arriving = null;
  used = gesture;
  write();
  if (!whole) used = earlier; // what came in between is an entry of its own
}

async function arrive(entry) {
  const hash = location.hash;
  if (hash === arriving || (arriving === null && hash === encode(shown()))) return;
  await during(hash, () => follow(decode(hash), entry, hash));
}
