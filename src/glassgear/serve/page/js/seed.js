/** The box for the seed: it takes what the page can draw with, and says what it doesn't take. */

import { h } from "./dom.js";
import { MOST_SEED, isSeed } from "./link.js";
import { state } from "./store.js";
import { t } from "./texts.js";

let use = () => {}, wrong = false;
const box = h("input", { type: "text", id: "s-seed", inputmode: "numeric", autocomplete: "off", spellcheck: "false", "aria-describedby": "seed-said", oninput: typed, onchange: left });

/** Which seeds there are, once something else was typed. */
export const said = h("p", { class: "notice", id: "seed-said", role: "alert", hidden: true });

/** Its label and the box; `change(seed)` is called with each one that can be used. */
export function row(change) {
  use = change;
  return [h("label", { for: "s-seed", data: { text: "seed" } }), box];
}

/** What is typed, as a seed, or null. */
const typedSeed = () => (/^[0-9]+$/.test(box.value.trim()) && isSeed(Number(box.value)) ? Number(box.value) : null);

function typed() {
  const seed = typedSeed();
  box.setAttribute("aria-invalid", String(seed === null));
  say(seed === null && box.value.trim() !== ""); // nothing yet isn't wrong
  if (seed !== null) use(seed);
}

/** The box is left, or Enter was pressed: it goes back to the seed in use, and what was wrong stays said. */
function left() {
  say(typedSeed() === null);
  box.value = state.sampling.seed;
  box.setAttribute("aria-invalid", "false");
}

function say(isWrong) {
  wrong = isWrong;
  words();
}

function words() {
  said.hidden = !wrong;
  said.textContent = wrong ? t("seed_limits", { most: MOST_SEED, seed: state.sampling.seed }) : "";
}

/** The settings or the language have changed. */
export function show() {
  if (document.activeElement !== box) box.value = state.sampling.seed;
  words();
}

/** All settings are as in the beginning: nothing is wrong any more. */
export const reset = () => say(false);
