/** Starts the page and ties its parts together: loading, running, stepping, keys, the link. */

import * as again from "./again.js";
import { forget, get, latest, post } from "./api.js";
import * as dialogs from "./dialogs.js";
import { byId, h, later, swap } from "./dom.js";
import * as explaining from "./explain.js";
import { grouped, short } from "./format.js";
import { keepPlace, keptPlace, remember, remembered } from "./kept.js";
import { VIEWS, decode, defaultSampling } from "./link.js";
import * as machine from "./machine.js";
import * as panels from "./panels.js";
import { blockOf, nodeOf, on, set, state } from "./store.js";
import { languages, setLanguage, t } from "./texts.js";
import * as tour from "./tour.js";
import * as terms from "./terms.js";
import * as valueView from "./valueview.js";
import * as views from "./views.js";
import * as visited from "./visited.js";

const FIRST_PROMPT = "The cat sat on the mat because it", STORY = "Once upon a time, Lily had a red ball. One day";
const PAUSE = 260; // ms between tokens while playing

let working = Promise.resolve(), habitsFor = "", ranAsChat = false, left = keptPlace(); // habits' run and length; how the run was asked for; where the example was opened from

/* ---- words, status ---- */

function trouble(error) {
  if (error?.name === "AbortError") return;
  say(error.message, true);
  set({ failed: error.message });
}

/** What went wrong, where the values are, with a way on. */
function failure() {
  const box = byId("trouble"), stale = Boolean(state.run) && (state.prompt !== state.ran || state.model !== state.tree?.model);
  document.body.classList.toggle("stale", Boolean(state.failed) && stale);
  box.hidden = !state.failed;
  if (box.hidden) return;
  const edit = () => { byId("prompt").focus(); byId("prompt").select(); };
  const button = (key, work, name) => h("button", { onclick: work, class: name ?? null, text: t(key), data: { key: `f ${key}` } });
  swap(box, h("p", { class: "strong", text: state.failed }), stale ? h("p", { text: t("stale", { a: [...state.ran].slice(0, 60).join("") }) }) : null,
    h("div", { class: "choices-row" }, stale ? button("back_to", () => set({ prompt: state.ran, model: state.tree.model, failed: "" }), "primary") : null,
      stale || !state.run ? [button("edit_prompt", edit), state.tree ? button("try_again", () => queue(() => startRun())) : null] : button("dismiss", () => set({ failed: "" }))));
}

function say(text, bad = false) {
  const line = byId("status");
  line.textContent = line.title = text;
  line.className = bad ? "bad" : "";
}

function busy(text) {
  const line = byId("status");
  line.textContent = line.title = text;
  line.className = text ? "busy" : "";
  document.body.setAttribute("aria-busy", String(Boolean(text)));
}

function translate() {
  document.documentElement.lang = state.language === "zh" ? "zh-CN" : "en";
  for (const element of document.querySelectorAll("[data-text]")) element.textContent = t(element.dataset.text);
  for (const element of document.querySelectorAll("[data-label]")) element.setAttribute("aria-label", t(element.dataset.label));
  for (const element of document.querySelectorAll("[data-tip]")) element.title = t(element.dataset.tip);
  for (const element of document.querySelectorAll("[data-hint]")) element.placeholder = t(element.dataset.hint);
  byId("language").textContent = t("language_button");
  if (!byId("status").classList.contains("busy")) say(""); // what it said was in the other language
}

function facts() {
  const tree = state.tree;
  byId("facts").textContent = tree ? [tree.family, `${short(tree.parameters)} ${t("parameters").toLowerCase()}`, t(tree.layers === 1 ? "one_layer" : "layers", { n: tree.layers }), `${tree.backend}${tree.kernels ? ` ${tree.kernels}` : ""}`].join(" · ") : "";
}

/* ---- what is selected ---- */

/** Select a gear and one of its values; without a gear, the one that shows the value. */
function select(gear, value) {
  const path = gear ?? nodeOf(value)?.path ?? "";
  const shown = value === path && path !== "" ? machine.valueOf(path) : value;
  const patch = { gear: path, value: shown, view: state.view === "value" || state.view === "compare" ? "value" : state.view };
  if (shown !== state.value) { patch.index = []; explaining.close(); }
  if (blockOf(shown) >= 0) patch.open = blockOf(shown);
  if (state.focus && !shown.startsWith(state.focus)) patch.focus = "";
  set(patch);
}

/** Show where a number lies without leaving its explanation. */
function point(path, token, index) {
  if (![...state.nodes.values()].some((node) => node.values.includes(path))) return;
  const patch = { gear: nodeOf(path)?.path ?? "", value: path, token: Math.min(token, state.tokensRun - 1), index };
  if (blockOf(path) >= 0) patch.open = blockOf(path);
  if (path.endsWith("scores") || path.endsWith("weights")) patch.head = index[0];
  set(patch);
}

/** The same gear in another layer. */
function layer(n) {
  const last = (state.tree?.layers ?? 1) - 1, to = Math.max(0, Math.min(last, n));
  const inside = /^blocks\.\d+(\..+)?$/.exec(state.value);
  const value = inside ? `blocks.${to}${inside[1] ?? ""}` : "";
  if (value && [...state.nodes.values()].some((node) => node.values.includes(value))) select(null, value);
  set({ open: to, focus: state.focus.replace(/^blocks\.\d+/, `blocks.${to}`) });
}

function token(i) {
  const to = Math.max(0, Math.min(state.texts.length - 1, i));
  if (to !== state.token) set({ token: to });
}

function gear(by) {
  const order = machine.sequence(), at = order.findIndex((place) => place.value === state.value);
  const next = order[Math.max(0, Math.min(order.length - 1, at + by))];
  if (next) select(next.gear, next.value);
}

const zoom = {
  in: () => { const path = blockOf(state.value) >= 0 ? state.gear || state.value : ""; const steps = path.split("."); const depth = state.focus ? state.focus.split(".").length : 0; const to = steps.slice(0, Math.max(2, depth + 1)).join("."); if (state.nodes.has(to)) set({ focus: to }); },
  out: () => { const steps = state.focus.split("."); const up = steps.length > 2 ? steps.slice(0, -1).join(".") : ""; set({ focus: up }); },
};

/** What the server has to say of the prompt, under it; what holds for every prompt of the model isn't said again. */
function promptSaid() {
  const line = byId("prompt-said"), said = state.warnings.filter((one) => !(state.tree?.notices ?? []).includes(one));
  line.hidden = !state.run || !said.length;
  line.textContent = line.title = said.join(" · ");
}

/* ---- models and runs ---- */

/** One thing after the other: a run isn't stepped while it is loading. */
function queue(work) {
  working = working.then(work).then(() => { if (state.prompt === state.ran) set({ failed: "" }); }).catch((error) => { busy(""); set({ playing: false }); trouble(error); });
  return working;
}

/** The same for a window that says itself what went wrong: the promise fails with it. */
async function attempt(work) {
  let wrong = null;
  await queue(() => Promise.resolve().then(work).catch((error) => { wrong = error; busy(""); }));
  if (wrong && !dialogs.isOpen()) trouble(wrong);
  if (wrong) throw wrong;
}

async function loadModel(name) {
  busy(t("loading", { name }));
  const slow = setTimeout(() => busy(`${t("loading", { name })} ${t("first_time")}`), 1500);
  try {
    const tree = await post("models", { model: name });
    const nodes = new Map(tree.nodes.map((node) => [node.path, node]));
    const other = tree.model !== state.tree?.model;
    set({ tree, nodes, model: tree.model ?? name, focus: "", open: Math.min(state.open, Math.max(0, tree.layers - 1)) });
    if (other) blank();
    const known = tree.nodes.some((node) => node.values.includes(state.value));
    if (!known) select("embed", nodes.has("embed") ? machine.valueOf("embed") : tree.nodes.find((n) => n.values.length)?.values[0] ?? "");
    else if (!state.gear || !nodes.has(state.gear)) set({ gear: nodeOf(state.value).path });
  } finally { clearTimeout(slow); busy(""); }
}

/** No run, or none of this model: nothing is left of another one. */
function blank() {
  if (state.run) forget(state.run);
  valueView.values.clear();
  explaining.close();
  set({ run: null, ids: [], texts: [], bytes: [], special: [], promptLength: 0, tokensRun: 0, done: null, token: 0, index: [], growth: null, lens: null, heads: null, habits: null, candidates: null, comparison: null, pipeline: null, warnings: [], cache: null });
}

const asked = (model, prompt, changes) => ({ model, prompt, chat: state.chat && model !== exampleName(), sampling: state.sampling, changes });

/** Run the prompt; what is there of an older one is dimmed meanwhile. */
async function startRun(options) {
  busy(t("running"));
  document.body.classList.add("running");
  try { await runPrompt(options); } finally { document.body.classList.remove("running"); }
}

async function runPrompt({ made = 0 } = {}) {
  const before = state.run, { prompt, chat } = state, began = await post("runs", asked(state.model, prompt, []));
  const answer = await post(`runs/${began.run}/step`, { count: 0, sampling: state.sampling }).catch((error) => { forget(began.run); throw error; });
  valueView.values.clear();
  explaining.close();
  ranAsChat = chat;
  set({ ran: prompt, failed: "", run: began.run, ids: began.ids, texts: began.texts, bytes: began.bytes ?? [], special: began.special ?? [], promptLength: began.prompt ?? began.ids.length, pipeline: began.pipeline, warnings: began.warnings ?? [], done: null, tokensRun: 0, growth: null, lens: null, heads: null, habits: null, candidates: null, comparison: null });
  took(answer);
  if (made) took(await post(`runs/${began.run}/step`, { count: made }));
  set({ token: state.texts.length - 1, made });
  if (before) forget(before);
  busy("");
  if (began.warnings?.length) say(began.warnings[0], true); else if (answer.ms) say(t("ms", { n: Math.round(answer.ms) }));
}

/** Take in what a step, a step back or a choice answered: new tokens, or a shorter text. */
function took(answer) {
  const length = answer.length ?? answer.ids.length, from = length - (answer.ids?.length ?? 0);
  const joined = (name) => [...state[name].slice(0, from), ...(answer[name] ?? [])];
  if (length < state.texts.length || answer.tokens_run < state.tokensRun) valueView.values.clear(length);
  set({ ids: joined("ids"), texts: joined("texts"), bytes: state.bytes.length || answer.bytes ? joined("bytes") : [], special: joined("special"), tokensRun: answer.tokens_run, done: answer.done ?? null });
}

/** Whether a token can be added: an encoder has none to say. */
const canStep = () => Boolean(state.run) && !state.done && state.nodes.has("head") && state.tree?.causal !== false;

async function step(count = 1) {
  if (!canStep()) { set({ playing: false }); return; }
  const began = performance.now(), answer = await post(`runs/${state.run}/step`, { count, sampling: state.sampling });
  took(answer);
  set({ token: state.texts.length - 1, made: state.texts.length - state.promptLength });
  if (state.done) set({ playing: false });
  await both("step", { count, sampling: state.sampling });
  say(t("ms", { n: Math.round(answer.ms ?? performance.now() - began) }));
  machine.flow();
}

async function back(count = 1) {
  if (!state.run || state.texts.length <= state.promptLength) return;
  await shorten(count);
  set({ made: state.texts.length - state.promptLength });
  if (state.other) await both("back", { count });
}

/** Take tokens back: here first, so that nobody asks the server for one that it has forgotten. */
async function shorten(count) {
  const length = Math.max(state.promptLength, state.texts.length - count);
  const cut = (name) => state[name].slice(0, length);
  valueView.values.clear(length);
  for (const ask of [askCandidates, askLens, askHeads]) ask.stop(); // what is under way may be about such a token
  set({ token: length - 1, ids: cut("ids"), texts: cut("texts"), bytes: cut("bytes"), special: cut("special"), tokensRun: Math.min(state.tokensRun, length), done: null, growth: null, habits: null });
  took(await post(`runs/${state.run}/back`, { count }));
}

/** Continue with this candidate instead, from the token that it follows. */
async function choose(id) {
  const extra = state.texts.length - 1 - state.token;
  if (extra > 0) await shorten(extra);
  took(await post(`runs/${state.run}/choose`, { id }));
  set({ token: state.texts.length - 1, made: state.texts.length - state.promptLength });
  machine.flow();
}

async function play() {
  if (state.playing) { set({ playing: false }); return; }
  if (!canStep()) return;
  set({ playing: true });
  while (state.playing && !state.done) {
    const began = performance.now();
    await queue(() => step(1));
    await new Promise((done) => setTimeout(done, Math.max(20, PAUSE - (performance.now() - began))));
  }
  set({ playing: false });
}

/* ---- a second run beside the first ---- */

async function beside(model, prompt, changes, label) {
  busy(t("running"));
  if (model !== state.model) await post("models", { model });
  const began = await post("runs", asked(model, prompt, changes));
  const answer = await post(`runs/${began.run}/step`, { count: state.made }).catch((error) => { forget(began.run); throw error; });
  const all = (name) => [...(began[name] ?? []), ...(answer[name] ?? [])];
  if (state.other) forget(state.other.run);
  set({ changes, comparison: null, other: { run: began.run, model, prompt, label, ids: all("ids"), texts: all("texts"), bytes: all("bytes"), special: all("special"), promptLength: began.prompt }, view: "compare" });
  await compareRuns();
  busy("");
}

async function both(what, body) {
  if (!state.other) return;
  const answer = await post(`runs/${state.other.run}/${what}`, body), other = state.other, from = (answer.length ?? answer.ids.length) - answer.ids.length;
  const joined = (name) => [...other[name].slice(0, from), ...(answer[name] ?? [])];
  set({ other: { ...other, ids: joined("ids"), texts: joined("texts"), bytes: joined("bytes"), special: joined("special") } });
  await compareRuns();
}

async function compareRuns() {
  const found = await post("compare", { a: state.run, b: state.other.run });
  if (state.other) set({ comparison: found });
}

function clearOther() {
  if (state.other) forget(state.other.run);
  set({ other: null, comparison: null, changes: [] });
}

async function runChanges(changes) {
  if (!changes.length) { clearOther(); return; }
  await attempt(() => beside(state.model, state.prompt, changes, changes.map(dialogs.changeWords).join(", ")));
}

/* ---- what follows from a run ---- */

const askCandidates = latest((run, at, sampling, signal) => get(`runs/${run}/candidates`, { token: at, ...sampling }, signal));
const askLens = latest((run, at, signal) => get(`runs/${run}/lens`, { token: at, top: 5 }, signal));
const askHeads = latest((run, at, signal) => get(`runs/${run}/heads`, { token: at }, signal));
const askHabits = latest((run, given, signal) => get(`runs/${run}/habits`, given, signal));
const askGrowth = latest((run, signal) => get(`runs/${run}/growth`, {}, signal));
const askRun = latest((run, signal) => get(`runs/${run}`, {}, signal));

const here = () => Math.min(state.token, state.tokensRun - 1);

async function candidates() {
  if (!state.run || !state.tokensRun || !state.nodes.has("head")) return;
  const after = here(), found = await askCandidates(state.run, after, state.sampling).catch(trouble);
  if (found) set({ candidates: { ...found, after } });
}

async function lens() {
  if (!state.run || !state.tokensRun || !state.nodes.has("head") || !(state.view === "lens" || byId("lens").open)) return;
  const found = await askLens(state.run, here()).catch(trouble);
  if (found) set({ lens: found });
}

async function around() {
  if (!state.run || !state.tokensRun) return;
  const wanted = [askGrowth(state.run).then((growth) => growth && set({ growth })), askRun(state.run).then((cache) => cache && set({ cache }))];
  if (state.view === "heads") wanted.push(askHeads(state.run, here()).then((heads) => heads && set({ heads })));
  await Promise.all(wanted).catch(trouble);
}

/** Habits of heads: of all layers for the view of heads, of one layer beside its weights. */
async function habits() {
  const one = state.view === "value" && /attention\.weights$/.test(state.value);
  if (!state.run || !state.tokensRun || !(one || state.view === "heads")) return;
  const { run, tokensRun } = state, found = await askHabits(run, one ? { path: state.value } : {}).catch(trouble);
  if (!found || run !== state.run || tokensRun !== state.tokensRun) return;
  const fresh = Object.fromEntries(found.layers.map((layer) => [layer.path, layer.heads])), known = habitsFor === `${run} ${tokensRun}` ? state.habits ?? {} : {};
  habitsFor = `${run} ${tokensRun}`;
  set({ habits: { ...known, ...fresh } });
}

/** What a token reads; null, and a line that says why, where it can't be had. */
const reads = (path, at) => valueView.values.reads(state.run, path, at).catch((error) => { trouble(error); return null; });

const candidatesSoon = later(40, candidates), lensSoon = later(220, lens), aroundSoon = later(90, around), habitsSoon = later(120, habits);

/* ---- the middle's views ---- */

function buildMiddle() {
  const bar = h("div", { class: "views", role: "tablist", id: "views" });
  const strip = h("section", { class: "tour", id: "tour", hidden: true }), failed = h("section", { class: "notice trouble", id: "trouble", role: "alert", hidden: true }), value = h("div", { class: "stage", id: "view-value" }), other = h("div", { class: "stage pad", id: "view-other", tabindex: -1, hidden: true });
  byId("middle").append(bar, strip, failed, value, other);
  valueView.start(value, { select, token, trouble, point });
  on("view language", tabs);
  on("failed run prompt model tree language", failure);
  on("view language theme tree texts token lens growth heads habits habit candidates cache comparison other pipeline warnings chat", view);
  on("tour language tree value", tour.render);
}

const VIEW_TERMS = { growth: "stream", lens: "lens", cache: "kv_cache" };

function tabs() {
  swap(byId("views"), VIEWS.map((name) => h("button", { role: "tab", "aria-selected": String(name === state.view), onclick: () => set({ view: name }), text: t(`view_${name}`), data: { key: `v ${name}`, view: name, ...terms.of(VIEW_TERMS[name]) } })));
}

const viewActions = {
  token, layer: (n) => { layer(n); if (state.view === "growth" && !/^blocks/.test(state.value)) set({ open: n }); },
  select: (gearPath, value) => { set({ view: "value" }); select(gearPath, value); },
  explain: (path, id) => { set({ view: "value" }); select(null, "head"); valueView.explainAt(here(), [id], path); },
  head: (path, n) => { set({ view: "value", head: n }); select(null, `${path}.weights`); },
  chat: (chat) => { set({ chat }); queue(() => startRun()); },
  changeDialog: () => dialogs.changes(runChanges), compareDialog: () => openCompare(),
};

function view() {
  const own = state.view === "value";
  byId("view-value").hidden = !own;
  byId("view-other").hidden = own;
  if (!own && state.tree) views[state.view](byId("view-other"), viewActions);
}

const openCompare = () => dialogs.compare((model, prompt) => attempt(() => beside(model, prompt, [], model === state.model ? `“${prompt}”` : `${model} · “${prompt}”`)), clearOther);

/* ---- bar, keys, link ---- */

function bar() {
  byId("ask").addEventListener("submit", (event) => { event.preventDefault(); set({ prompt: byId("prompt").value, playing: false }); byId("prompt").blur(); queue(async () => { await startRun(); if (state.other) clearOther(); machine.flow(); }); });
  byId("model").addEventListener("change", (event) => {
    const name = event.target.value;
    event.target.value = state.model;
    if (name) changeModel(name); else dialogs.model((other) => attempt(() => toModel(other)));
  });
  byId("step").addEventListener("click", () => queue(() => step()));
  byId("back").addEventListener("click", () => queue(() => back()));
  byId("play").addEventListener("click", play);
  byId("language").addEventListener("click", () => set({ language: languages[(languages.indexOf(state.language) + 1) % languages.length] }));
  byId("theme").addEventListener("click", () => { const theme = state.theme === "dark" ? "light" : "dark"; remember("theme", theme); set({ theme }); });
  byId("help-open").addEventListener("click", dialogs.help);
  byId("tour-open").addEventListener("click", () => tour.go(state.tour ? "" : tour.steps()[0]));
  byId("change-open").addEventListener("click", () => dialogs.changes(runChanges));
  byId("compare-open").addEventListener("click", openCompare);
  byId("export-open").addEventListener("click", () => { visited.write(); dialogs.exporting(say, trouble); });
  on("about model language", models);
  on("prompt", () => { if (document.activeElement !== byId("prompt")) byId("prompt").value = state.prompt; });
  on("playing", () => byId("play").setAttribute("aria-pressed", String(state.playing)));
  on("run done texts promptLength tree", () => { byId("step").disabled = byId("play").disabled = !canStep(); byId("back").disabled = state.texts.length <= state.promptLength; });
  on("tour", () => byId("tour-open").setAttribute("aria-pressed", String(Boolean(state.tour))));
  on("language tree", facts);
  on("run warnings tree", promptSaid);
  document.querySelector(".skip").addEventListener("click", (event) => { event.preventDefault(); byId("middle").focus(); });
}

function models() {
  const known = state.about?.models ?? [], names = new Set([...known.map((m) => m.name), state.model].filter(Boolean));
  const note = (name) => known.find((m) => m.name === name)?.note || null;
  swap(byId("model"), [...names].map((name) => h("option", { value: name, text: name.split("/").pop(), selected: name === state.model, title: note(name) })), h("option", { value: "", text: t("other_model") }));
}

/** Load another model and run the prompt; the worked example has its own, and gives the old one back. */
const changeModel = (name) => queue(() => toModel(name));

async function toModel(name) {
  const example = exampleOf(name), from = state.model;
  if (example) leaving(from, state.prompt);
  const untouched = state.prompt === firstPrompt(from) ? firstPrompt(name) : state.prompt;
  const prompt = example ?? (exampleOf(from) ? left?.prompt ?? firstPrompt(name) : untouched);
  await loadModel(name);
  set({ prompt, playing: false, ...(exampleOf(from) && left ? { open: Math.min(left.open, state.tree.layers - 1) } : {}) });
  clearOther();
  await startRun();
  set({ about: await get("about") });
}

/** Keep what there was before the example, for its end. */
function leaving(model, prompt) {
  if (model && !exampleOf(model)) left = keepPlace({ model, prompt, open: state.open });
}

/** What a model starts with: one that knows stories alone, with a story. */
const firstPrompt = (name) => exampleOf(name) ?? (/(^|\/)tiny-stories/.test(name) ? STORY : FIRST_PROMPT);

/** The prompt of the example that has this name, if it is one. */
const exampleOf = (name) => state.about?.models.find((one) => one.name === name)?.example;
const exampleName = () => state.about?.models.find((one) => one.example)?.name;

/** The model to go back to from the example: the one before it, or else one that is at hand. */
const otherModel = () => {
  const models = (state.about?.models ?? []).filter((one) => !one.example);
  return left?.model ?? (models.find((one) => one.loaded) ?? models.find((one) => one.cached) ?? models[0])?.name;
};

const KEYS = {
  ArrowLeft: () => token(state.token - 1), ArrowRight: () => token(state.token + 1), ArrowUp: () => gear(-1), ArrowDown: () => gear(1),
  " ": play, n: () => queue(() => step()), N: () => queue(() => step()), Enter: () => queue(() => step()), Backspace: () => queue(() => back()), "/": () => { byId("prompt").focus(); byId("prompt").select(); },
  "?": dialogs.help, "+": zoom.in, "=": zoom.in, "-": zoom.out, "[": () => layer(state.open - 1), "]": () => layer(state.open + 1),
  t: () => byId("tour-open").click(), T: () => byId("tour-open").click(),
  Escape: () => { if (state.numbers.length && !(state.tour && exampleOf(state.model))) explaining.close(); else if (state.tour) tour.go(""); else if (state.focus) set({ focus: "" }); },
};

function keys(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented || dialogs.isOpen()) return;
  const at = event.target, typing = at.matches?.("input, select, textarea");
  if (typing) { if (event.key === "Escape") at.blur(); return; }
  if ((event.key === " " || event.key === "Enter") && at.matches?.("button, summary, a")) return;
  if ((event.key === " " || event.key === "Enter") && at.matches?.(".node, .layer")) { event.preventDefault(); at.dispatchEvent(new MouseEvent("click", { bubbles: true })); return; }
  const number = Number(event.key);
  if (number >= 1 && number <= VIEWS.length) { set({ view: VIEWS[number - 1] }); return; }
  const work = KEYS[event.key];
  if (work) { event.preventDefault(); work(); }
}

function themes() {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const usual = () => remembered("theme") ?? (dark.matches ? "dark" : "light");
  const paint = () => { document.documentElement.dataset.theme = state.theme; };
  set({ theme: usual() }); paint();
  dark.addEventListener("change", () => set({ theme: usual() }));
  on("theme", paint);
}

/** Follow a link: first the model and the run that it names, then what was selected in them. */
async function follow(given, entry = null) {
  const from = state.model, name = given.model || state.model || otherModel();
  if (given.open === undefined && blockOf(given.value ?? given.gear ?? "") >= 0) given.open = blockOf(given.value ?? given.gear);
  if (exampleOf(name)) leaving(from, state.prompt);
  set({ ...given, prompt: given.prompt ?? firstPrompt(name) });
  byId("prompt").value = state.prompt;
  if (state.model !== state.tree?.model) await loadModel(name);
  await startRun({ made: given.made ?? 0 });
  if (Number.isInteger(given.token)) token(given.token);
  if (given.changes?.length) await beside(state.model, state.prompt, given.changes, given.changes.map(dialogs.changeWords).join(", "));
  set({ view: VIEWS.includes(given.view) ? given.view : "value" });
  await explained(given, entry);
  if (given.tour) tour.render();
}

/** The number that a link names; of an entry of the history, with the way that led to it. */
async function explained(given, entry) {
  const trail = entry?.numbers ?? [], last = trail.at(-1);
  if (!entry && given.index?.length) await valueView.explainAt(state.token, given.index);
  if (!last || last.token >= state.tokensRun) return;
  set({ numbers: trail.slice(0, -1) });
  await explaining.explain(last.path, last.token, last.index, trail.length - 1).catch(trouble);
}

/** Back, Forward or another link: what is missing in it is as in the beginning. */
async function arrive(given, entry) {
  const whole = { changes: [], index: [], head: 0, tour: "", habit: "", chat: false, ...(entry ? { gear: "", value: "" } : {}), ...given };
  if (entry) whole.language = state.language;
  const same = entry && state.run && whole.model === state.tree?.model && whole.prompt === state.ran && whole.chat === ranAsChat;
  if (same) await revisit(whole, entry); else await follow({ sampling: defaultSampling(), ...whole }, entry);
}

/** An entry of the run that is there: it stays as it is, with the tokens made since. */
async function revisit(given, entry) {
  explaining.close();
  const { changes, made, ...rest } = given, focus = state.focus && !rest.value.startsWith(state.focus) ? "" : state.focus;
  set({ sampling: defaultSampling(), open: Math.max(0, blockOf(rest.value)), ...rest, focus, failed: "", playing: false, view: rest.view ?? "value", token: Math.min(rest.token ?? 0, state.texts.length - 1) });
  byId("prompt").value = state.prompt;
  if (JSON.stringify(changes) !== JSON.stringify(state.changes)) {
    if (changes.length) await beside(state.model, state.prompt, changes, changes.map(dialogs.changeWords).join(", ")); else clearOther();
    set({ view: rest.view ?? "value" });
  }
  await explained(rest, entry);
}

async function begin() {
  const given = decode(location.hash);
  const language = languages.includes(given.language) ? given.language : remembered("language") ?? (navigator.language?.startsWith("zh") ? "zh" : "en");
  set({ language });
  setLanguage(language);
  on("language", () => setLanguage(state.language)); // before everybody who draws words
  themes();
  machine.start({ select, focus: (path) => set({ focus: path }), open: (n) => layer(n), zoomIn: zoom.in, zoomOut: zoom.out });
  panels.start({ token, choose: (id) => queue(() => choose(id)), sampling: (sampling) => set({ sampling }), lens, layer, reads, clearOther, gear: (path) => select(path, machine.valueOf(path)) });
  tour.start({ idle: () => working, select, model: changeModel, otherModel, isExample: (name) => Boolean(exampleOf(name)), explain: valueView.explainAt, close: explaining.close });
  terms.start();
  buildMiddle(); bar(); tabs(); translate();
  on("language", () => { translate(); remember("language", state.language); });
  again.start(trouble);
  on("run tokensRun token sampling language", candidatesSoon);
  on("run tokensRun token view language", () => { lensSoon(); aroundSoon(); });
  on("run tokensRun value view", habitsSoon);
  on("model prompt chat sampling changes gear value token index head view language made open tour habit numbers", later(150, visited.write));
  document.addEventListener("keydown", keys);
  visited.start((link, entry, hash) => queue(() => (visited.isWanted(hash) ? arrive(link, entry) : null)));
  await visited.during(location.hash, () => queue(async () => { set({ about: await get("about") }); await follow(given); }));
  document.documentElement.dataset.ready = "true";
}

begin();
