/** Left: the machine, drawn from the gear tree, with the current token's values as strips of colour. */

import { latest, slice } from "./api.js";
import { byId, h, moves, reveal, s, swap } from "./dom.js";
import { grouped, percent, short } from "./format.js";
import { quoted } from "./pieces.js";
import * as scale from "./scale.js";
import { blockOf, nodeOf, on, state } from "./store.js";
import * as terms from "./terms.js";
import { fullName, nameOf, t } from "./texts.js";

const W = 284, SPINE = 20, LEFT = 46, RIGHT = 272, CELLS = 36;
const last = (path) => path.slice(path.lastIndexOf(".") + 1);
const below = (block, name) => `${block}.${name}`;

let actions = {};
let order = []; // what arrows up and down go through: [{gear, value}]
let places = []; // of strips: {value, element, width}
let svg = null;

/** Prepare the column. `act` has select(gear, value), open(block), focus(path). */
export function start(act) {
  actions = act;
  byId("left").append(
    h("div", { class: "machine-head" }, h("nav", { class: "trail", id: "zoom" }), h("span", { id: "zoom-buttons" })),
    h("div", { class: "machine-scroll", id: "machine" }), h("div", { class: "gear-card", id: "gear-card" }),
  );
  on("tree open focus language theme changes", draw);
  on("token texts candidates", chips);
  on("tree gear value language", () => { mark(); card(); });
  on("run token tokensRun open tree head theme focus", strips);
  on("growth token", layerBars);
  on("comparison", changed);
}

/** The drawing, for export. */
export const picture = () => svg;

/** Gears in the order in which they are drawn. */
export const sequence = () => order;

function draw() {
  if (!state.tree) return;
  order = []; places = [];
  const pen = new Pen();
  if (state.focus) pen.zoomed(state.focus); else pen.model();
  svg = s("svg", { class: "machine", viewBox: `0 0 ${W} ${Math.ceil(pen.y + 8)}`, role: "group", "aria-label": t("machine") }, pen.back, pen.front, pen.drop());
  swap(byId("machine"), svg);
  trail();
  mark(); layerBars(); strips();
}

/** Draws downwards: `y` is where the next thing goes. */
class Pen {
  constructor() {
    this.y = 6;
    this.back = s("g");
    this.front = s("g");
    this.height = state.focus ? 32 : 25;
    this.gap = state.focus ? 11 : 8;
    this.n = 0;
  }

  wire(d, name = "wire") { this.back.append(s("path", { class: name, d })); }

  /** A box for a value, or for a gear where it shows none. */
  box(x, y, width, value, { gear = nodeOf(value)?.path, label = nameOf(value) } = {}) {
    const high = this.height, caption = state.focus ? shapeText(gear) : "";
    const strip = s("g", { class: "strip", transform: `translate(${x + 6} ${y + high - 7})` });
    const node = s("g", { class: "node", tabindex: -1, role: "button", "aria-label": fullName(value), data: { gear, value, key: `m ${value}` },
      onclick: () => actions.select(gear, value), ondblclick: () => actions.focus(gear) },
    s("rect", { class: "face", x, y, width, height: high }),
    s("text", { x: x + 7, y: y + (state.focus ? 15 : 13) }, fits(label, width - 12)),
    caption && width > 120 ? s("text", { class: "dim right", x: x + width - 7, y: y + 15 }, caption) : null,
    strip, s("title", {}, `${fullName(value)}\n${value}`));
    node.style.setProperty("--after", `${Math.min(1, 0.06 * this.n++)}s`);
    this.front.append(node);
    if (nodeOf(value)?.values.includes(value)) places.push({ value, element: strip, width: width - 12 });
    order.push({ gear, value });
    return node;
  }

  /** A box over the whole width, on the stream itself. */
  wide(value, options) {
    this.box(SPINE - 14, this.y, RIGHT - SPINE + 14, value, options);
    this.y += this.height;
  }

  chip(text, kind) {
    this.front.append(s("g", { class: `chip ${kind}` }, s("rect", { x: SPINE - 14, y: this.y, height: 22 }), s("text", { x: SPINE - 5, y: this.y + 15 })));
    label(this.front.lastChild, text);
    this.y += 22;
  }

  model() {
    const top = this.y + 22;
    this.chip(tokenText(state.token), "current");
    const parts = state.nodes.get("").parts, blocks = parts.filter((p) => /^blocks\.\d+$/.test(p));
    const before = parts.slice(0, parts.indexOf(blocks[0])), behind = parts.slice(parts.indexOf(blocks.at(-1)) + 1);
    for (const path of before) { this.y += this.gap; this.wide(valueOf(path), { gear: path }); }
    const open = Math.min(state.open, blocks.length - 1);
    this.y += 7;
    this.layers(blocks.slice(0, open));
    if (blocks[open]) this.block(blocks[open], true);
    this.layers(blocks.slice(open + 1));
    for (const path of behind) { this.wide(valueOf(path), { gear: path }); this.y += this.gap; }
    this.y += 2;
    this.wire(`M${SPINE} ${top}V${this.y}`, "spine");
    this.chip(nextText(), "next");
  }

  /** Layers that are alike, stacked: one strip each. Bars: what attention and FFN add. */
  layers(paths) {
    if (!paths.length) return;
    const high = paths.length > 40 ? 4 : 6;
    this.y += 2;
    paths.forEach((path, i) => {
      const form = (one) => state.nodes.get(one)?.alike;
      if (i && form(path) !== form(paths[i - 1])) this.y += 5; // other layers than those above
      const y = this.y, n = last(path);
      this.front.append(s("g", { class: "layer", tabindex: -1, role: "button", "aria-label": nameOf(path), data: { layer: n, key: `l ${n}` }, onclick: () => actions.open(Number(n)) },
        s("rect", { class: "face", x: LEFT, y, width: RIGHT - LEFT, height: high - 1.5 }),
        s("rect", { class: "a", x: LEFT + 1, y: y + 0.75, width: 0, height: high - 3 }),
        s("rect", { class: "f", x: (LEFT + RIGHT) / 2, y: y + 0.75, width: 0, height: high - 3 }),
        s("rect", { class: "hit", x: SPINE, y, width: RIGHT - SPINE, height: high }), s("title", {}, nameOf(path))));
      if (i === 0 || (i === paths.length - 1 && i * high > 10)) this.front.append(s("text", { class: "dim right", x: LEFT - 5, y: y + 6 + (i ? 0 : 1) }, n));
      this.y += high;
    });
    this.y += 6;
  }

  block(path, framed) {
    const top = this.y, node = state.nodes.get(path);
    if (framed) {
      this.front.append(s("g", { class: "node", tabindex: -1, role: "button", "aria-label": nameOf(path), data: { gear: path, value: path, key: `m ${path}` }, onclick: () => actions.select(path, valueOf(path)), ondblclick: () => actions.focus(path) },
        s("rect", { class: "face title", x: LEFT - 6, y: top + 4, width: RIGHT - LEFT + 12, height: 20, opacity: 1 }), s("text", { x: LEFT + 3, y: top + 18 }, nameOf(path)), s("text", { class: "dim right", x: RIGHT - 2, y: top + 18 }, short(node.parameters))));
      order.push({ gear: path, value: valueOf(path) });
      this.y += 28;
    }
    const parts = node.parts;
    let fresh = true;
    parts.forEach((part, i) => {
      const name = last(part), next = parts[i + 1] ? last(parts[i + 1]) : "";
      if (name.endsWith("_sum_norm")) { this.wide(valueOf(part), { gear: part }); this.y += this.gap; return; }
      if (fresh) { this.wire(`M${SPINE} ${this.y - 2}C${SPINE} ${this.y + 6} ${SPINE + 8} ${this.y + 5} ${SPINE + 14} ${this.y + 5}H${(LEFT + RIGHT) / 2}V${this.y + this.gap + 2}`); this.y += this.gap + 2; fresh = false; }
      const norm = /_norm$/.test(name);
      if (norm) this.stack([valueOf(part)], part); else this.gear(part);
      const closes = (!norm && next !== `${name}_post_norm`) || name.endsWith("_post_norm");
      if (closes) { this.plus(path, name.replace(/_post_norm$/, "")); fresh = true; } else if (norm) this.feed(parts[i + 1]);
    });
    if (framed) this.back.prepend(s("rect", { class: "frame", x: LEFT - 6, y: top + 4, width: RIGHT - LEFT + 12, height: this.y - top - 2 }));
    this.y += 8;
  }

  /** The wires from a norm to what reads it. */
  feed(next) {
    const parts = next ? state.nodes.get(next)?.parts.map(last) ?? [] : [];
    const y = this.y, mid = (LEFT + RIGHT) / 2;
    const columns = parts.includes("query") ? thirds() : parts.includes("gate") ? halves() : [[LEFT, RIGHT - LEFT]];
    for (const [x, width] of columns) {
      const to = x + width / 2;
      this.wire(to === mid ? `M${mid} ${y}v${this.gap}` : `M${mid} ${y}v${this.gap / 2}H${to}v${this.gap / 2}`);
    }
    this.y += this.gap;
  }

  /** The insides of a sublayer. */
  gear(path) {
    const node = state.nodes.get(path), has = (name) => node.values.includes(below(path, name)) || state.nodes.has(below(path, name));
    if (has("query") && has("key") && has("mixed")) this.attention(path, has);
    else if (has("gate") && has("up") && has("down")) this.gated(path, has);
    else if (has("up") && has("down")) this.stack(["up", "activated", "down"].filter(has).map((name) => below(path, name)));
    else this.stack(node.values.filter((v) => v !== path).length ? node.values.filter((v) => v !== path) : [valueOf(path)]);
  }

  /** Boxes one under the other. */
  stack(values, gear) {
    values.forEach((value, i) => {
      if (i) { this.wire(`M${(LEFT + RIGHT) / 2} ${this.y}v${this.gap}`); this.y += this.gap; }
      this.box(LEFT, this.y, RIGHT - LEFT, value, gear ? { gear } : {});
      this.y += this.height;
    });
  }

  /** A row of boxes: [[column, name], ...]; a wire goes down from each. */
  row(path, columns, names, { down = true, labels = {} } = {}) {
    for (const [i, name] of names) this.box(columns[i][0], this.y, columns[i][1], below(path, name), labels[name] ? { label: labels[name] } : {});
    this.y += this.height;
    if (!down) return;
    for (const [i] of names) this.wire(`M${columns[i][0] + columns[i][1] / 2} ${this.y}v${this.gap}`);
    this.y += this.gap;
  }

  attention(path, has) {
    const columns = thirds(), both = [[columns[0][0], columns[1][0] + columns[1][1] - columns[0][0]]], whole = [[LEFT, RIGHT - LEFT]];
    const short = state.focus ? {} : { query: "Q", key: "K", value: "V", query_rotated: "Q ↻", key_rotated: "K ↻", query_norm: "Q norm", key_norm: "K norm" };
    const v = columns[2][0] + columns[2][1] / 2;
    this.row(path, columns, [[0, "query"], [1, "key"], [2, "value"]], { labels: short });
    const from = this.y - this.gap;
    for (const [a, b] of [["query_norm", "key_norm"], ["query_rotated", "key_rotated"]]) if (has(a)) this.row(path, columns, [[0, a], [1, b]], { labels: short });
    for (const name of ["scores", "weights"]) if (has(name)) this.row(path, both, [[0, name]]);
    this.wire(`M${v} ${from}V${this.y}`);
    this.row(path, whole, [[0, "mixed"]]);
    this.row(path, whole, [[0, "output"]], { down: false });
  }

  gated(path, has) {
    const columns = halves(), whole = [[LEFT, RIGHT - LEFT]];
    this.row(path, columns, [[0, "gate"], [1, "up"]]);
    const from = this.y - this.gap, x = columns[1][0] + columns[1][1] / 2;
    if (has("activated")) this.row(path, columns, [[0, "activated"]]);
    this.wire(`M${x} ${from}V${this.y}`);
    if (has("product")) this.row(path, whole, [[0, "product"]]);
    this.row(path, whole, [[0, "down"]], { down: false });
  }

  /** Where a sublayer's output is added to the stream. */
  plus(block, step) {
    const y = this.y + this.gap + 5, value = below(block, `${step}_residual`), mid = (LEFT + RIGHT) / 2;
    this.wire(`M${mid} ${this.y}V${y}H${SPINE + 7}`);
    const node = s("g", { class: "node plus", tabindex: -1, role: "button", "aria-label": fullName(value), data: { gear: nodeOf(value).path, value, key: `m ${value}` }, onclick: () => actions.select(nodeOf(value).path, value) },
      s("circle", { cx: SPINE, cy: y, r: 7 }), s("path", { d: `M${SPINE - 3.5} ${y}h7M${SPINE} ${y - 3.5}v7` }), s("title", {}, `${fullName(value)}\n${value}`));
    this.front.append(node);
    order.push({ gear: nodeOf(value).path, value });
    this.y = y + 9;
  }

  /** One gear alone, as large as it goes. */
  zoomed(path) {
    const node = state.nodes.get(path);
    const isBlock = /^blocks\.\d+$/.test(path);
    if (isBlock) {
      const top = this.y;
      this.y += 8;
      this.block(path, false);
      this.wire(`M${SPINE} ${top}V${this.y}`, "spine");
    } else { this.y += 4; this.gear(path); this.y += 10; this.tensors(node); }
  }

  tensors(node) {
    const held = [...node.tensors, ...node.parts.flatMap((part) => state.nodes.get(part)?.tensors ?? [])];
    for (const tensor of held) {
      this.front.append(s("text", { x: LEFT, y: this.y + 12 }, tensor.path.slice(node.path.length + 1)), s("text", { class: "dim right", x: RIGHT, y: this.y + 12 }, `${tensor.shape.map(grouped).join(" × ")} · ${tensor.type}`));
      this.y += 19;
    }
  }

  /** The token on its way. */
  drop() {
    if (state.focus) return null;
    const dot = s("circle", { class: "drop", r: 5, cx: SPINE, cy: 28 });
    if (moves()) dot.append(s("animate", { attributeName: "cy", from: 28, to: this.y - 24, dur: "0.9s", begin: "indefinite", fill: "freeze", calcMode: "spline", keyTimes: "0;1", keySplines: "0.4 0 0.3 1" }));
    return dot;
  }
}

/** Write a text into a chip, which gets as wide as it needs to be. */
function label(chip, text) {
  const width = Math.min(RIGHT - SPINE + 14, 18 + 7.2 * [...text].reduce((n, c) => n + (c.charCodeAt(0) > 0x2e80 ? 1.7 : 1), 0));
  chip.querySelector("rect").setAttribute("width", width);
  chip.querySelector("text").textContent = fits(text, width - 8);
}

/** The tokens at the top and at the bottom. */
function chips() {
  for (const chip of svg?.querySelectorAll(".chip") ?? []) label(chip, chip.classList.contains("next") ? nextText() : tokenText(state.token));
}

const thirds = () => { const w = (RIGHT - LEFT - 12) / 3; return [0, 1, 2].map((i) => [LEFT + i * (w + 6), w]); };
const halves = () => { const w = (RIGHT - LEFT - 6) / 2; return [0, 1].map((i) => [LEFT + i * (w + 6), w]); };

/** The value that stands for a gear: the one of its own name, or the first that it shows. */
export function valueOf(gear) {
  const node = state.nodes.get(gear), values = node?.values ?? [];
  if (node?.kind === "Rope") return gear.replace(/rope$/, "query_rotated");
  return values.includes(gear) ? gear : values[0] ?? gear;
}

function fits(text, width) {
  const most = Math.floor(width / 6.1);
  return [...text].length > most ? `${[...text].slice(0, Math.max(1, most - 1)).join("")}…` : text;
}

function shapeText(gear) {
  const tensor = state.nodes.get(gear)?.tensors[0];
  return tensor ? tensor.shape.map(grouped).join(" × ") : "";
}

const tokenText = (i) => (state.texts.length ? quoted({ text: state.texts[i], bytes: state.bytes[i] }) : "…");

function nextText() {
  if (state.token + 1 < state.texts.length) return tokenText(state.token + 1);
  const best = state.candidates?.top?.[0];
  return best ? `${quoted(best)} ?` : "…";
}

function trail() {
  const steps = [""];
  const words = state.focus ? state.focus.split(".") : [];
  for (let i = 0; i < words.length; i++) { const path = words.slice(0, i + 1).join("."); if (state.nodes.has(path)) steps.push(path); }
  swap(byId("zoom"), steps.map((path, i) => [i ? h("span", { class: "sep", text: "›" }) : null,
    h("button", { "aria-current": i === steps.length - 1 ? "true" : null, onclick: () => actions.focus(path), text: path ? nameOf(path) : t("whole_model"), data: { key: `z ${path}` } })]));
  swap(byId("zoom-buttons"), h("button", { class: "quiet icon", "aria-label": t("zoom_out"), title: t("zoom_out"), disabled: !state.focus, onclick: () => actions.zoomOut(), text: "−", data: { key: "zo" } }),
    h("button", { class: "quiet icon", "aria-label": t("zoom_in"), title: t("zoom_in"), onclick: () => actions.zoomIn(), text: "+", data: { key: "zi" } }));
}

function mark() {
  if (!svg) return;
  for (const node of svg.querySelectorAll(".node")) {
    const chosen = node.dataset.value === state.value && (node.dataset.gear === state.gear || node.dataset.value !== node.dataset.gear);
    node.classList.toggle("selected", chosen);
    node.setAttribute("tabindex", chosen ? 0 : -1);
    if (chosen) reveal(svg.closest(".machine-scroll"), node);
  }
  changed();
}

/** Mark what was changed: of a changed gear, the values that differ from those of the first run. */
function changed() {
  const off = new Set(state.changes.map((c) => c.path)), equal = new Set(state.comparison?.gears.filter((gear) => gear.difference === 0).map((gear) => gear.path));
  for (const node of svg?.querySelectorAll(".node") ?? []) {
    const { gear, value } = node.dataset;
    node.classList.toggle("changed", Boolean(state.comparison) && (off.has(gear) || off.has(value)) && !equal.has(value));
  }
}

const fetchStrips = latest(async (run, token, wanted, signal) =>
  Promise.all(wanted.map((place) => slice(run, place.value, { token }, signal).catch((trouble) => { if (trouble.name === "AbortError") throw trouble; return null; }))));

async function strips() {
  if (!state.run || !state.tokensRun || !places.length) return;
  const wanted = places.filter((p) => p.element.isConnected);
  const found = await fetchStrips(state.run, Math.min(state.token, state.tokensRun - 1), wanted).catch(() => null);
  found?.forEach((one, i) => { if (one) strip(wanted[i], one); });
}

/** The largest number of each of some equal parts, as cells of colour. */
function strip({ element, width }, one) {
  let values = one.array;
  const seen = one.axes.at(-1) === "seen", weights = seen && one.max <= 1 && one.min >= 0;
  if (seen) { const n = one.shape.at(-1), head = Math.min(state.head, values.length / n - 1); values = values.subarray(head * n, head * n + n); }
  const count = Math.min(Math.round(CELLS * width / 214), values.length), limit = scale.limitOf(values, 0.99);
  const cells = [];
  for (let i = 0; i < count; i++) {
    let most = 0;
    for (let k = Math.floor(i * values.length / count); k < Math.floor((i + 1) * values.length / count); k++) if (Math.abs(values[k]) > Math.abs(most) && Number.isFinite(values[k])) most = values[k];
    const colour = weights ? scale.share(most, state.theme) : scale.diverging(most, limit, state.theme);
    cells.push(s("rect", { x: (i * width / count).toFixed(2), y: 0, width: (width / count).toFixed(2), height: 4, fill: scale.css(colour) }));
  }
  element.replaceChildren(...cells);
}

function layerBars() {
  if (!svg || !state.growth) return;
  const layers = state.growth.layers, at = (list) => list?.[Math.min(state.token, list.length - 1)] ?? 0;
  const most = Math.max(...layers.map((l) => Math.max(at(l.norm_attention), at(l.norm_ffn)))) || 1;
  const half = (RIGHT - LEFT) / 2 - 2;
  for (const node of svg.querySelectorAll(".layer")) {
    const layer = layers[Number(node.dataset.layer)];
    if (!layer) continue;
    node.querySelector(".a").setAttribute("width", half * Math.sqrt(at(layer.norm_attention) / most));
    node.querySelector(".f").setAttribute("width", half * Math.sqrt(at(layer.norm_ffn) / most));
  }
}

/** Formula and parameters of the selected gear, at hand under the drawing. */
function card() {
  const node = state.nodes.get(state.gear) ?? nodeOf(state.gear);
  if (!node) return;
  const held = node.parameters ? `${grouped(node.parameters)} · ${percent(node.share ?? 0)} ${t("share_of_model")}` : t("no_parameters");
  const formula = (node.formula ?? "").replaceAll("`", ""); // names in a docstring are marked with them
  swap(byId("gear-card"), h("h2", {}, fullName(node.path), h("small", {}, terms.kind(node.kind))),
    h("p", { class: "formula", text: formula, title: formula }), h("p", { class: "small", text: held }));
}

/** Let the current token run through the machine once. */
export function flow() {
  if (!svg || !moves()) return;
  const box = byId("machine");
  box.classList.remove("flowing"); box.parentElement.classList.remove("flowing");
  void box.offsetWidth; // starts the animation again
  box.parentElement.classList.add("flowing");
  svg.querySelector(".drop animate")?.beginElement?.();
  clearTimeout(flow.timer);
  flow.timer = setTimeout(() => box.parentElement.classList.remove("flowing"), 1300);
}

/** The block to open for a path. */
export const openFor = (path) => { const n = blockOf(path); return n < 0 ? state.open : n; };
