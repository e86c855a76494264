/** Hovering or focusing a token of the text: the others are shaded by how much it reads them. */

import { h, later, swap } from "./dom.js";
import { rounded } from "./format.js";
import { quoted } from "./pieces.js";
import * as scale from "./scale.js";
import { blockOf, on, set, state } from "./store.js";
import { t } from "./texts.js";

const NAMED = 3, WAIT = 30; // tokens that the line names; ms that a pointer passing over is given
let actions = {}, chosen = -1, rows = null, said = null, pick = null;

/** The line below the text: what is read, and by which layer and head. */
export const line = h("div", { class: "reading", hidden: true });

/** Follow pointer and focus in `box`, whose chips carry `data-token`. `act` has layer(n) and reads(path, token). */
export function start(box, act) {
  actions = act;
  said = h("p", { class: "small", "aria-live": "polite" });
  pick = { layer: h("select", { onchange: (event) => actions.layer(Number(event.target.value)) }), head: h("select", { onchange: (event) => set({ look: Number(event.target.value) }) }) };
  line.append(said, h("div", {}, pick.layer, pick.head));
  const chip = (event) => event.target.closest?.("#text > .chips .chip");
  box.addEventListener("pointerover", (event) => choose(chip(event)));
  box.addEventListener("pointerleave", () => choose(focused(box)));
  box.addEventListener("focusin", (event) => { if (event.target.matches(":focus-visible")) choose(chip(event)); });
  box.addEventListener("focusout", () => choose(null));
  on("tree run tokensRun open value look language", controls);
  on("open value look theme tokensRun language", () => ask(chosen));
}

/** The text was drawn anew: shade it again. */
export function refresh() { if (chosen >= 0) ask(chosen); }

const focused = (box) => box.querySelector(".chips .chip:focus-visible");

function choose(chip) {
  const token = chip ? Number(chip.dataset.token) : -1;
  if (token === chosen) return;
  chosen = token;
  if (token < 0) clear(); else askSoon();
}

/** The layer in view: that of the chosen value, or else the open one. */
const layer = () => (blockOf(state.value) >= 0 ? blockOf(state.value) : Math.min(state.open, (state.tree?.layers ?? 1) - 1));

function path() {
  const found = `blocks.${layer()}.attention.weights`;
  return state.nodes.get(`blocks.${layer()}.attention`)?.values.includes(found) ? found : null;
}

const askSoon = later(WAIT, () => ask(chosen));

async function ask(token) {
  const wanted = path(), run = state.run;
  if (token < 0 || !wanted || !run || token >= state.tokensRun) { clear(); return; }
  const found = await actions.reads(wanted, token);
  if (!found || token !== chosen || wanted !== path() || run !== state.run) return; // another one was asked for meanwhile
  rows = found;
  shade(token);
}

/** Weight of each token: one head's, or the mean of all. */
export function weights({ array, heads, seen }, head) {
  if (head >= 0 && head < heads) return array.subarray(head * seen, (head + 1) * seen);
  return Float32Array.from({ length: seen }, (_, k) => { let sum = 0; for (let i = 0; i < heads; i++) sum += array[i * seen + k]; return sum / heads; });
}

function shade(token) {
  const read = weights(rows, state.look);
  for (const chip of chips()) {
    const i = Number(chip.dataset.token), weight = read[i] ?? 0, rgb = scale.share(weight, state.theme);
    chip.classList.toggle("reader", i === token);
    chip.style.background = scale.css(rgb);
    chip.style.color = scale.inkOn(rgb);
  }
  const label = (i) => quoted({ text: state.texts[i] ?? "", bytes: state.bytes[i] });
  const most = [...read.keys()].sort((a, b) => read[b] - read[a]).slice(0, NAMED).filter((i) => read[i] >= 0.01);
  said.textContent = t("reading_says", { a: label(token), list: most.map((i) => `${label(i)} ${rounded(read[i])}`).join(", ") });
  said.title = said.textContent;
}

function clear() {
  rows = null;
  for (const chip of chips()) { chip.classList.remove("reader"); chip.style.removeProperty("background"); chip.style.removeProperty("color"); }
  if (said) { said.textContent = t("reading_hint"); said.title = ""; }
}

const chips = () => document.querySelectorAll("#text > .chips .chip");

function controls() {
  const there = state.run && path(), heads = there ? state.nodes.get(`blocks.${layer()}.attention`).facts?.heads ?? 0 : 0;
  line.hidden = !there;
  if (!there) return;
  const options = (from, count, name, now) => Array.from({ length: count }, (_, i) => h("option", { value: i + from, text: name(i + from), selected: i + from === now }));
  pick.head.hidden = heads < 2;
  swap(pick.layer, options(0, state.tree.layers, (n) => t("layer", { n }), layer()));
  swap(pick.head, options(-1, heads + 1, (n) => (n < 0 ? t("mean_of_heads", { n: heads }) : t("head_no", { n })), Math.min(state.look, heads - 1)));
  pick.layer.setAttribute("aria-label", t("where"));
  pick.head.setAttribute("aria-label", t("which_head"));
  if (!rows) said.textContent = t("reading_hint");
}
