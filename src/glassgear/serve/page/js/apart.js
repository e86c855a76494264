/** Where the texts of two runs part: by ids where these stand for the same, else by the bytes of the texts. Pure. */

import { bytesOf, spelled } from "./pieces.js";

const ENCODER = new TextEncoder();

/** The bytes of each token of a run {texts, bytes, special}; a control token has none. */
function tokenBytes({ texts, bytes, special }) {
  return texts.map((text, i) => {
    if (special[i]) return [];
    const hex = bytes?.[i] ?? bytesOf(text);
    return hex ? hex.match(/../g).map((byte) => parseInt(byte, 16)) : [...ENCODER.encode(spelled(text))];
  });
}

/** The bytes of a run with the token that each belongs to, without a space that the tokenizer put before the prompt. */
function flatBytes(run) {
  const all = tokenBytes(run).flatMap((bytes, token) => bytes.map((byte) => ({ byte, token }))), prompt = ENCODER.encode(run.prompt);
  const begins = (from) => prompt.every((byte, i) => all[from + i]?.byte === byte);
  return all[0]?.byte === 32 && !begins(0) && begins(1) ? all.slice(1) : all;
}

/**
 * Compare two runs {model, prompt, ids, texts, bytes, special}.
 *
 * Returns {first: the token of `a` at which the texts part, or -1, differs: for each token of `b`, whether it does}.
 * Of two models the texts are compared byte by byte. After equal prompts, one that ends earlier doesn't part.
 */
export function apart(a, b) {
  if (a.model === b.model) return { first: a.ids.findIndex((id, i) => id !== b.ids[i]), differs: b.ids.map((id, i) => id !== a.ids[i]) };
  const one = flatBytes(a), two = flatBytes(b), differs = b.ids.map(() => false), open = a.prompt === b.prompt;
  let first = -1;
  for (let i = 0; i < (open ? Math.min : Math.max)(one.length, two.length); i++) {
    if (one[i]?.byte === two[i]?.byte) continue;
    if (first < 0) first = one[i]?.token ?? a.ids.length;
    if (two[i]) differs[two[i].token] = true;
  }
  return { first, differs };
}
