/** Starts the page and ties its parts together. */

import * as again from "./again.js";
import { get } from "./api.js";
import * as asks from "./asks.js";
import * as bar from "./bar.js";
import { clearOther } from "./beside.js";
import { later } from "./dom.js";
import { exampleOf, otherModel } from "./example.js";
import * as explaining from "./explain.js";
import { arrive, follow } from "./following.js";
import * as keys from "./keys.js";
import { remembered } from "./kept.js";
import { decode } from "./link.js";
import * as machine from "./machine.js";
import * as middle from "./middle.js";
import { changeModel } from "./models.js";
import * as panels from "./panels.js";
import { idle, queue } from "./queue.js";
import { choose } from "./runs.js";
import { chooseToken, layer, select, zoom } from "./selecting.js";
import { trouble } from "./status.js";
import { on, set, state } from "./store.js";
import * as terms from "./terms.js";
import { languages, setLanguage } from "./texts.js";
import * as tour from "./tour.js";
import * as valueView from "./valueview.js";
import * as visited from "./visited.js";

async function begin() {
  const given = decode(location.hash);
  const language = languages.includes(given.language) ? given.language : remembered("language") ?? (navigator.language?.startsWith("zh") ? "zh" : "en");
  set({ language });
  setLanguage(language);
  on("language", () => setLanguage(state.language)); // before everybody who draws words
  bar.themes();
  machine.start({ select, focus: (path) => set({ focus: path }), open: (n) => layer(n), zoomIn: zoom.in, zoomOut: zoom.out });
  panels.start({ token: chooseToken, choose: (id) => { const after = state.token; queue(() => choose(id, after), "back"); }, sampling: (sampling) => set({ sampling }), lens: asks.lens, layer, reads: asks.reads, clearOther, gear: (path) => select(path, machine.valueOf(path)) });
  tour.start({ idle, select, model: changeModel, otherModel, isExample: (name) => Boolean(exampleOf(name)), explain: valueView.explainAt, close: explaining.close });
  terms.start();
  middle.start();
  bar.start();
  again.start(trouble);
  asks.start();
  on("model prompt run ran chat sampling changes second gear value token index head view language made open tour habit numbers", later(150, visited.write));
  keys.start();
  visited.start((link, entry, hash) => queue(() => (visited.isWanted(hash) ? arrive(link, entry) : null), "link"));
  await visited.during(location.hash, () => queue(async () => { set({ about: await get("about") }); await follow(given); }, "link"));
  document.documentElement.dataset.ready = "true";
}

begin();
