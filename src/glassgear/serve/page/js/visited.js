/**
 * The browser's history: an entry for each choice (model, prompt, gear, value, view, number, token, page of the tour),
 * none for what only moves on: steps from token to token, sliders, arrows within a picture. One gesture makes one entry at most,
 * whatever it sets off, and a link that is there already makes none.
 */

import * as explaining from "./explain.js";
import { decode, encode } from "./link.js";
import { tokensChosen } from "./selecting.js";
import { state } from "./store.js";

let gesture = 0, used = 0, place = "", arriving = null, kept = null, follow = () => {};

/** What a choice changes. Of numbers, one that is explained counts: walking over a picture isn't choosing. */
const placeOf = () => JSON.stringify([state.model, state.prompt, state.chat, state.changes, state.second, state.gear, state.value, state.view, state.tour, state.head, state.habit,
  explaining.asked(), tokensChosen()]);

/** `apply(given, entry)` shows what a link says; `entry` is what was kept with it, or null for a link from elsewhere. */
export function start(apply) {
  follow = apply;
  for (const kind of ["click", "change", "submit", "keydown"]) addEventListener(kind, (event) => { if (!walks(event)) gesture++; }, true);
  addEventListener("popstate", (event) => arrive(event.state));
  addEventListener("hashchange", () => arrive(history.state));
}

const walks = (event) => event.type === "keydown" && event.target.tagName === "CANVAS" && /^(Arrow|Page)/.test(event.key);

/** Put the state into the address, as an entry of its own where somebody has chosen something since the last one. */
export function write() {
  if (arriving !== null) return;
  const text = encode(state), here = placeOf(), other = text !== location.hash;
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

/** What is shown next comes from a link, not from a gesture: `work()` shows it. */
export async function during(hash, work) {
  arriving = hash;
  await work();
  if (arriving !== hash) return;
  arriving = null;
  used = gesture;
  write();
}

async function arrive(entry) {
  const hash = location.hash;
  if (hash === arriving || (arriving === null && hash === encode(state))) return;
  await during(hash, () => follow(decode(hash), entry, hash));
}
