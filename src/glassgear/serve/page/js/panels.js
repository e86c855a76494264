/** Right: the text so far, what may come next, the sampler, what each layer would say, the gear's ledger. */

import { apart } from "./apart.js";
import { byId, h, reveal, swap } from "./dom.js";
import { bytes, grouped, number, percent } from "./format.js";
import { defaultSampling } from "./link.js";
import { chips, quoted, visible } from "./pieces.js";
import { nodeOf, on, state } from "./store.js";
import * as reading from "./reading.js";
import * as seed from "./seed.js";
import * as terms from "./terms.js";
import { factName, fullName, nameOf, stageName, t } from "./texts.js";
import { lensWords } from "./views.js";

const SLIDERS = { temperature: [0, 2, 0.05], top_k: [0, 100, 1], top_p: [0, 1, 0.01], min_p: [0, 0.5, 0.01], repetition_penalty: [1, 2, 0.01] };
let actions = {};

/** Prepare the column. */
export function start(act) {
  actions = act;
  const panel = (id, name) => h("section", { class: `panel ${name}`, id });
  const folded = (id, key, term) => h("details", { class: "panel", id, open: true }, h("summary", { data: terms.of(term) }, h("span", { class: term ? "term" : null, data: { text: key } })), h("div", { class: "inside" }));
  byId("right").append(panel("text", "text-panel"), panel("next", "next-panel"), folded("lens", "lens_title", "lens"), folded("ledger", "ledger"));
  byId("next").append(h("header"), head(), h("ol", { class: "candidates", data: { label: "candidates_label" } }), h("p", { class: "small", data: { text: "candidates_marks" } }), h("div", { class: "sliders" }));
  byId("lens").addEventListener("toggle", () => { if (byId("lens").open) actions.lens(); });
  reading.start(byId("text"), act);
  on("texts token promptLength language other done", text);
  on("candidates language texts token tree", next);
  on("sampling language", sliders);
  on("lens language", lens);
  on("tree gear language", ledger);
  sliders();
}

/** What the two numbers of a candidate are. */
function head() {
  const name = (key) => h("span", { class: "n", data: { text: key, tip: `${key}_tip` } });
  return h("div", { class: "candidates-head", "aria-hidden": "true" }, name("of_model"), name("in_draw"));
}

/** One token of a text as a button. */
export function chipOf(chip, i, { current, made, onclick, differs, style, title }) {
  const names = ["chip", chip.special && "special", chip.part && "part", made && "made", i === current && "current", differs && "differs"].filter(Boolean);
  const shown = chip.part ? [chip.text, chip.part.glyph ? h("span", { class: "glyph", text: ` ${chip.part.glyph}` }) : ""] : marked(chip.text ?? "");
  return h("button", { class: names.join(" "), onclick, title, style, "aria-current": i === current ? "true" : null, data: { key: `chip ${i}`, token: i } }, shown);
}

function marked(text) {
  if (!/[\n\t\r]/.test(text)) return text || "∅";
  return text.split(/([\n\t\r])/).map((part) => (/[\n\t\r]/.test(part) ? h("span", { class: "mark-space", text: visible(part) }) : part));
}

function text() {
  const made = chips(state.texts, state.bytes, state.special);
  const line = h("div", { class: "chips" }, made.map((chip, i) => chipOf(chip, i, { current: state.token, made: i >= state.promptLength, onclick: () => actions.token(i), title: `${t("token_no", { n: i })} · id ${state.ids[i]}` })));
  swap(byId("text"), h("header", {}, h("h2", { text: state.other ? t("original") : t("text") }), h("small", { text: state.texts.length ? t(state.texts.length === 1 ? "one_tokens" : "tokens", { n: state.texts.length }) : "" })), line, reading.line,
    state.done ? h("p", { class: "small", text: state.done === "stop" ? t("stopped") : t("full") }) : null, other());
  reveal(byId("text").querySelector(".chips"), byId("text").querySelector(".current"));
  reading.refresh();
}

function other() {
  if (!state.other) return null;
  const { texts, bytes: hexes, special, label, promptLength } = state.other;
  const made = chips(texts, hexes, special), { differs } = apart({ ...state, prompt: state.ran }, state.other);
  return h("div", { class: "other" }, h("header", {}, h("h3", { text: label }), h("button", { class: "text", onclick: () => actions.clearOther(), text: t("remove") })),
    h("div", { class: "chips" }, made.map((chip, i) => chipOf(chip, i, { current: -1, made: i >= promptLength, differs: differs[i], onclick: () => actions.token(Math.min(i, state.ids.length - 1)) }))));
}

function next() {
  const found = state.candidates, section = byId("next");
  section.hidden = byId("lens").hidden = Boolean(state.tree) && !state.nodes.has("head"); // an encoder says no next token
  const current = state.texts[state.token] === undefined ? "" : quoted({ text: state.texts[state.token], bytes: state.bytes[state.token] });
  swap(section.querySelector("header"), h("h2", { text: t("next") }), h("small", { text: current ? t("after", { a: current }) : "" }));
  const free = state.token >= state.promptLength - 1;
  const rows = (found?.top ?? []).slice(0, 10);
  const most = Math.max(...rows.map((row) => Math.max(row.final, row.probability)), 1e-9);
  swap(section.querySelector(".candidates"), rows.map((row) => h("li", {},
    h("button", { class: [row.final > 0 ? "" : "out", row.id === found.draw?.id ? "drawn" : ""].join(" "), disabled: !free, onclick: () => actions.choose(row.id), data: { key: `n ${row.id}`, id: row.id },
      title: `id ${row.id} · logit ${number(row.logit)} · ${percent(row.probability)} → ${row.removed_by ? t("removed_by", { a: stageName(row.removed_by) }) : percent(row.final)}` },
    h("span", { class: "token", text: quoted(row) }),
    h("span", { class: "bar-one" }, h("i", { class: "ghost", style: { width: `${(100 * row.probability) / most}%` } }), h("i", { style: { width: `${(100 * row.final) / most}%` } })),
    h("span", { class: "n of-model", text: percent(row.probability) }),
    h("span", { class: row.removed_by ? "n by" : "n in-draw", text: row.removed_by ? stageName(row.removed_by) : percent(row.final) })))));
}

function sliders() {
  const box = byId("next").querySelector(".sliders");
  if (!box.children.length) {
    for (const [name, [low, high, step]] of Object.entries(SLIDERS)) {
      box.append(h("label", { for: `s-${name}`, class: "term", data: { text: name, ...terms.of(name) } }), h("input", { type: "range", data: terms.of(name), id: `s-${name}`, min: low, max: high, step, oninput: (event) => change(name, Number(event.target.value)) }), h("output", { for: `s-${name}` }));
    }
    box.append(...seed.row((value) => change("seed", value)), h("button", { class: "text", onclick: () => { seed.reset(); actions.sampling(defaultSampling()); }, data: { text: "reset" } }), seed.said);
  }
  for (const name of Object.keys(SLIDERS)) {
    const input = byId(`s-${name}`);
    input.value = state.sampling[name];
    input.nextElementSibling.textContent = words(name, state.sampling[name]);
    input.setAttribute("aria-valuetext", words(name, state.sampling[name]));
  }
  seed.show();
}

function words(name, value) {
  if (name === "temperature" && value === 0) return t("greedy");
  const neutral = { top_k: 0, top_p: 1, min_p: 0, repetition_penalty: 1 };
  return neutral[name] === value ? t("off") : String(Number(value.toFixed(2)));
}

const change = (name, value) => actions.sampling({ ...state.sampling, [name]: value });

function lens() {
  const found = state.lens, box = byId("lens").querySelector(".inside");
  if (!found) { swap(box, h("p", { class: "small", text: "…" })); return; }
  const final = found.final?.id ?? found.layers.at(-1).top[0]?.id;
  const rows = found.layers.map((layer, i) => h("button", { class: `lens-row${i === found.decided ? " decided" : ""}`, onclick: () => actions.layer(i), data: { key: `lens ${i}` }, title: layer.top.map((e) => `${quoted(e)} ${percent(e.probability)}`).join("   ") },
    h("span", { class: "layer-no", text: i }), h("span", { class: `token${layer.top[0]?.id === final ? " same" : ""}`, text: layer.top[0] ? quoted(layer.top[0]) : "" }),
    h("span", { class: "bar-one" }, h("i", { style: { width: `${100 * layer.final}%` } })), h("span", { class: "n", text: percent(layer.final) })));
  swap(box, h("p", { class: "lens-said", text: lensWords(found) }), h("div", { class: "lens" }, rows));
}

function ledger() {
  const node = nodeOf(state.gear), box = byId("ledger").querySelector(".inside");
  if (!node) return;
  const held = node.tensors.length ? node.tensors : [];
  const below = node.parts.map((path) => state.nodes.get(path)).filter((part) => part?.parameters);
  const stacked = below.filter((part) => !/^blocks\.\d+$/.test(part.path)), blocks = below.filter((part) => /^blocks\.\d+$/.test(part.path));
  const row = (name, shape, parameters, path) => h("tr", {}, h("td", {}, path === undefined ? name : h("button", { class: "text", onclick: () => actions.gear(path), text: name })), h("td", { text: shape }), h("td", { class: "n", text: grouped(parameters) }));
  swap(box, h("dl", { class: "facts" }, h("dt", { text: fullName(node.path) }), h("dd", {}, terms.kind(node.kind)),
    h("dt", { text: t("parameters") }), h("dd", { text: node.parameters ? `${grouped(node.parameters)} · ${percent(node.share ?? 0)}` : t("no_parameters") }),
    Object.entries(node.facts ?? {}).filter(([, v]) => v !== null && typeof v !== "object").map(([name, value]) => [h("dt", {}, terms.word(name === "kv_heads" ? "gqa" : null, factName(name))), h("dd", { text: String(value) })])),
  held.length || below.length ? h("table", { class: "grid-table" }, h("tbody", {},
    held.map((tensor) => row(tensor.path.slice(node.path.length + 1) || tensor.path, `${tensor.shape.map(grouped).join(" × ")} · ${tensor.type}${tensor.bytes ? ` · ${bytes(tensor.bytes)}` : ""}`, tensor.parameters)),
    stacked.map((part) => row(nameOf(part.path), part.tensors[0]?.shape.map(grouped).join(" × ") ?? part.kind, part.parameters, part.path)),
    blocks.length ? row(t(blocks.length === 1 ? "one_layer" : "layers", { n: blocks.length }), `${blocks.length} × ${grouped(blocks[0].parameters)}`, blocks.reduce((sum, b) => sum + b.parameters, 0), blocks[0].path) : null)) : null,
  definition(node));
}

function definition(node) {
  const found = state.tree.sources?.[node.source];
  if (!found) return node.source ? h("p", { class: "small", text: node.source }) : null;
  return h("details", {}, h("summary", { class: "small", text: `${t("source")}: ${found.file}` }), h("pre", { class: "template small", text: found.text }));
}

