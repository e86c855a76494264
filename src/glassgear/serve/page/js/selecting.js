/** What is selected: a gear, one of its values, a token, a layer, the part of the machine that is shown large. */

import * as explaining from "./explain.js";
import * as machine from "./machine.js";
import { blockOf, nodeOf, set, state } from "./store.js";

/** Select a gear and one of its values; without a gear, the one that shows the value. */
export function select(gear, value) {
  const path = gear ?? nodeOf(value)?.path ?? "";
  const shown = value === path && path !== "" ? machine.valueOf(path) : value;
  const patch = { gear: path, value: shown, view: state.view === "value" || state.view === "compare" ? "value" : state.view };
  if (shown !== state.value) { patch.index = []; explaining.close(); }
  if (blockOf(shown) >= 0) patch.open = blockOf(shown);
  if (state.focus && !shown.startsWith(state.focus)) patch.focus = "";
  set(patch);
}

/** Show where a number lies without leaving its explanation. */
export function point(path, token, index) {
  if (![...state.nodes.values()].some((node) => node.values.includes(path))) return;
  const patch = { gear: nodeOf(path)?.path ?? "", value: path, token: Math.min(token, state.tokensRun - 1), index };
  if (blockOf(path) >= 0) patch.open = blockOf(path);
  if (path.endsWith("scores") || path.endsWith("weights")) patch.head = index[0];
  set(patch);
}

/** The same gear in another layer. */
export function layer(n) {
  const last = (state.tree?.layers ?? 1) - 1, to = Math.max(0, Math.min(last, n));
  const inside = /^blocks\.\d+(\..+)?$/.exec(state.value);
  const value = inside ? `blocks.${to}${inside[1] ?? ""}` : "";
  if (value && [...state.nodes.values()].some((node) => node.values.includes(value))) select(null, value);
  set({ open: to, focus: state.focus.replace(/^blocks\.\d+/, `blocks.${to}`) });
}

/** A token of the run; the nearest one there is. */
export function token(i) {
  const to = Math.max(0, Math.min(state.texts.length - 1, i));
  if (to !== state.token) set({ token: to });
}

let choices = 0;

/** How often a token has been chosen: by a click on it, not by stepping or playing. */
export const tokensChosen = () => choices;

/** A token that somebody has clicked. */
export function chooseToken(i) {
  const before = state.token;
  token(i);
  if (state.token !== before) choices++;
}

/** On or back by so many places of the machine. */
export function gear(by) {
  const order = machine.sequence(), at = order.findIndex((place) => place.value === state.value);
  const next = order[Math.max(0, Math.min(order.length - 1, at + by))];
  if (next) select(next.gear, next.value);
}

/** The part of the machine that is shown large: a step into what is selected, a step out. */
export const zoom = {
  in: () => {
    const path = blockOf(state.value) >= 0 ? state.gear || state.value : "", depth = state.focus ? state.focus.split(".").length : 0;
    const to = path.split(".").slice(0, Math.max(2, depth + 1)).join(".");
    if (state.nodes.has(to)) set({ focus: to });
  },
  out: () => {
    const steps = state.focus.split(".");
    set({ focus: steps.length > 2 ? steps.slice(0, -1).join(".") : "" });
  },
};
