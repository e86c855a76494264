/** Keys: each does what a click somewhere does. */

import * as dialogs from "./dialogs.js";
import { byId } from "./dom.js";
import { exampleOf } from "./example.js";
import * as explaining from "./explain.js";
import { VIEWS } from "./link.js";
import { backSoon, play, stepSoon } from "./runs.js";
import { gear, layer, token, zoom } from "./selecting.js";
import { set, state } from "./store.js";
import * as tour from "./tour.js";

const KEYS = {
  ArrowLeft: () => token(state.token - 1), ArrowRight: () => token(state.token + 1), ArrowUp: () => gear(-1), ArrowDown: () => gear(1),
  " ": play, n: stepSoon, N: stepSoon, Enter: stepSoon, Backspace: (event) => backSoon(event.repeat), "/": () => { byId("prompt").focus(); byId("prompt").select(); },
  "?": dialogs.help, "+": zoom.in, "=": zoom.in, "-": zoom.out, "[": () => layer(state.open - 1), "]": () => layer(state.open + 1),
  t: () => byId("tour-open").click(), T: () => byId("tour-open").click(),
  Escape: () => { if (state.numbers.length && !(state.tour && exampleOf(state.model))) explaining.close(); else if (state.tour) tour.go(""); else if (state.focus) set({ focus: "" }); },
};

function keys(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented || dialogs.isOpen()) return;
  const at = event.target, typing = at.matches?.("input, select, textarea");
  if (typing) { if (event.key === "Escape") at.blur(); return; }
  if ((event.key === " " || event.key === "Enter") && at.matches?.("button, summary, a")) return;
  if ((event.key === " " || event.key === "Enter") && at.matches?.(".node, .layer")) { event.preventDefault(); at.dispatchEvent(new MouseEvent("click", { bubbles: true })); return; }
  const number = Number(event.key);
  if (number >= 1 && number <= VIEWS.length) { set({ view: VIEWS[number - 1] }); return; }
  const work = KEYS[event.key];
  if (work) { event.preventDefault(); work(event); }
}

/** Hear of every key that nobody has taken before. */
export function start() {
  document.addEventListener("keydown", keys);
}
