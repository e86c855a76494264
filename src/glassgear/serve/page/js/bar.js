/** The bar at the top, the words of the page's frame, and light or dark. */

import { clearOther, openCompare, runChanges } from "./beside.js";
import * as dialogs from "./dialogs.js";
import { byId, h, swap } from "./dom.js";
import { short } from "./format.js";
import { remember, remembered } from "./kept.js";
import * as machine from "./machine.js";
import { changeModel, namedModel, runAgain } from "./models.js";
import { queue } from "./queue.js";
import { backSoon, canStep, play, stepSoon } from "./runs.js";
import { say, trouble } from "./status.js";
import { on, set, state } from "./store.js";
import { languages, t } from "./texts.js";
import * as tour from "./tour.js";
import * as visited from "./visited.js";

/** Listen to its buttons, and draw what changes in it. */
export function start() {
  byId("ask").addEventListener("submit", (event) => { event.preventDefault(); submit(byId("prompt").value); byId("prompt").blur(); });
  byId("model").addEventListener("change", (event) => {
    const name = event.target.value;
    event.target.value = state.model;
    if (name) changeModel(name); else dialogs.model(namedModel);
  });
  byId("step").addEventListener("click", stepSoon);
  byId("back").addEventListener("click", () => backSoon());
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
  on("run done texts promptLength tree failed", usable);
  usable();
  on("tour", () => byId("tour-open").setAttribute("aria-pressed", String(Boolean(state.tour))));
  on("language tree", facts);
  on("run warnings tree", promptSaid);
  document.querySelector(".skip").addEventListener("click", (event) => { event.preventDefault(); byId("middle").focus(); });
  translate();
  on("language", () => { translate(); remember("language", state.language); });
}

/** Run what was typed; whatever sets another prompt until its turn comes was asked for before. */
function submit(prompt) {
  set({ prompt });
  queue(async () => { set({ prompt }); await runAgain(); if (state.other) clearOther(); machine.flow(); });
}

/** What needs a run, or a model, can't be pressed without one. */
function usable() {
  byId("step").disabled = byId("play").disabled = !canStep();
  byId("back").disabled = !state.run || state.texts.length <= state.promptLength;
  byId("tour-open").disabled = !state.tree && Boolean(state.failed);
  byId("change-open").disabled = byId("compare-open").disabled = !state.run && Boolean(state.failed);
}

/** The list of models. */
function models() {
  const known = state.about?.models ?? [], names = new Set([...known.map((m) => m.name), state.model].filter(Boolean));
  const note = (name) => known.find((m) => m.name === name)?.note || null;
  swap(byId("model"), [...names].map((name) => h("option", { value: name, text: name.split("/").pop(), selected: name === state.model, title: note(name) })), h("option", { value: "", text: t("other_model") }));
}

/** Of the model: family, parameters, layers, backend. */
function facts() {
  const tree = state.tree;
  byId("facts").textContent = tree ? [tree.family, `${short(tree.parameters)} ${t("parameters").toLowerCase()}`, t(tree.layers === 1 ? "one_layer" : "layers", { n: tree.layers }), `${tree.backend}${tree.kernels ? ` ${tree.kernels}` : ""}`].join(" · ") : "";
}

/** What the server has to say of the prompt, under it; what holds for every prompt of the model isn't said again. */
function promptSaid() {
  const line = byId("prompt-said"), said = state.warnings.filter((one) => !(state.tree?.notices ?? []).includes(one));
  line.hidden = !state.run || !said.length;
  line.textContent = line.title = said.join(" · ");
}

/** The words that the document itself has. */
function translate() {
  document.documentElement.lang = state.language === "zh" ? "zh-CN" : "en";
  for (const element of document.querySelectorAll("[data-text]")) element.textContent = t(element.dataset.text);
  for (const element of document.querySelectorAll("[data-label]")) element.setAttribute("aria-label", t(element.dataset.label));
  for (const element of document.querySelectorAll("[data-tip]")) element.title = t(element.dataset.tip);
  for (const element of document.querySelectorAll("[data-hint]")) element.placeholder = t(element.dataset.hint);
  byId("language").textContent = t("language_button");
  if (!byId("status").classList.contains("busy")) say(""); // what it said was in the other language
}

/** Light or dark: as chosen here, or else as the system has it. */
export function themes() {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const usual = () => remembered("theme") ?? (dark.matches ? "dark" : "light");
  const paint = () => { document.documentElement.dataset.theme = state.theme; };
  set({ theme: usual() }); paint();
  dark.addEventListener("change", () => set({ theme: usual() }));
  on("theme", paint);
}
