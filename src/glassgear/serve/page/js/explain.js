/** Where a number comes from: formula, terms by size, quantised blocks; every input can be explained in turn. */

import { get, latest } from "./api.js";
import { h, swap } from "./dom.js";
import { exact, grouped, number, signed } from "./format.js";
import { quoted } from "./pieces.js";
import * as scale from "./scale.js";
import { set, state } from "./store.js";
import { fullName, language, t } from "./texts.js";

const FIRST = 12, LONGEST = 12; // terms at first; characters of a token in a title
let shown = FIRST, blocks = 1, current = null, wanted = null;
let first = null, at = -1; // where the trail begins, and the token that was selected at the time
let spoken = "", asking = 0; // the language of `current`, and how many answers are waited for

const fetchNumber = latest((run, path, token, index, signal) => get(`runs/${run}/explain`, { path, token, index: index.join(",") }, signal));

/** The explanation in the language that the page has when it comes; null if another one was asked for meanwhile. */
async function inWords(...place) {
  asking++;
  try {
    for (;;) {
      const words = language(), found = await fetchNumber(...place);
      if (!found) return null;
      if (words === language()) { spoken = words; return found; }
    }
  } finally { asking--; }
}

/** What is explained at the moment, for export. */
export const explanation = () => current;

/** The number that is explained, or about to be: [path, token, index], or null. */
export const asked = () => wanted;

/** Explain a number; `from` how many steps of the trail stay in front of it. Whether it is shown then: not if another was asked for. */
export async function explain(path, token, index, from = 0) {
  const mine = begin(path, token, index, from);
  return finish(mine, from).catch(async (error) => {
    if (wanted === mine) { stay(); await again().catch(() => {}); }
    throw error;
  });
}

function begin(path, token, index, from) {
  wanted = [path, token, index];
  first = from && state.numbers.length ? state.numbers[0] : { path, token, index };
  at = state.token;
  return wanted;
}

/** Nothing new to show: what is there stays the one that is explained. */
function stay() {
  const last = state.numbers.at(-1);
  wanted = last ? [last.path, last.token, last.index] : null;
  first = state.numbers[0] ?? null;
  at = -1;
}

async function finish([path, token, index], from) {
  const found = await inWords(state.run, path, token, index);
  if (!found) return false;
  current = found; shown = FIRST; blocks = 1;
  set({ numbers: [...state.numbers.slice(0, from), { path, token, index, value: found.result }] });
  return true;
}

/**
 * The selected token may be another one: ask for the number that the trail begins with there, at `token`.
 * Returns {path, index, deep, done}, `deep` whether inputs of it were shown, `done` fails if there is no such number; null if nothing has moved.
 */
export function move(token) {
  if (!wanted || (state.token === at && wanted[1] <= token)) return null;
  at = state.token;
  if (wanted[1] === token) return null; // an input was followed to its token
  const { path, index } = first, deep = state.value !== path || wanted[0] !== path || String(wanted[2]) !== String(index);
  return { path, index, deep, done: finish(begin(path, token, index, 0), 0) };
}

/** Ask for the same number once more where the language is another one by now; a number that is on its way comes in it anyhow. */
export async function again() {
  if (!current || !state.numbers.length || asking || spoken === language()) return;
  const last = state.numbers.at(-1), found = await inWords(state.run, last.path, last.token, last.index);
  if (!found || state.numbers.at(-1) !== last) return;
  current = found;
  set({ numbers: [...state.numbers] });
}

/** Close it. */
export function close() { fetchNumber.stop(); current = wanted = first = null; set({ numbers: [] }); }

/** Draw it into its section. `go(place, from)` explains a number of the trail or an input, behind `from` steps of the trail. */
export function render(section, go) {
  section.hidden = !current || !state.numbers.length;
  if (section.hidden) return;
  const follow = (input) => go(input, state.numbers.length);
  swap(section,
    h("div", { class: "explain-head" }, h("nav", { class: "trail", "aria-label": t("explained") }, state.numbers.map((place, i) => crumb(place, i, go))),
      h("button", { class: "icon quiet", "aria-label": t("close"), title: t("close"), onclick: close, text: "✕" })),
    head(current), steps(current), terms(current, follow, () => { shown += 40; render(section, go); }),
    quantised(current, () => { blocks += 8; render(section, go); }), inputs(current, follow));
}

function crumb(place, i, go) {
  const last = i === state.numbers.length - 1;
  return [i ? h("span", { class: "sep", text: "←" }) : null,
    h("button", { "aria-current": last ? "true" : null, data: { key: `c ${i}` }, onclick: () => go(place, i), title: `${place.path} [${place.index}] · ${t("token_no", { n: place.token })}`, text: `${fullName(place.path.split(" + ")[0])} [${place.index.join(", ")}]${tokenOf(place.token)}` })];
}

/** Which token a number belongs to, behind its name. */
function tokenOf(i) {
  const text = state.texts[i] === undefined ? [] : [...quoted({ text: state.texts[i], bytes: state.bytes[i] })];
  return text.length ? ` · “${text.length > LONGEST ? `${text.slice(0, LONGEST - 1).join("")}…` : text.join("")}”` : "";
}

function head(found) {
  const weights = Object.entries(found.weights ?? {}).map(([role, said]) => `${role}: ${said}`).join(" · ");
  return h("div", { class: "sum" },
    h("div", { class: "number", text: number(found.result, 6), title: exact(found.result) }),
    h("div", {}, h("p", { class: "formula", text: found.formula }), h("p", { class: `verdict${found.exact ? " exact" : ""}`, text: found.verdict }),
      h("p", { class: "small", text: [weights, found.source].filter(Boolean).join(" · ") })));
}

function steps(found) {
  if (!found.steps?.length) return null;
  return h("section", {}, h("h3", { text: t("steps") }), h("table", { class: "terms" }, found.steps.map((step) =>
    h("tr", {}, h("td", { class: "strong", text: step.name }), h("td", { class: "wrap", text: step.words }), h("td", { class: "n", text: step.value === null || step.value === undefined ? "" : number(step.value, 7) })))));
}

function terms(found, follow, more) {
  const all = found.terms ?? [];
  if (!all.length) return null;
  const ordered = [...all].sort((a, b) => Math.abs(b.value) - Math.abs(a.value)), kept = ordered.slice(0, shown);
  const most = Math.abs(ordered[0].value) || 1, rest = ordered.slice(shown).reduce((sum, term) => sum + term.value, found.rest ?? 0);
  const factors = Object.keys(ordered[0].factors ?? {});
  const byNumber = new Map((found.inputs ?? []).map((input) => [input.number, input]));
  let sum = 0;
  return h("section", {}, h("h3", { text: all.length > shown || found.rest ? t("terms_of", { shown: kept.length, rest: signed(rest) }) : t("terms"), title: found.order || null }, found.sum_of ? h("small", { text: ` · ${found.sum_of}` }) : null),
    h("table", { class: "terms" },
      h("thead", {}, h("tr", {}, h("th", { text: t("from") }), factors.map((name) => h("th", { class: "n", text: name })), h("th", { class: "n", text: t("adds") }), h("th"), h("th", { class: "n", text: t("running_sum") }))),
      h("tbody", {}, kept.map((term, i) => {
        sum += term.value;
        return h("tr", {}, h("td", {}, source(term, i, byNumber, follow)),
          factors.map((name) => h("td", { class: "n", text: number(term.factors[name], 5) })), h("td", { class: "n strong", text: signed(term.value, 5) }),
          h("td", { class: "grow" }, bar(term.value, most)), h("td", { class: "n", text: number(sum, 5) }));
      }))),
    all.length > shown ? h("button", { class: "text", onclick: more, text: t("more"), data: { key: "more" } }) : null);
}

/** What a term comes from, each of its inputs to be followed. */
function source(term, i, byNumber, follow) {
  const found = (term.inputs ?? []).map((number) => byNumber.get(number)).filter(Boolean);
  const button = (input, text, k) => h("button", { class: "text", onclick: () => follow(input), title: place(input), data: { key: `t ${i} ${k}`, follow: i }, text });
  if (!found.length) return term.name;
  if (found.length === 1) return button(found[0], term.name, 0);
  const factors = Object.keys(term.factors ?? {});
  return [`${term.name}: `, found.map((input, k) => [k ? " · " : "", button(input, factors[k] ?? input.name, k)])];
}

function bar(value, most) {
  const share = Math.min(1, Math.abs(value) / most) * 50;
  return h("div", { class: "bar-cell" }, h("i", { style: { left: `${value < 0 ? 50 - share : 50}%`, width: `${Math.max(0.6, share)}%`, background: scale.css(scale.ofBar(value, most, state.theme)) } }));
}

const place = (input) => `${input.path} [${input.index.join(", ")}] · ${t("token_no", { n: input.token })} · ${number(input.value, 6)}`;

function quantised(found, more) {
  if (!found.blocks?.length) return null;
  const least = found.blocks.slice(0, blocks);
  return h("section", {}, h("h3", {}, `${t("blocks")} · ${found.stored} · ${found.blocks[0].minimum === null ? t("codes_only") : t("codes_line")}`),
    h("div", { class: "blocks" }, least.map(block)),
    found.blocks.length > blocks ? h("button", { class: "text", onclick: more, text: `${t("more")} (${grouped(found.blocks.length - blocks)})`, data: { key: "blocks" } }) : null);
}

function block(one) {
  const most = Math.max(1, ...one.levels.map(Math.abs)), last = one.first + one.codes.length - 1;
  const line = [`${t("scale")} ${number(one.scale, 6)}`];
  if (one.minimum !== null) line.push(`${t("minimum")} ${number(one.minimum, 6)}`);
  const stored = Object.entries(one.stored ?? {}).map(([name, value]) => `${name} ${value}`).join("\n");
  const weight = one.levels[0] * one.scale + (one.minimum ?? 0);
  return h("div", { class: "block" },
    h("p", { class: "small", title: stored, text: `${t("block_no", { n: one.number, a: one.first, b: last })} · ${line.join(" · ")}` }),
    h("div", { class: "codes" }, one.codes.map((code, i) => {
      const own = one.levels[i] * one.scale + (one.minimum ?? 0);
      const rgb = scale.diverging(own, most * Math.abs(one.scale), state.theme);
      return h("span", { text: code, title: `${one.first + i}: ${number(own, 6)}`, style: { background: scale.css(rgb), color: scale.inkOn(rgb) } });
    })),
    h("p", { class: "equation", text: `${one.levels[0]} × ${number(one.scale, 6)}${one.minimum === null ? "" : ` ${one.minimum < 0 ? "−" : "+"} ${number(Math.abs(one.minimum), 6)}`} = ${number(weight, 6)}${one.dot === null ? "" : ` · Σ ${one.dot} × ${number(one.unit, 5)}`} → ${signed(one.value, 6)}` }));
}

function inputs(found, follow) {
  const within = new Set((found.terms ?? []).flatMap((term) => term.inputs ?? []));
  const all = (found.inputs ?? []).filter((input) => !within.has(input.number));
  if (!all.length) return null;
  return h("section", {}, h("h3", { text: t("inputs") }), h("div", { class: "chips-in" }, all.slice(0, shown * 2).map((input, i) =>
    h("button", { onclick: () => follow(input), title: place(input), data: { key: `i ${i}`, follow: i } }, h("span", { text: `${input.name} ` }), number(input.value, 5)))));
}
