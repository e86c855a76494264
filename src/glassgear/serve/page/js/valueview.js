/** Middle: the value of the selected gear, as a heatmap or as attention, and the explanation of a number. */

import { Attention } from "./attention.js";
import { Detail } from "./detail.js";
import { byId, colour, h, swap } from "./dom.js";
import * as explaining from "./explain.js";
import { grouped, number, percent } from "./format.js";
import { Heatmap } from "./heatmap.js";
import { habit } from "./patterns.js";
import { quoted } from "./pieces.js";
import * as scale from "./scale.js";
import { nodeOf, on, set, state } from "./store.js";
import { fullName, nameOf, t } from "./texts.js";
import { Values } from "./values.js";

let actions = {}, parts = null, about = null, attention = null, heat = null, detail = null, limit = 1, showing = "", shownEntries = [];
export const values = new Values((trouble) => actions.trouble(trouble));

/** A token in a narrow place. */
function label(i) {
  const text = [...quoted({ text: state.texts[i] ?? "", bytes: state.bytes[i] })];
  return text.length > 12 ? `${text.slice(0, 11).join("")}…` : text.join("");
}

/** Prepare the view inside `box`. */
export function start(box, act) {
  actions = act;
  parts = build();
  box.append(...Object.values(parts.top));
  heat = new Heatmap(parts.heat, values, { hover: (at) => readHeat(at), pick: (token, channel) => pick(token, channel) });
  detail = new Detail(parts.bars, { pick: (channel) => pick(here(), entryOf(channel)), hover: (channel, value) => readHeat(channel === null ? null : { token: here(), channel: entryOf(channel), value }) });
  attention = new Attention(parts.large, parts.heads, { hover: readAttention, pick: (token, seen) => explainAt(token, [state.head, seen]), head: (head) => set({ head, look: head }) });
  values.ready = () => { if (!about || about.axes.at(-1) === "seen") return; drawHeat(); };
  parts.heat.addEventListener("keydown", (event) => heatKey(event));
  parts.bars.addEventListener("keydown", (event) => heatKey(event));
  parts.large.addEventListener("keydown", (event) => attentionKey(event));
  on("gear value tree language numbers", header);
  on("run tokensRun value token index head theme view language tree", () => show().catch(actions.trouble));
  on("habits", () => { if (about?.axes.at(-1) === "seen" && about.path === state.value) showAttention().catch(actions.trouble); });
  on("numbers", () => box.classList.toggle("explaining", state.numbers.length > 0));
  on("candidates", () => { if (about?.axes.includes("entry") && state.view === "value" && state.value === "head") drawHeat(); });
  on("numbers language theme", () => explaining.render(parts.top.explain, go));
}

function build() {
  const canvas = (name) => h("canvas", { tabindex: 0, role: "img", "aria-roledescription": "grid", data: { label: name, key: name } });
  const heatmap = canvas("heat_label"), bars = canvas("detail_label"), large = canvas("attention_label");
  const heads = h("div", { class: "heads" }), legend = h("canvas", { "aria-hidden": "true" });
  const top = {
    head: h("div", { class: "value-head" }, h("nav", { class: "trail", id: "trail" }), h("div", { class: "stats", id: "stats" })),
    tabs: h("div", { class: "tabs", id: "tabs", role: "tablist" }),
    none: h("p", { class: "empty pad", hidden: true }),
    plane: h("div", { class: "plane", id: "heat", hidden: true }, heatmap),
    attention: h("div", { class: "attention", id: "attention", hidden: true }, h("div", { class: "plane" }, large), heads),
    under: h("div", { class: "under" }, h("div", { class: "readout", id: "readout", "aria-live": "polite" }), h("div", { class: "legend" }, h("span", { class: "low" }), legend, h("span", { class: "high" }))),
    detail: h("div", { class: "detail", id: "detail", hidden: true }, bars),
    reads: h("div", { class: "reads", id: "reads", hidden: true }),
    explain: h("section", { class: "explain", id: "explain", data: { label: "explained" }, hidden: true }),
  };
  return { top, heat: heatmap, bars, large, heads, legend };
}

/** Where a number lies in the flat row, and back. */
export const flat = (index, inner) => (inner.length === 2 ? index[0] * inner[1] + index[1] : index[0]);
export const indexOf = (channel, inner) => (inner.length === 2 ? [Math.floor(channel / inner[1]), channel % inner[1]] : [channel]);

function header() {
  if (!state.tree) return;
  const words = state.value.split("."), steps = [];
  for (let i = 1; i <= words.length; i++) {
    const path = words.slice(0, i).join(".");
    if (state.nodes.has(path) || path === state.value) steps.push(path);
  }
  swap(byId("trail"), h("button", { onclick: () => actions.select("", ""), text: t("whole_model") }), steps.map((path, i) => [h("span", { class: "sep", text: "›" }), h("button", { "aria-current": i === steps.length - 1 ? "true" : null, onclick: () => actions.select(null, path), text: nameOf(path), data: { key: `b ${path}` } })]));
  const shown = neighbours();
  swap(byId("tabs"), shown.map((path) => h("button", { role: "tab", "aria-selected": String(path === state.value), onclick: () => actions.select(null, path), title: path, text: nameOf(path), data: { key: `tab ${path}` } })));
}

const ORDER = ["query", "key", "value", "query_norm", "key_norm", "query_rotated", "key_rotated", "scores", "weights", "mixed", "output", "gate", "up", "activated", "product", "down"];

/** The values that are shown as tabs: all of the sublayer that this one lies in, in order of computation. */
function neighbours() {
  const own = nodeOf(state.value), above = state.nodes.get(own.path.slice(0, Math.max(0, own.path.lastIndexOf("."))));
  const holder = !own.parts.length && above && above.path !== "" && !/^blocks\.\d+$/.test(above.path) ? above : own;
  const found = holder.path === "" ? [] : [...holder.values, ...(/^blocks\.\d+$/.test(holder.path) ? [] : holder.parts.flatMap((part) => state.nodes.get(part)?.values ?? []))];
  const rank = (path) => { const at = ORDER.indexOf(path.slice(path.lastIndexOf(".") + 1)); return at < 0 ? ORDER.length : at; };
  // A sublayer's own value is that of its last matrix: one tab is enough.
  const twice = found.some((path) => /\.(output|down)$/.test(path)) && state.value !== holder.path ? holder.path : "";
  const shown = [...new Set(found)].filter((path) => path !== twice).sort((a, b) => rank(a) - rank(b));
  return shown.length > 1 ? shown : [];
}

async function show() {
  if (state.view !== "value") return;
  const { run, value, tokensRun } = state;
  if (!run || !tokensRun) { none(t("nothing_yet")); return; }
  if (!nodeOf(value)?.values.includes(value) && ![...state.nodes.values()].some((n) => n.values.includes(value))) { none(t("no_value")); return; }
  const key = `${run} ${value} ${tokensRun}`;
  const found = await values.shape(run, value, tokensRun);
  if (`${state.run} ${state.value} ${state.tokensRun}` !== key) return;
  about = found;
  if (key !== showing) { limit = limitFrom(found.summary); showing = key; }
  stats(found.summary);
  const seen = about.axes.at(-1) === "seen";
  visible(seen);
  await (seen ? showAttention() : showHeat());
}

function none(text) {
  parts.top.none.textContent = text;
  for (const [name, part] of Object.entries(parts.top)) if (!["head", "tabs", "explain"].includes(name)) part.hidden = name !== "none";
  byId("stats").replaceChildren();
}

function visible(seen) {
  const { none: empty, plane, attention: matrix, under, detail: bars, reads } = parts.top;
  empty.hidden = true; plane.hidden = seen; bars.hidden = seen; matrix.hidden = !seen; reads.hidden = !seen; under.hidden = false;
}

/** A first guess of where the scale ends: three deviations, within what there is. */
function limitFrom(summary) {
  return scale.rounded(Math.min(Math.max(Math.abs(summary.min), Math.abs(summary.max)), Math.abs(summary.mean) + 3 * summary.std) || 1);
}

function stats(found) {
  const entry = (name, value, bad) => h("span", { class: bad ? "bad" : "" }, `${name} `, h("b", { text: value }));
  const shape = found.axes.map((axis, i) => t(`${found.shape[i] === 1 ? "one" : "many"}_${axis}`, { n: grouped(found.shape[i]) })).join(" × ");
  const broken = (found.nan ?? 0) + (found.axes.at(-1) === "seen" ? 0 : found.inf ?? 0);
  swap(byId("stats"), h("span", { text: shape }), entry(t("mean"), number(found.mean, 3)), entry(t("std"), number(found.std, 3)), entry(t("min"), number(found.min, 3)), entry(t("max"), number(found.max, 3)),
    found.zeros > 0.001 ? entry(t("zeros"), percent(found.zeros)) : null, broken ? entry(t("bad_numbers"), broken, true) : null);
}

function showHeat() {
  legend(false, limit);
  drawHeat();
  readHeat(null);
}

function drawHeat() {
  if (about.path !== state.value || !state.run || !state.tokensRun) return; // of what was chosen since, nothing is known yet
  const { run, value: path, tokensRun: tokens, theme } = state, token = Math.min(state.token, tokens - 1);
  const channel = state.index.length === about.inner.length ? flat(state.index, about.inner) : -1;
  heat.show({ run, path, about, tokens, labels: label, token, channel, limit, theme });
  parts.heat.setAttribute("aria-label", `${t("heat_label")}. ${fullName(path)}, ${label(token)}`);
  if (about.axes.includes("entry")) { candidateBars(channel, theme); return; }
  const row = values.row(run, path, about, token, tokens);
  const name = (c) => indexOf(c, about.inner).join("·"), axis = about.axes.filter((one) => one !== "token").map(t).join("·");
  detail.show({ row, channel, theme, name, title: (from, to) => t(to - from + 1 < row.length ? "bars_part" : "bars_of", { a: label(token), axis, from: name(from), to: name(to), n: grouped(row.length) }) });
}

/** Of a whole vocabulary, the largest logits say most: they are the bars. */
function candidateBars(chosen, theme) {
  const top = state.candidates?.top ?? [];
  shownEntries = top.map((entry) => entry.id);
  detail.show({ row: Float32Array.from(top, (entry) => entry.logit), channel: shownEntries.indexOf(chosen), theme, each: true, name: (i) => quoted(top[i]).slice(0, 9), title: () => t("largest_logits", { a: label(here()) }) });
  if (chosen < 0 && top.length) heat.look(top[0].id);
}

const here = () => Math.min(state.token, state.tokensRun - 1);
const entryOf = (channel) => (about.axes.includes("entry") && channel !== null ? shownEntries[channel] : channel);

async function showAttention() {
  const heads = about.inner[0], head = Math.min(state.head, heads - 1), { run, value: path, tokensRun: tokens, theme } = state;
  const token = Math.min(state.token, tokens - 1);
  legend(path.endsWith("weights"), limit);
  await attention.show({ run, path, heads, habits: habitsOf(path), tokens, labels: label, head, token, seen: state.index.length === 2 && state.index[0] === head ? state.index[1] : -1, theme });
  readAttention(null);
}

/** What each head of these weights reads on average, or null while it isn't known. */
const habitsOf = (path) => state.habits?.[path.replace(/\.weights$/, "")] ?? null;

/** A head's habit in words. */
function habitWords(head) {
  const found = state.value.endsWith("weights") ? habitsOf(state.value)?.[head] : null;
  if (!found) return "";
  const { name, share } = habit(found);
  return ` · ${name === "wide" ? t("habit_wide") : t(`habit_${name}`, { w: percent(share) })}`;
}

function legend(share, end) {
  const canvas = parts.legend;
  canvas.width = 220; canvas.height = 1;
  const context = canvas.getContext("2d"), line = context.createImageData(220, 1);
  const ramp = Float32Array.from({ length: 220 }, (_, i) => (share ? i / 219 : ((i - 109.5) / 109.5) * end));
  scale.paint(ramp, line.data, end, state.theme, share ? "share" : "diverging");
  context.putImageData(line, 0, 0);
  canvas.previousSibling.textContent = share ? "0" : number(-end, 3);
  canvas.nextSibling.textContent = share ? "1" : number(end, 3);
}

function readHeat(at) {
  const box = byId("readout");
  if (!at) { swap(box, h("span", { class: "small", text: t("scroll_hint") })); return; }
  const index = indexOf(at.channel, about.inner), axes = about.axes.filter((axis) => axis !== "token");
  swap(box, h("b", { text: at.value === undefined ? "…" : number(at.value, 6) }), ` · ${label(at.token)} · ${axes.map((axis, i) => `${t(axis)} ${index[i]}`).join(" · ")}${axes[0] === "entry" && state.candidates ? entryName(index[0]) : ""}`);
}

function entryName(id) {
  const entry = state.candidates.top.find((one) => one.id === id);
  return entry ? ` “${quoted(entry)}”` : "";
}

function readAttention(at) {
  const token = at?.token ?? Math.min(state.token, state.tokensRun - 1), row = attention.row(token), box = byId("readout");
  if (at && !at.gutter) swap(box, h("b", { text: at.seen > token && state.tree.causal ? t("masked") : number(at.value, 5) }), ` · ${label(token)} → ${label(at.seen)} · ${t("head_no", { n: state.head })}`);
  else swap(box, h("span", { class: "small", text: `${t("head_no", { n: state.head })}${habitWords(state.head)}` }));
  if (!row) return;
  const finite = [...row].map((v, i) => (Number.isFinite(v) ? v : -Infinity)), top = Math.max(...finite), weights = state.value.endsWith("weights");
  const most = weights ? 1 : Math.max(Math.abs(top), 1e-9);
  const shown = state.tree.causal === false ? state.tokensRun : token + 1;
  swap(byId("reads"), h("p", { class: "small", text: t("reads", { a: label(token) }) }), h("div", { class: "chips" }, Array.from({ length: shown }, (_, i) => {
    const rgb = weights ? scale.share(row[i], state.theme) : scale.diverging(row[i], most, state.theme);
    return h("button", { class: "chip", title: number(row[i], 4), style: { background: scale.css(rgb), color: scale.inkOn(rgb) }, onclick: () => explainAt(token, [state.head, i]), text: state.special[i] ? state.texts[i] : label(i).replace(/^·/, " ") });
  })));
}

function pick(token, channel) {
  if (channel < 0) { actions.chooseToken(token); return; }
  explainAt(token, indexOf(channel, about.inner));
}

/** Mark a number and explain it. */
export function explainAt(token, index, path = state.value) {
  set({ token, index });
  return explaining.explain(path, token, index).catch(actions.trouble);
}

/** Explain a number of the trail, or an input of the last one, and show where it lies; `from` steps of the trail stay in front of it. */
function go({ path, token, index }, from) {
  explaining.explain(path, token, index, from).then((shown) => { if (shown && !path.includes(" + ")) actions.point(path, token, index); }).catch(actions.trouble);
}

function heatKey(event) {
  if (!about || event.altKey || event.metaKey) return;
  const n = about.width, now = state.index.length === about.inner.length ? flat(state.index, about.inner) : 0;
  const steps = { ArrowLeft: -1, ArrowRight: 1, PageUp: -64, PageDown: 64 };
  if (event.key in steps) set({ index: indexOf(Math.max(0, Math.min(n - 1, now + steps[event.key])), about.inner) });
  else if (event.key === "ArrowUp" || event.key === "ArrowDown") actions.token(state.token + (event.key === "ArrowUp" ? -1 : 1));
  else if (event.key === "Enter") explainAt(state.token, indexOf(now, about.inner));
  else if (event.key === "+" || event.key === "=") heat.zoom(1.5);
  else if (event.key === "-") heat.zoom(1 / 1.5);
  else return;
  event.preventDefault(); event.stopPropagation();
  if (event.key.startsWith("Arrow") || event.key.startsWith("Page")) queueMicrotask(() => { const c = flat(state.index.length ? state.index : [0, 0], about.inner); readHeat({ token: state.token, channel: c, value: values.at(state.run, state.value, about, state.token, c, state.tokensRun) }); });
}

function attentionKey(event) {
  const seen = state.index.length === 2 ? state.index[1] : 0, head = state.head, heads = about?.inner[0] ?? 1;
  if (event.key === "ArrowLeft" || event.key === "ArrowRight") set({ index: [head, Math.max(0, Math.min(state.token, seen + (event.key === "ArrowLeft" ? -1 : 1)))] });
  else if (event.key === "ArrowUp" || event.key === "ArrowDown") actions.token(state.token + (event.key === "ArrowUp" ? -1 : 1));
  else if (event.key === "PageUp" || event.key === "PageDown") set({ head: (head + (event.key === "PageUp" ? heads - 1 : 1)) % heads });
  else if (event.key === "Enter") explainAt(state.token, [head, Math.min(seen, state.token)]);
  else return;
  event.preventDefault(); event.stopPropagation();
}

/** The picture in view as a canvas with a background, for export; null if there is none. */
export function picture() {
  const canvas = about?.axes.at(-1) === "seen" ? parts.large : parts.heat;
  if (state.view !== "value" || canvas.closest("[hidden]") || !about) return null;
  const made = document.createElement("canvas");
  made.width = canvas.width; made.height = canvas.height;
  const context = made.getContext("2d");
  context.fillStyle = colour("panel");
  context.fillRect(0, 0, made.width, made.height);
  context.drawImage(canvas, 0, 0);
  return made;
}
