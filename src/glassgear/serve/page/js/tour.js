/** The guided tour: each step selects the gear and the view that it speaks of. */

import { byId, h, swap } from "./dom.js";
import { grouped, short } from "./format.js";
import { set, state } from "./store.js";
import { t } from "./texts.js";
import { TOUR } from "./tour_texts.js";

/** Step -> the ends of paths to look for, in order of preference, and the view. */
const SHOWS = {
  tokens: { view: "prompt", of: ["embed"] }, embedding: { of: ["embed"] }, block: { of: ["ffn_residual", "attention_residual"] },
  norm: { of: ["attention_norm", "attention_sum_norm", "norm"] }, qkv: { of: ["attention.query"] }, rope: { of: ["query_rotated", "attention.query"] },
  scores: { of: ["attention.scores"] }, heads: { of: ["attention.weights"] }, residual: { view: "growth", of: ["attention_residual"] },
  ffn: { of: ["ffn.up", "ffn"] }, activation: { of: ["ffn.activated", "activated"] },
  worked: { model: "worked-example", parts: [{ value: "blocks.0.attention_residual", index: [0] }, { value: "blocks.0.ffn.up", index: [0] }, { value: "blocks.0", index: [] }] },
  stack: { view: "heads", of: ["attention.weights"] }, head: { of: ["head"] }, sampling: { view: "sampling", of: ["head"] },
  cache: { view: "cache", of: ["attention.key_rotated", "attention.key"] }, depth: { view: "growth", of: [""] }, lens: { view: "lens", of: ["norm"] },
};

let actions = {}, before = null, taking = false; // before: what had the focus then; taking: Next is to have it

/** `act` has select(gear, value), model(name), otherModel(), isExample(name), explain(token, index), close() and idle(). */
export function start(act) { actions = act; }

/** Within the strip arrows go through the tour, and Esc ends it; elsewhere they have other work. */
export function keys(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || event.shiftKey) return;
  const work = { ArrowRight: () => move(1), ArrowLeft: () => move(-1), Escape: () => go("") }[event.key];
  if (work) { event.preventDefault(); work(); }
}

/** Steps that this server can show. */
export function steps() {
  const names = (state.about?.models ?? []).map((m) => m.name);
  return Object.keys(SHOWS).filter((step) => !SHOWS[step].model || names.includes(SHOWS[step].model));
}

/** Go to a step; "" ends the tour. A step with a model of its own opens it, and the next one goes back. */
export async function go(step) {
  const shows = SHOWS[step];
  if (step && !shows) return;
  if (step && !state.tour) { before = document.activeElement; taking = true; }
  set({ tour: step });
  await actions.idle(); // a model may be loading for the step before
  if (state.tour !== step) return;
  if (step && !state.tree) { set({ tour: "" }); return; } // no model, nothing to show
  const wanted = shows?.model ?? (actions.isExample(state.model) ? actions.otherModel() : state.model);
  if (wanted && state.model !== wanted) await actions.model(wanted);
  if (state.tour !== step || !step) return; // meanwhile another step was chosen
  if (shows.parts) { part(shows.parts[0]); return; }
  const value = find(shows.of);
  if (value !== null) actions.select(null, value);
  set({ view: shows.view ?? "value" });
}

/** A part of a step: one value of the first token, and where one of its numbers comes from. */
function part({ value, index }) {
  actions.select(null, value);
  set({ view: "value", token: 0, index: [] });
  if (index.length) actions.explain(0, index); else actions.close();
}

/** One step on or back. */
export function move(by) {
  const all = steps(), at = all.indexOf(state.tour) + by;
  if (all[at]) go(all[at]); else if (by > 0) go("");
}

/** The value to show: in the open layer where it lies in one. */
function find(ends) {
  const values = [...state.nodes.values()].flatMap((node) => node.values), block = `blocks.${state.open}.`;
  for (const end of ends) {
    if (end === "") return "";
    const fits = values.filter((path) => path === end || path.endsWith(`.${end}`));
    if (fits.length) return fits.find((path) => path.startsWith(block)) ?? fits[0];
  }
  return null;
}

/** Buttons for the parts of a step, and the words of the one in view. */
function parts(texts, shown, column) {
  const at = shown.findIndex((one) => one.value === state.value);
  return [h("div", { class: "parts", role: "group" }, texts.map((one, i) => h("button", { "aria-pressed": String(i === at), onclick: () => part(shown[i]), data: { key: `part ${i}` }, text: `${i + 1}  ${one.title[column]}` }))),
    at < 0 ? null : h("p", { text: texts[at].text[column] })];
}

/** Draw the strip above the values. */
export function render() {
  const box = byId("tour"), step = TOUR[state.tour];
  const within = box.contains(document.activeElement);
  box.hidden = !step || !state.tree;
  if (box.hidden) { if (!step) leave(within); return; }
  const all = steps(), at = all.indexOf(state.tour), column = state.language === "zh" ? 1 : 0;
  const attention = [...state.nodes.values()].find((node) => node.facts?.kv_heads), f = attention?.facts;
  const groups = f && f.heads !== f.kv_heads ? [` (${f.heads / f.kv_heads} to 1 here)`, `（这里是 ${f.heads / f.kv_heads} 对 1）`][column] : "";
  const values = { dim: grouped(state.tree.dim), layers: state.tree.layers, vocab: grouped(state.tree.vocab), parameters: short(state.tree.parameters), groups };
  const put = (text) => text[column].replace(/\{(\w+)\}/g, (_, name) => values[name] ?? "");
  swap(box, h("h2", {}, step.title[column], h("small", { text: `${at + 1} / ${all.length}` })),
    h("nav", {}, h("button", { disabled: at === 0, onclick: () => move(-1), text: t("tour_back"), data: { key: "tb" } }), h("button", { class: "primary", onclick: () => move(1), text: at === all.length - 1 ? t("done") : t("tour_next"), data: { key: "tn" } }), h("button", { class: "icon quiet", "aria-label": t("tour_end"), title: t("tour_end"), onclick: () => go(""), text: "✕", data: { key: "te" } })),
    h("div", {}, h("p", { text: put(step.text) }), step.parts ? parts(step.parts, SHOWS[state.tour].parts, column) : null, step.right ? h("p", { class: "right-line", text: put(step.right) }) : null),
    h("div", { class: "dots" }, all.map((name, i) => h("button", { "aria-current": i === at ? "step" : null, "aria-label": TOUR[name].title[column], title: TOUR[name].title[column], onclick: () => go(name), data: { key: `td ${name}` } }))));
  if (taking || (within && !box.contains(document.activeElement))) box.querySelector("nav .primary").focus({ preventScroll: true });
  taking = false;
}

/** The tour is over: the focus goes back to where it was, if it was in the strip. */
function leave(within) {
  const key = before?.dataset?.key, there = before?.isConnected ? before : key && document.querySelector(`[data-key="${CSS.escape(key)}"]`);
  if (within) { if (there && there !== document.body) there.focus({ preventScroll: true }); else document.activeElement.blur(); }
  before = null;
  taking = false;
}
