/** What the server said in words, asked for again when the language changes. */

import { get } from "./api.js";
import { changeWords } from "./dialogs.js";
import * as explaining from "./explain.js";
import { on, set, state } from "./store.js";

/** Hear of changes of the language; `trouble(error)` says what went wrong. */
export function start(trouble) {
  on("language", () => {
    label();
    Promise.all([tree(), warnings(), about(), explaining.again()]).catch(trouble);
  });
}

/** What the second run does differently, in words. */
function label() {
  if (state.other && state.changes.length) set({ other: { ...state.other, label: state.changes.map(changeWords).join(", ") } });
}

/** An answer, or null where the language is another one by now: that one's is on its way. */
async function said(...asked) {
  const { language } = state, found = await get(...asked);
  return state.language === language ? found : null;
}

/** The gears' formulas. */
async function tree() {
  const model = state.tree?.model;
  if (!model) return;
  const found = await said("tree", { model });
  if (found && state.tree?.model === model) set({ tree: found, nodes: new Map(found.nodes.map((node) => [node.path, node])) });
}

async function warnings() {
  const { run } = state;
  if (!run) return;
  const found = await said(`runs/${run}`);
  if (found && state.run === run) set({ warnings: found.warnings ?? [] });
}

async function about() {
  const found = state.about && await said("about");
  if (found) set({ about: found });
}
