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
  ffn: { of: ["ffn.up", "ffn"] }, activation: { of: ["ffn.activated", "activated"] }, worked: { of: ["ffn_residual"], model: "worked-example" },
  stack: { view: "heads", of: ["attention.weights"] }, head: { of: ["head"] }, sampling: { view: "sampling", of: ["head"] },
  cache: { view: "cache", of: ["attention.key_rotated", "attention.key"] }, depth: { view: "growth", of: [""] }, lens: { view: "lens", of: ["norm"] },
};

let actions = {};

/** `act` has select(gear, value) and model(name). */
export function start(act) { actions = act; }

/** Steps that this server can show. */
export function steps() {
  const names = (state.about?.models ?? []).map((m) => m.name);
  return Object.keys(SHOWS).filter((step) => !SHOWS[step].model || names.includes(SHOWS[step].model));
}

/** Go to a step; "" ends the tour. */
export async function go(step) {
  if (!step) { set({ tour: "" }); return; }
  const shows = SHOWS[step];
  if (!shows) return;
  set({ tour: step });
  if (shows.model && state.model !== shows.model) await actions.model(shows.model);
  const value = find(shows.of);
  if (value !== null) actions.select(null, value);
  set({ view: shows.view ?? "value" });
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

/** Draw the strip above the values. */
export function render() {
  const box = byId("tour"), step = TOUR[state.tour];
  box.hidden = !step || !state.tree;
  if (box.hidden) return;
  const all = steps(), at = all.indexOf(state.tour), column = state.language === "zh" ? 1 : 0;
  const attention = [...state.nodes.values()].find((node) => node.facts?.kv_heads), f = attention?.facts;
  const groups = f && f.heads !== f.kv_heads ? [` (${f.heads / f.kv_heads} to 1 here)`, `（这里是 ${f.heads / f.kv_heads} 对 1）`][column] : "";
  const values = { dim: grouped(state.tree.dim), layers: state.tree.layers, vocab: grouped(state.tree.vocab), parameters: short(state.tree.parameters), groups };
  const put = (text) => text[column].replace(/\{(\w+)\}/g, (_, name) => values[name] ?? "");
  swap(box, h("h2", {}, step.title[column], h("small", { text: `${at + 1} / ${all.length}` })),
    h("nav", {}, h("button", { disabled: at === 0, onclick: () => move(-1), text: t("tour_back"), data: { key: "tb" } }), h("button", { class: "primary", onclick: () => move(1), text: at === all.length - 1 ? t("done") : t("tour_next"), data: { key: "tn" } }), h("button", { class: "icon quiet", "aria-label": t("tour_end"), title: t("tour_end"), onclick: () => go(""), text: "✕" })),
    h("div", {}, h("p", { text: put(step.text) }), step.right ? h("p", { class: "right-line", text: put(step.right) }) : null),
    h("div", { class: "dots" }, all.map((name, i) => h("button", { "aria-current": i === at ? "step" : null, "aria-label": TOUR[name].title[column], title: TOUR[name].title[column], onclick: () => go(name) }))));
}
