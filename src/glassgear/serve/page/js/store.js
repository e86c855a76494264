/** The page's state, and who wants to know when a part of it changes. */

import { defaultSampling } from "./link.js";

export const state = {
  // what the link carries
  model: "", prompt: "", chat: false, sampling: defaultSampling(), changes: [], second: null, gear: "", value: "", token: 0,
  index: [], head: 0, view: "value", language: "en", made: 0, open: 0, tour: "", habit: "",
  // what the server said
  about: null, tree: null, nodes: new Map(), run: null, ids: [], texts: [], bytes: [], special: [], promptLength: 0,
  tokensRun: 0, ran: "", done: null, pipeline: null, warnings: [], candidates: null, lens: null, growth: null, cache: null, habits: null,
  other: null, comparison: null,
  // the page's own
  theme: "light", failed: "", lost: "", playing: false, busy: "", focus: "", numbers: [], look: -1,
};

const listeners = [];
let waiting = null;

/** Change some fields; listeners hear of it together, after the current work. */
export function set(patch) {
  const changed = Object.keys(patch).filter((key) => state[key] !== patch[key]);
  Object.assign(state, patch);
  if (!changed.length) return;
  if (waiting === null) {
    waiting = new Set();
    queueMicrotask(() => {
      const keys = waiting;
      waiting = null;
      for (const [wanted, work] of listeners) if (wanted.some((key) => keys.has(key))) work(keys);
    });
  }
  for (const key of changed) waiting.add(key);
}

/** Hear of changes to these fields (words, separated by spaces). */
export function on(keys, work) {
  listeners.push([keys.split(" "), work]);
}

/** The node of a gear; of a value path, the gear that shows it. */
export function nodeOf(path) {
  if (state.nodes.has(path)) return state.nodes.get(path);
  for (let p = path; p.includes("."); ) {
    p = p.slice(0, p.lastIndexOf("."));
    const node = state.nodes.get(p);
    if (node) return node;
  }
  return state.nodes.get("");
}

/** The number of the block that a path lies in, or -1. */
export function blockOf(path) {
  const found = /^blocks\.(\d+)/.exec(path);
  return found ? Number(found[1]) : -1;
}
