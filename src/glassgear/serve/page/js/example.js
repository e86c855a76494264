/** Which model is the worked example, what a model starts with, and what there was before the example was opened. */

import { keepPlace, keptPlace } from "./kept.js";
import { state } from "./store.js";

const FIRST_PROMPT = "The cat sat on the mat because it", STORY = "Once upon a time, Lily had a red ball. One day";

let left = keptPlace(); // where the example was opened from

/** {model, prompt, open} from before the example, or null. */
export const placeBefore = () => left;

/** Keep what there was before the example, for its end. */
export function leaving(model, prompt) {
  if (model && !exampleOf(model)) left = keepPlace({ model, prompt, open: state.open });
}

/** What a model starts with: one that knows stories alone, with a story. */
export const firstPrompt = (name) => exampleOf(name) ?? (/(^|\/)tiny-stories/.test(name) ? STORY : FIRST_PROMPT);

/** The prompt of the example that has this name, if it is one. */
export const exampleOf = (name) => state.about?.models.find((one) => one.name === name)?.example;
const exampleName = () => state.about?.models.find((one) => one.example)?.name;

/** The model to go back to from the example: the one before it, or else one that is at hand. */
export const otherModel = () => {
  const models = (state.about?.models ?? []).filter((one) => !one.example);
  return left?.model ?? (models.find((one) => one.loaded) ?? models.find((one) => one.cached) ?? models[0])?.name;
};

/** What the server is asked to run; the example is never a chat. */
export const asked = (model, prompt, changes) => ({ model, prompt, chat: state.chat && model !== exampleName(), sampling: state.sampling, changes });
