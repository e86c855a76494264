/** Help, changes to the machine, a second run, export: small windows that Esc closes. */

import { slice } from "./api.js";
import { colour, h, save } from "./dom.js";
import { explanation } from "./explain.js";
import * as machine from "./machine.js";
import { on, state } from "./store.js";
import { nameOf, t } from "./texts.js";
import * as view from "./valueview.js";

let open = null;

/** Show a window with this content. */
function show(title, ...content) {
  open?.close();
  const window_ = h("dialog", { "aria-label": title }, h("h2", { text: title }), content);
  window_.addEventListener("close", () => { window_.remove(); if (open === window_) open = null; });
  window_.addEventListener("click", (event) => { if (event.target === window_) window_.close(); });
  window_.querySelector(".actions")?.before(h("p", { class: "notice", role: "alert", hidden: true }));
  document.body.append(window_);
  window_.showModal();
  open = window_;
  return window_;
}

/** Say in the window what is wrong; "" takes it back. */
function wrong(text) {
  const line = open.querySelector(".notice");
  line.textContent = text;
  line.hidden = !text;
}

/** Do it, and close the window once it is done; if it fails, everything stays as it was chosen. */
async function attempt(work) {
  const window_ = open, button = window_.querySelector(".primary");
  if (button.disabled) return;
  wrong("");
  button.disabled = true;
  try {
    await work();
    window_.close();
  } catch (error) {
    if (open === window_) wrong(error.message);
  } finally { button.disabled = false; }
}

/** Whether one is open. */
export const isOpen = () => open !== null;
on("language", () => open?.close());

/** What keys do. */
export function help() {
  show(t("help_title"), h("p", { class: "view-intro", text: t("help_intro") }), h("p", { class: "view-intro", text: t("help_marks") }), h("dl", { class: "keys" }, t("keys").map(([keys, said]) => [h("dt", {}, keys.split(" ").map((key, i) => [i && /^[–]$/.test(key) ? " – " : key === "–" ? "–" : h("kbd", { text: key }), " "])), h("dd", { text: said })])),
    h("div", { class: "actions" }, h("button", { class: "primary", onclick: () => open.close(), text: t("done") })));
}

/** A change in words. */
export function changeWords(change) {
  const name = change.path ? `${/^blocks\.(\d+)\./.test(change.path) ? `${t("block", { n: /^blocks\.(\d+)/.exec(change.path)[1] })} · ` : ""}${nameOf(change.path)}` : t("whole_model");
  if (change.op === "activation") return t("becomes", { name, to: change.to });
  if (change.path.endsWith("_residual")) return t("is_cut", { name });
  return t("is_off", { name: change.head === undefined ? name : `${name} · ${t("head_no", { n: change.head })}` });
}

const KINDS = {
  zero_head: (n, head) => ({ op: "zero", path: `blocks.${n}.attention`, head }),
  zero_attention: (n) => ({ op: "zero", path: `blocks.${n}.attention` }),
  zero_ffn: (n) => ({ op: "zero", path: `blocks.${n}.ffn` }),
  zero_residual: (n) => ({ op: "zero", path: `blocks.${n}.attention_residual` }),
  zero_residual_ffn: (n) => ({ op: "zero", path: `blocks.${n}.ffn_residual` }),
  zero_layer: (n) => ({ op: "zero", path: `blocks.${n}` }),
  swap_activation: (n, head, to) => ({ op: "activation", path: `blocks.${n}.ffn`, to }),
};

/** Choose what to switch off or swap; `run(changes)` runs it beside the original. */
export function changes(run) {
  const list = [...state.changes], layers = state.tree?.layers ?? 1;
  let touched = false; // what is chosen in the form and not yet in the list is run too
  const headsOf = (n) => state.nodes.get(`blocks.${n}.attention`)?.facts?.heads ?? 1, heads = headsOf(state.open);
  const field = (label, control) => h("div", { class: "row" }, h("label", { for: control.id, text: label }), control);
  const kind = h("select", { id: "change-kind", onchange: touch }, Object.keys(KINDS).map((key) => h("option", { value: key, text: t(key) })));
  const layer = h("input", { type: "number", id: "change-layer", min: 0, max: layers - 1, step: 1, value: state.open, oninput: touch });
  const head = h("input", { type: "number", id: "change-head", min: 0, max: heads - 1, step: 1, value: Math.min(state.head, heads - 1), oninput: touch });
  const to = h("select", { id: "change-to", onchange: touch }, (state.tree?.activations ?? ["relu", "gelu", "silu", "identity"]).map((name) => h("option", { text: name })));
  const rows = [field(t("change_what"), kind), field(t("where"), layer), field(t("which_head"), head), field(t("to"), to)];
  const items = h("ul", { class: "list-of-changes" });
  function fit() { head.max = headsOf(layer.value) - 1; rows[2].hidden = kind.value !== "zero_head"; rows[3].hidden = kind.value !== "swap_activation"; }
  function touch() { touched = true; fit(); draw(); }
  const within = (field) => field.value !== "" && field.checkValidity();
  function add() {
    wrong(limits());
    if (limits()) return false;
    if (!known()) list.push(one());
    touched = false;
    draw();
    return true;
  }
  const limits = () => (!within(layer) ? t("layer_limits", { n: layers - 1 }) : kind.value === "zero_head" && !within(head) ? t("head_limits", { layer: layer.value, n: head.max }) : "");
  const one = () => KINDS[kind.value](Number(layer.value), Number(head.value), to.value);
  const known = () => list.some((c) => JSON.stringify(c) === JSON.stringify(one()));
  const item = (change, remove, said = "") => h("li", { class: said ? "chosen" : null }, h("span", {}, changeWords(change), said ? h("small", { text: ` ${said}` }) : null), h("button", { class: "quiet", onclick: () => { remove(); draw(); }, text: t("remove") }));
  function draw() {
    const more = list.length && touched && !limits() && !known();
    items.replaceChildren(...list.map((change, i) => item(change, () => list.splice(i, 1))), ...(more ? [item(one(), () => { touched = false; }, t("added_too"))] : []));
  }
  fit(); draw();
  show(t("change_title"), rows, h("button", { id: "change-add", onclick: add, text: t("add_change") }), items,
    h("div", { class: "actions" }, h("button", { onclick: () => open.close(), text: t("cancel") }),
      h("button", { class: "primary", id: "change-apply", onclick: () => { if ((list.length && !touched) || add()) attempt(() => run(list)); }, text: t("apply") })));
  kind.focus();
}

/** A field for a model: names that are known are offered, any other name or path may be typed. */
function modelField(id, value) {
  const field = h("input", { type: "text", id, value, list: `${id}-names`, spellcheck: "false", placeholder: t("model_hint") });
  return [field, h("datalist", { id: `${id}-names` }, state.about.models.map((m) => h("option", { value: m.name })))];
}

/** Name another model; `load(name)` loads it. */
export function model(load) {
  const [field, names] = modelField("model-name", "");
  const go = () => { if (field.value.trim()) attempt(() => load(field.value.trim())); else wrong(t("model_needed")); };
  field.addEventListener("keydown", (event) => { if (event.key === "Enter") go(); });
  show(t("model"), h("div", { class: "row" }, h("label", { for: "model-name", text: t("model") }), field, names), h("p", { class: "small", text: t("model_hint") }),
    h("div", { class: "actions" }, h("button", { onclick: () => open.close(), text: t("cancel") }), h("button", { class: "primary", id: "model-load", onclick: go, text: t("load") })));
  field.focus();
}

/** Choose a second prompt or model; `run(model, prompt)`. */
export function compare(run, clear) {
  const [model, names] = modelField("other-model", state.other?.model ?? state.model);
  const prompt = h("input", { type: "text", id: "other-prompt", value: state.other?.prompt ?? state.prompt });
  const go = () => attempt(() => run(model.value.trim() || state.model, prompt.value));
  prompt.addEventListener("keydown", (event) => { if (event.key === "Enter") go(); });
  show(t("compare_title"), h("div", { class: "row" }, h("label", { for: "other-prompt", text: t("prompt") }), prompt), h("div", { class: "row" }, h("label", { for: "other-model", text: t("model") }), model, names),
    h("div", { class: "actions" }, state.other ? h("button", { onclick: () => { open.close(); clear(); }, text: t("clear_other") }) : null, h("button", { onclick: () => open.close(), text: t("cancel") }), h("button", { class: "primary", id: "other-run", onclick: go, text: t("run") })));
  prompt.select();
}

/** Share the link, or save what is in view. */
export function exporting(say, trouble) {
  const choice = (key, work, more = `${key}_more`) => h("button", { id: key, onclick: () => { open.close(); Promise.resolve(work()).catch(trouble); } }, h("span", { class: "strong", text: t(key) }), h("small", { text: t(more) }));
  const name = (kind, of = state.value || "model") => `glassgear-${of.replace(/[^\w.]+/g, "-")}.${kind}`;
  const keep = (file, blob) => { save(file, blob); say(t("saved_to", { name: file })); };
  const own = state.view === "value", picture = view.picture(), data = own ? picture || (explanation() && state.numbers.length) : viewData(), more = own ? "export_json_more" : "export_view";
  show(t("export_title"), h("div", { class: "choices" },
    choice("share_link", async () => { await copy(location.href); say(t("copied")); }),
    picture ? choice("export_png", () => picture.toBlob((blob) => keep(name("png"), blob))) : null,
    machine.picture() ? choice("export_svg", () => keep(name("svg", "machine"), new Blob([drawing()], { type: "image/svg+xml" }))) : null,
    data ? choice("export_json", async () => keep(own ? name("json") : name("json", state.view), new Blob([JSON.stringify(own ? await numbers() : { ...about(), ...data }, null, 1)], { type: "application/json" })), more) : null,
    own && picture ? choice("export_trace", () => { const link = h("a", { href: `api/export?${new URLSearchParams({ run: state.run, what: "safetensors", select: state.value || "embed" })}`, download: name("safetensors") }); link.click(); say(t("saved_to", { name: name("safetensors") })); }) : null));
}

async function copy(text) {
  try { await navigator.clipboard.writeText(text); } catch {
    const field = h("textarea", { text });
    document.body.append(field); field.select(); document.execCommand("copy"); field.remove();
  }
}

/** The machine as a file of its own: what the style sheet says is written into it. */
function drawing() {
  const svg = machine.picture(), copied = svg.cloneNode(true), from = svg.querySelectorAll("*"), to = copied.querySelectorAll("*");
  const wanted = ["fill", "stroke", "stroke-width", "stroke-dasharray", "font-size", "font-family", "font-weight", "text-anchor", "opacity", "rx"];
  from.forEach((element, i) => { const style = getComputedStyle(element); for (const name of wanted) { const value = style.getPropertyValue(name); if (value && value !== "auto") to[i].setAttribute(name, value); } });
  const box = svg.viewBox.baseVal;
  copied.setAttribute("width", box.width); copied.setAttribute("height", box.height);
  const paper = document.createElementNS("http://www.w3.org/2000/svg", "rect");
  paper.setAttribute("width", "100%"); paper.setAttribute("height", "100%"); paper.setAttribute("fill", colour("panel"));
  copied.prepend(paper);
  return new XMLSerializer().serializeToString(copied);
}

/** Of which text and token the numbers are. */
const about = () => ({ model: state.model, texts: state.texts, ids: state.ids, token: state.token });

/** What a view beside the values has: the server's answer that it is drawn from, or null where there is none. */
function viewData() {
  const names = { prompt: ["pipeline", "warnings"], growth: ["growth"], heads: state.habit ? ["habits"] : ["heads"], lens: ["lens"], sampling: ["candidates"], cache: ["cache"], compare: ["comparison", "other"] }[state.view];
  return state.run && state[names[0]] ? Object.fromEntries(names.map((key) => [key, state[key]])) : null;
}

async function numbers() {
  const told = { ...about(), path: state.value };
  if (explanation() && state.numbers.length) return { ...told, explanation: explanation() };
  const found = await slice(state.run, state.value, { token: Math.min(state.token, state.tokensRun - 1) });
  return { ...told, axes: found.axes, shape: found.shape, values: Array.from(found.array, (v) => (Number.isFinite(v) ? v : null)) };
}
