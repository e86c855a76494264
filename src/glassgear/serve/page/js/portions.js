/** Many tokens, asked for in portions: in between, the page can say how far it is, and do something else instead. */

import { post } from "./api.js";

const TIME = 250, MOST = 64; // of one portion: about so many ms, and so many tokens

/** Add so many tokens to a run, or as many as there are before its text ends: the answers, one after the other. */
export async function* portions(run, all) {
  for (let left = all, size = 1; left > 0;) {
    const began = performance.now(), answer = await post(`runs/${run}/step`, { count: Math.min(size, left) });
    yield answer;
    if (answer.done || !answer.ids.length) return;
    left -= answer.ids.length;
    size = Math.max(1, Math.min(MOST, 4 * size, Math.round((size * TIME) / (performance.now() - began))));
  }
}
