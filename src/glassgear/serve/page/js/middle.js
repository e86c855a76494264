/** The middle column: tabs, the tour's strip, what went wrong, and the view that is chosen. */

import { here } from "./asks.js";
import { openCompare, runChanges } from "./beside.js";
import * as dialogs from "./dialogs.js";
import { byId, h, swap } from "./dom.js";
import { VIEWS } from "./link.js";
import { queue } from "./queue.js";
import { startRun } from "./runs.js";
import { layer, point, select, token } from "./selecting.js";
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
  const strip = h("section", { class: "tour", id: "tour", hidden: true }), failed = h("section", { class: "notice trouble", id: "trouble", role: "alert", hidden: true }), value = h("div", { class: "stage", id: "view-value" }), other = h("div", { class: "stage pad", id: "view-other", tabindex: -1, hidden: true });
  byId("middle").append(bar, strip, failed, value, other);
  valueView.start(value, { select, token, trouble, point });
  on("view language", tabs);
  on("failed run prompt model tree language", failure);
  on("view language theme tree texts token lens growth heads habits habit candidates cache comparison other pipeline warnings chat", view);
  on("tour language tree value", tour.render);
  tabs();
}

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
