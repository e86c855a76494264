/** The middle column: tabs, the tour's strip, what went wrong, and the view that is chosen. */

import { here } from "./asks.js";
import { openCompare, runChanges } from "./beside.js";
import * as dialogs from "./dialogs.js";
import { byId, h, swap } from "./dom.js";
import { exampleOf, otherModel } from "./example.js";
import { restart } from "./following.js";
import { VIEWS } from "./link.js";
import { changeModel, namedModel, runAgain } from "./models.js";
import { queue } from "./queue.js";
import { startRun } from "./runs.js";
import { chooseToken, layer, point, select, token } from "./selecting.js";
import { trouble } from "./status.js";
import { on, set, state } from "./store.js";
import * as terms from "./terms.js";
import { t } from "./texts.js";
import * as tour from "./tour.js";
import * as valueView from "./valueview.js";
import * as views from "./views.js";

const VIEW_TERMS = { growth: "stream", lens: "lens", cache: "kv_cache" };

/** Build it. */
export function start() {
  const bar = h("div", { class: "views", role: "tablist", id: "views" });
  const strip = h("section", { class: "tour", id: "tour", hidden: true, onkeydown: tour.keys }), failed = h("section", { class: "notice trouble", id: "trouble", role: "alert", hidden: true }), value = h("div", { class: "stage", id: "view-value" }), other = h("div", { class: "stage pad", id: "view-other", tabindex: -1, hidden: true });
  byId("middle").append(bar, strip, failed, value, other);
  valueView.start(value, { select, token, chooseToken, trouble, point });
  on("view language", tabs);
  on("failed run prompt model tree language about", failure);
  on("view language theme tree texts token lens growth heads habits habit candidates cache comparison other pipeline warnings chat", view);
  on("tour language tree value", tour.render);
  on("view tour", (keys) => { if (keys.has("view") || state.tour) intoView(); });
  tabs();
}

function tabs() {
  swap(byId("views"), VIEWS.map((name) => h("button", { role: "tab", "aria-selected": String(name === state.view), onclick: () => { set({ view: name }); intoView(); }, text: t(`view_${name}`), data: { key: `v ${name}`, view: name, ...terms.of(VIEW_TERMS[name]) } })));
}

/** In one column the middle lies below the machine: what was chosen is brought to the top. */
function intoView() {
  const chosen = document.documentElement.dataset.ready; // a page that opens stays at its top
  if (chosen && matchMedia("(max-width: 820px)").matches) byId("middle").scrollIntoView({ block: "start" });
}

const viewActions = {
  token: chooseToken, layer: (n) => { layer(n); if (state.view === "growth" && !/^blocks/.test(state.value)) set({ open: n }); },
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

/** What went wrong, where the values are, with a way on. */
function failure() {
  const box = byId("trouble"), stale = Boolean(state.run) && (state.prompt !== state.ran || state.model !== state.tree?.model);
  document.body.classList.toggle("stale", Boolean(state.failed) && stale);
  box.hidden = !state.failed;
  if (box.hidden) return;
  const edit = () => { byId("prompt").focus(); byId("prompt").select(); };
  const button = (key, work, name) => h("button", { onclick: work, class: name ?? null, text: t(key), data: { key: `f ${key}` } });
  const another = () => dialogs.model(namedModel), away = state.lost && button(state.lost === "server" ? "try_again" : "start_again", restart, "primary");
  swap(box, h("p", { class: "strong", text: state.failed }), stale ? h("p", { text: t("stale", { a: [...state.ran].slice(0, 60).join("") }) }) : null,
    h("div", { class: "choices-row" }, stale ? button("back_to", () => set({ prompt: state.ran, model: state.tree.model, failed: "" }), "primary") : null,
      !state.tree ? [away, models(), button("other_model", another)] : stale || !state.run ? [button("edit_prompt", edit), button("try_again", () => queue(runAgain))] : [away, button("dismiss", () => set({ failed: "" }))]));
}

/** Models at hand, for a link that names one that isn't there. */
function models() {
  const best = otherModel(), names = (state.about?.models ?? []).filter((one) => one.loaded || one.cached).map((one) => one.name).filter((name) => name !== best && !exampleOf(name));
  return [best, ...names].filter(Boolean).slice(0, 4).map((name, i) => h("button", { class: i ? null : "primary", onclick: () => changeModel(name), text: name.split("/").pop(), data: { key: `f model ${name}` } }));
}
