/** Middle: the views beside the values of one gear. Each draws itself into a box from the state. */

import { apart } from "./apart.js";
import { h, s, swap } from "./dom.js";
import { bytes, grouped, number, percent, short } from "./format.js";
import { chips, quoted } from "./pieces.js";
import * as scale from "./scale.js";
import { state } from "./store.js";
import * as terms from "./terms.js";
import { fullName, nameOf, shortName, stageName, stageWords, t } from "./texts.js";

export { heads } from "./headsview.js";

const labelOf = (i) => (state.texts[i] === undefined ? "" : quoted({ text: state.texts[i], bytes: state.bytes[i] }));
const intro = (key, values) => h("p", { class: "view-intro", text: t(key, values) });

/** Prompt: template, warnings, pieces and ids. */
export function prompt(box, actions) {
  const made = chips(state.texts, state.bytes, state.special), plan = state.pipeline ?? {};
  const template = typeof plan.template === "string" ? plan.template : plan.template?.text ?? plan.rendered;
  swap(box, intro("prompt_intro"),
    state.tree?.template ? h("p", {}, h("label", {}, h("input", { type: "checkbox", checked: state.chat, onchange: (event) => actions.chat(event.target.checked) }), ` ${t("edit_chat")}`)) : null,
    (state.warnings ?? []).map((said) => h("p", { class: "notice", text: said })),
    template && state.chat ? [h("h3", { text: t("template") }), h("pre", { class: "template", text: template })] : null,
    h("h3", { text: t("pieces") }),
    h("div", { class: "piece-row" }, made.map((chip, i) => h("button", { class: `piece${i === state.token ? " strong" : ""}`, "aria-pressed": String(i === state.token), onclick: () => actions.token(i), data: { key: `p ${i}` } },
      chip.special ? state.texts[i] : labelOf(i), chip.part?.glyph ? ` ${chip.part.glyph}` : null, h("small", { text: state.ids[i] })))));
}

/** Logit lens, large: the layer from which the final answer stays on top is marked, and said first. */
export function lens(box, actions) {
  const found = state.lens;
  if (!found) { swap(box, h("p", { class: "empty", text: "…" })); return; }
  const final = found.final ?? found.layers.at(-1).top[0], rows = found.layers.map((layer, i) => h("button", { class: `lens-row${i === found.decided ? " decided" : ""}`, onclick: () => actions.layer(i), data: { key: `L ${i}` } },
    h("span", { class: "layer-no", text: i }), h("span", { class: "bar-one" }, h("i", { style: { width: `${100 * layer.final}%` } })), h("span", { class: "n", text: percent(layer.final) }),
    layer.top.slice(0, 5).map((entry, k) => h("span", { class: `token${entry.id === final.id ? " same" : k ? " alt" : ""}`, title: percent(entry.probability) }, quoted(entry), share(entry.probability)))));
  if (found.decided > 0) rows.splice(found.decided, 0, h("p", { class: "lens-mark", text: t("lens_mark", { a: quoted(final) }) }));
  swap(box, h("p", { class: "headline", text: lensWords(found) }), intro("lens_intro", { a: quoted(final) }),
    h("div", { class: "lens-big", style: { "--rows": found.layers.length + 1 } }, h("div", { class: "lens-row lens-names", "aria-hidden": "true" }, [t("layer_short"), t("share_of", { a: quoted(final) }), "", t("first_choice"), "2", "3", "4", "5"].map((text) => h("span", { text }))), rows),
    found.computed_by ? h("p", { class: "small", text: found.computed_by }) : null);
}

/** How likely a layer has it: under its word, where rows are high enough. */
const share = (p) => h("span", { class: "share" }, h("span", { class: "bar-one" }, h("i", { style: { width: `${100 * p}%` } })), h("span", { text: percent(p) }));

/** From which layer on the final answer leads, in words; and where it led before and lost the lead again. */
export function lensWords(found) {
  const final = found.final ?? found.layers.at(-1).top[0], first = found.layers.findIndex((layer) => layer.top[0]?.id === final.id);
  const said = t("lens_decided", { n: found.decided, a: quoted(final) });
  return first < found.decided && first >= 0 ? `${said}${t("lens_first", { n: first })}` : said;
}

/** Growth of the residual stream: its length as a line, what is added as bars. */
export function growth(box, actions) {
  const found = state.growth;
  if (!found?.layers?.length) { swap(box, h("p", { class: "empty", text: "…" })); return; }
  const W = Math.max(300, Math.min(1100, box.clientWidth - 36)), H = Math.max(300, Math.min(620, box.clientHeight - 110)), left = 58, bottom = 34, top = 26, n = found.layers.length, wide = (W - left - 12) / n;
  const at = (list) => (list ? list[Math.min(state.token, list.length - 1)] : 0);
  const rows = found.layers.map((l) => [at(l.norm_stream), at(l.norm_attention), at(l.norm_ffn)]);
  const most = scale.rounded(Math.max(...rows.flat()) * 1.02), least = scale.rounded(Math.max(1e-3, Math.min(...rows.flat()) / 2.5));
  const y = (v) => top + (H - top - bottom) * (1 - Math.log(Math.max(v, least) / least) / Math.log(most / least));
  const lines = [];
  for (let power = 10 ** Math.ceil(Math.log10(least)); power <= most; power *= 10) lines.push(s("line", { class: "grid", x1: left, x2: W - 12, y1: y(power), y2: y(power) }), s("text", { x: left - 8, y: y(power) + 4, "text-anchor": "end" }, number(power, 2)));
  const base = y(least), bar = Math.max(1.5, wide * 0.3);
  const svg = s("svg", { class: "chart", viewBox: `0 0 ${W} ${H}`, role: "img", "aria-label": t("growth_intro", { n: state.token }) }, lines,
    rows.map(([, a, f], i) => { const x = left + (i + 0.5) * wide; return [s("rect", { class: "attn", x: x - bar - 0.5, y: y(a), width: bar, height: Math.max(0, base - y(a)) }), s("rect", { class: "ffn", x: x + 0.5, y: y(f), width: bar, height: Math.max(0, base - y(f)) })]; }),
    s("path", { class: "now", d: rows.map(([v], i) => `${i ? "L" : "M"}${left + (i + 0.5) * wide} ${y(v)}`).join("") }),
    rows.map(([v, a, f], i) => s("rect", { class: "hit", x: left + i * wide, y: top, width: wide, height: H - top - bottom, onclick: () => actions.layer(i) }, s("title", {}, `${t("layer", { n: i })}\n${t("stream")} ${number(v)}\n${t("attention")} ${number(a)}\n${t("ffn")} ${number(f)}`))),
    rows.map((_, i) => (i % Math.ceil(n / 16) ? null : s("text", { x: left + (i + 0.5) * wide, y: H - 14, "text-anchor": "middle" }, i))),
    key(left, Math.min(120, (W - left) / 3), [["now", t("stream")], ["attn", t("attention")], ["ffn", t("ffn")]]));
  swap(box, intro("growth_intro", { n: `${state.token} “${labelOf(state.token)}”` }), svg);
}

function key(x, wide, entries) {
  return s("g", {}, entries.map(([name, said], i) => [name === "now" ? s("path", { class: "now", d: `M${x + i * wide} 10h14` }) : s("rect", { class: name, x: x + i * wide, y: 5, width: 14, height: 9 }), s("text", { x: x + i * wide + 20, y: 14 }, said)]));
}

/** The sampling chain, stage by stage, and the draw. */
export function sampling(box, actions) {
  const found = state.candidates;
  if (!found) { swap(box, h("p", { class: "empty", text: "…" })); return; }
  swap(box, intro("sampling_intro"),
    h("div", { class: "stage-flow" }, found.stages.map(stageCard)), draw(found), table(found, actions));
}

const STAGE_TERMS = { logits: "logit", "top-k": "top_k", "top-p": "top_p", "min-p": "min_p", temperature: "temperature" };

/** One stage: what it does, how many it kept, and the likeliest of those that it removed, struck through. */
function stageCard(stage) {
  const count = stage.removed_count ?? 0, named = (stage.removed ?? []).slice(0, 6);
  return h("div", { class: "stage-card", data: { stage: stage.name } },
    h("div", {}, h("b", { class: "strong" }, terms.word(STAGE_TERMS[stage.name], stageName(stage.name))), stage.setting ? h("small", { text: ` ${stage.setting}` }) : null),
    h("div", { text: t(count ? "kept_of" : "kept_all", { n: grouped(stage.kept), m: grouped(stage.kept + count) }) }),
    h("div", {}, h("p", { class: "small", text: stageWords(stage.name, { n: stage.setting }) }),
      count ? h("p", { class: "removed" }, h("span", { class: "strong", text: t("removed_count", { n: grouped(count), w: percent(stage.removed_probability ?? 0) }) }), named.map((entry) => h("span", {}, h("s", { text: quoted(entry) }), ` ${percent(entry.probability)}`)), count > named.length ? h("span", { text: t("and_more", { n: grouped(count - named.length) }) }) : null) : null));
}

/** The likeliest candidates; each of their numbers can be explained. */
function table(found, actions) {
  const most = Math.max(...found.top.map((entry) => Math.max(entry.probability, entry.final)), 1e-9);
  const told = (entry, path, text) => h("button", { class: "text", onclick: () => actions.explain(path, entry.id), text });
  return h("section", {}, h("h3", { text: t("candidates_table") }), h("table", { class: "terms" },
    h("thead", {}, h("tr", {}, h("th", { text: t("token") }), h("th", { class: "n roomy", text: "id" }), h("th", { class: "n" }, terms.word("logit", t("logit"))), h("th", { class: "n", text: t("probability") }), h("th", { class: "roomy" }), h("th", { class: "n", text: t("final_probability") }))),
    h("tbody", {}, found.top.map((entry) => h("tr", { class: entry.removed_by ? "out" : null }, h("td", { class: "strong" }, entry.removed_by ? h("s", { text: quoted(entry) }) : quoted(entry)), h("td", { class: "n roomy", text: entry.id }), h("td", { class: "n" }, told(entry, "head", number(entry.logit, 5))), h("td", { class: "n" }, told(entry, "probability", percent(entry.probability))),
      h("td", { class: "grow roomy" }, h("div", { class: "bar-one" }, h("i", { class: "ghost", style: { width: `${(100 * entry.probability) / most}%` } }), h("i", { style: { width: `${(100 * entry.final) / most}%` } }))), h("td", { class: "n", text: entry.final ? percent(entry.final) : entry.removed_by ? t("removed_by", { a: stageName(entry.removed_by) }) : "–" }))))));
}

function draw(found) {
  if (!found.draw) return h("p", { class: "small", text: t("draw_greedy") });
  const kept = found.top.filter((entry) => entry.final > 0).sort((a, b) => a.id - b.id), { number: u, interval, id } = found.draw;
  const total = kept.reduce((sum, entry) => sum + entry.final, 0);
  const chosen = kept.find((entry) => entry.id === id) ?? found.chosen ?? found.draw;
  return h("section", {}, h("h3", { text: t("draw") }),
    h("div", { class: "draw-box" }, h("div", { class: "draw-line" }, kept.map((entry) => h("span", { class: entry.id === id ? "drawn" : "", style: { width: `${100 * entry.final}%` }, title: `${quoted(entry)} ${percent(entry.final)}`, text: entry.final > 0.05 ? quoted(entry) : "" })), total < 0.999 ? h("span", { style: { flex: 1, background: "none" } }) : null),
      total > 0.999 ? h("i", { class: "draw-mark", style: { left: `${100 * u}%` } }) : null),
    h("p", { text: t("draw_says", { u: number(u, 5), a: number(interval[0], 4), b: number(interval[1], 4), t: quoted(chosen) }) }));
}

/** The cache, growing. */
export function cache(box) {
  const tokens = state.tokensRun, layers = state.tree?.layers ?? 0, found = state.cache?.cache ?? state.cache ?? {};
  const W = Math.max(300, box.clientWidth - 36), place = (i) => (W < 460 ? [0, 16 * i] : [210 * i, 0]), cell = Math.max(2, Math.min(22, (W - 50) / Math.max(1, tokens))), high = Math.max(3, Math.min(14, 340 / Math.max(1, layers))), left = 40;
  const columns = Array.from({ length: tokens }, (_, i) => s("g", { class: "cache-column" }, Array.from({ length: layers }, (_, l) => s("rect", { class: i >= state.promptLength ? "attn" : "ffn", x: left + i * cell, y: 4 + l * high, width: cell - 1, height: high - 1, opacity: i === tokens - 1 ? 1 : undefined })), s("title", {}, `${t("token_no", { n: i })} “${labelOf(i)}”`)));
  swap(box, intro("cache_intro"),
    h("div", { class: "cache-facts" }, fact(grouped(found.tokens ?? tokens), t("cached_tokens")), fact(bytes(found.bytes ?? 0), t("cache_bytes")), fact(short(found.saved_flops ?? 0), t("saved"))),
    s("svg", { class: "chart", viewBox: `0 0 ${W} ${layers * high + 40 + place(1)[1]}`, role: "img", "aria-label": t("view_cache"), preserveAspectRatio: "xMinYMin meet" },
      columns, [0, layers - 1].map((l) => s("text", { x: left - 7, y: 4 + l * high + high / 2 + 4, "text-anchor": "end" }, l)),
      s("g", { transform: `translate(${left} ${layers * high + 16})` }, [["ffn", "from_prompt"], ["attn", "from_steps"]].map(([name, said], i) => s("g", { transform: `translate(${place(i)})` }, s("rect", { class: name, width: 14, height: 9 }), s("text", { x: 20, y: 9 }, t(said)))))));
}

const fact = (value, said) => h("div", { class: "big-fact" }, h("b", { text: value }), h("small", { text: said }));

/** Two runs: difference per gear and what it does to the next token. */
export function compare(box, actions) {
  const found = state.comparison;
  if (!found || !state.other) {
    swap(box, h("p", { class: "view-intro", text: t("compare_none") }), h("p", {}, h("button", { onclick: actions.changeDialog, text: t("change") }), " ", h("button", { onclick: actions.compareDialog, text: t("compare") })));
    return;
  }
  const { first } = apart({ ...state, prompt: state.ran }, state.other);
  swap(box, h("p", { class: "strong", text: state.other.label }), h("p", { class: "small", text: [first < 0 ? t("tokens_same") : t("tokens_differ", { n: first }), where(found)].join(" ") }),
    found.alike ? null : h("p", { class: "notice", text: t("compare_trees") }), outputs(found), found.alike ? [intro("compare_intro"), differences(found, actions)] : null);
}

/** At which token of each run. */
function where(found) {
  const a = labelOf(found.token), { texts, bytes: hexes } = state.other, m = found.other_token;
  const b = texts[m] === undefined ? "" : quoted({ text: texts[m], bytes: hexes[m] });
  return m === found.token && a === b ? t("compare_at", { n: m, a }) : t("compare_both", { n: found.token, a, m, b });
}

function outputs(found) {
  if (!found.logits) return null;
  const listed = found.logits.candidates, bar = (p) => h("div", { class: "bar-one" }, h("i", { style: { width: `${100 * p}%` } }));
  if (!listed) return favourites(found, bar);
  return h("section", {}, h("h3", {}, `${t("outputs")} · `, terms.word("kl", t("kl", { n: number(found.logits.kl, 3) }))), h("table", { class: "terms" }, h("thead", {}, h("tr", {}, h("th"), h("th", { text: t("before") }), h("th"), h("th", { text: t("after_change") }), h("th"))),
    h("tbody", {}, listed.map((entry) => h("tr", {}, h("td", { class: "strong", text: quoted(entry) }), ["a", "b"].map((side) => [h("td", { class: "grow" }, bar(entry[side])), h("td", { class: `n${entry.id === found.logits[side][0].id ? " best" : ""}`, text: percent(entry[side]) })]))))),
    h("p", { class: "small", text: t("outputs_more") }));
}

/** Models with other vocabularies: what each of them would say, side by side. */
function favourites(found, bar) {
  const column = (title, rows) => h("section", {}, h("h3", { text: title }), h("table", { class: "terms" }, h("tbody", {}, rows.slice(0, 8).map((entry) =>
    h("tr", {}, h("td", { class: "strong", text: quoted(entry) }), h("td", { class: "grow" }, bar(entry.probability)), h("td", { class: "n", text: percent(entry.probability) }))))));
  return h("section", {}, h("h3", { text: t("next_of_each") }), h("p", { class: "small", text: t("compare_words") }),
    h("div", { class: "two" }, column(state.model.split("/").pop(), found.logits.a), column(state.other.model.split("/").pop(), found.logits.b)));
}

function differences(found, actions) {
  const kinds = [], byLayer = new Map(), rest = [];
  for (const gear of found.gears) {
    const inside = /^blocks\.(\d+)\.(.+)$/.exec(gear.path);
    if (!inside) { if (!/^blocks\.\d+$/.test(gear.path)) rest.push(gear); continue; }
    if (!kinds.includes(inside[2])) kinds.push(inside[2]);
    if (!byLayer.has(inside[1])) byLayer.set(inside[1], new Map());
    byLayer.get(inside[1]).set(inside[2], gear);
  }
  const wanted = kinds.filter((kind) => !/(^ffn|^attention)$|scores|weights|rotated/.test(kind));
  const cell = (gear) => {
    if (!gear) return h("td");
    const none = gear.difference === null || gear.difference === undefined;
    return h("td", {}, h("button", { "aria-label": `${fullName(gear.path)}: ${none ? t("other_shapes") : percent(gear.difference)}`, title: `${fullName(gear.path)}\n${none ? t("other_shapes") : `${percent(gear.difference)} · cos ${number(gear.cosine, 3)}`}`, style: { background: none ? "transparent" : scale.css(scale.share(Math.min(1, gear.difference), state.theme)) }, onclick: () => actions.select(null, gear.path) }));
  };
  return [h("table", { class: "matrix gears" }, h("thead", {}, h("tr", {}, h("th"), wanted.map((kind) => h("th", { title: nameOf(kind), text: shortName(kind) })))),
    h("tbody", {}, [...byLayer].map(([layer, gears]) => h("tr", {}, h("th", { text: t("layer", { n: layer }) }), wanted.map((kind) => cell(gears.get(kind))))))),
  h("table", { class: "matrix few" }, h("tbody", {}, h("tr", {}, rest.map((gear) => [h("th", { text: nameOf(gear.path) }), cell(gear)]))))];
}
