/** Middle: every layer and head at once, by what one token reads, or by the habits of heads over the text. */

import { h, swap } from "./dom.js";
import { percent } from "./format.js";
import { ranked } from "./patterns.js";
import { quoted } from "./pieces.js";
import * as scale from "./scale.js";
import { set, state } from "./store.js";
import { t } from "./texts.js";

const LISTED = 5; // of the heads that have a habit
const HABITS = ["previous", "first", "self"];
const labelOf = (i) => (state.texts[i] === undefined ? "" : quoted({ text: state.texts[i], bytes: state.bytes[i] }));

/** Draw it; `actions.head(path, n)` opens a head. */
export function heads(box, actions) {
  const chosen = HABITS.includes(state.habit) ? state.habit : "";
  const choice = (name, text) => h("button", { "aria-pressed": String(name === chosen), onclick: () => set({ habit: name }), data: { key: `habit ${name}` }, text });
  const choices = h("div", { class: "choices-row", role: "group", "aria-label": t("habits_label") }, h("span", { class: "small", text: t("show") }), choice("", t("habit_none", { a: labelOf(state.token) })), HABITS.map((name) => choice(name, t(`by_${name}`))));
  swap(box, choices, ...(chosen ? byHabit(chosen, actions) : byToken(actions)));
}

/** Where the chosen token looks. */
function byToken(actions) {
  const found = state.heads;
  if (!found) return [h("p", { class: "empty", text: "…" })];
  const previous = (read) => read?.[0]?.token === state.token - 1 && state.token > 1;
  const cells = found.layers.map(({ path, heads: all }) => ({ path, cells: all.map((reads) => {
    const top = reads[0], says = reads.map((r) => t("reads_most", { a: labelOf(r.token), w: percent(r.weight) })).join("\n");
    return { share: (top?.weight ?? 0) ** 2, says, mark: !top ? "" : previous(reads) ? "←" : top.token === 0 ? "⇤" : top.token === state.token ? "●" : "" };
  }) }));
  return [h("p", { class: "view-intro", text: t("heads_intro", { a: labelOf(state.token) }) }),
    h("p", { class: "small legend-line" }, [["←", "previous"], ["⇤", "first"], ["●", "self"], ["", "another"]].map(([mark, name]) => h("span", {}, h("i", { class: "key-cell", text: mark }), ` ${t(`reads_${name}`)}`))), table(cells, actions)];
}

/** How much of its weight each head gives to one kind of token, and the heads that give it most. */
function byHabit(name, actions) {
  const all = Object.entries(state.habits ?? {}).map(([path, shares]) => ({ path, heads: shares }));
  if (all.length < state.tree.nodes.filter((node) => node.values.some((path) => path.endsWith(".attention.weights"))).length) return [h("p", { class: "empty", text: "…" })]; // some were asked for one layer
  const order = ranked(all, name), best = order.slice(0, LISTED), cells = all.map(({ path, heads: shares }) => ({ path, cells: shares.map((one, i) => ({ share: one[name], says: t(`habit_${name}`, { w: percent(one[name]) }), mark: one[name] >= 0.5 ? String(Math.round(100 * one[name])) : "", best: best.some((b) => b.path === path && b.head === i) })) }));
  return [h("p", { class: "headline", text: t(`most_${name}`, { layer: best[0].layer, head: best[0].head, w: percent(best[0].share) }) }),
    h("ol", { class: "ranking" }, best.map((one) => h("li", {}, h("button", { onclick: () => actions.head(one.path, one.head), data: { key: `R ${one.path} ${one.head}` } }, h("span", { text: `${t("layer", { n: one.layer })} · ${t("head_no", { n: one.head })}` }), h("span", { class: "bar-one" }, h("i", { style: { width: `${100 * one.share}%` } })), h("span", { class: "n", text: percent(one.share) }))))),
    h("p", { class: "view-intro", text: t("habits_intro") }), table(cells, actions)];
}

/** Rows are layers, columns heads; `rows` holds {path, cells: [{share, says, mark, best}]}. */
function table(rows, actions) {
  const most = Math.max(...rows.map((row) => row.cells.length)), cell = (row, one, i) => {
    const rgb = scale.share(one.share, state.theme), where = `${t("layer", { n: layerOf(row.path) })}, ${t("head_no", { n: i })}`;
    return h("td", {}, h("button", { class: one.best ? "best" : null, "aria-label": `${where}: ${one.says}`, title: `${where}\n${one.says}`, style: { background: scale.css(rgb), color: scale.inkOn(rgb) }, onclick: () => actions.head(row.path, i), data: { key: `H ${row.path} ${i}` } }, one.mark));
  };
  return h("table", { class: "matrix marked" }, h("thead", {}, h("tr", {}, h("th", { text: t("head") }), Array.from({ length: most }, (_, i) => h("th", { text: i })))),
    h("tbody", {}, rows.map((row) => h("tr", {}, h("th", { text: t("layer", { n: layerOf(row.path) }) }), row.cells.map((one, i) => cell(row, one, i))))));
}

const layerOf = (path) => Number(/\d+/.exec(path));
