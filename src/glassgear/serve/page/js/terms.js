/** Words of the trade: a sentence on each, under the pointer or at the keyboard's focus. */

import { h } from "./dom.js";
import { t } from "./texts.js";

const KINDS = { RMSNorm: "rmsnorm", LayerNorm: "layernorm" };
const REST = 800; // ms on a tab, whose sentence lies over the view that it opens
let tip = null, shown = null, soon = 0, done = "", place = [0, 0]; // done: the term that was clicked, until the pointer has left its place

/** Marks an element that can have the focus itself (data of `h`); nothing for a word that needs no sentence. */
export const of = (name) => (name ? { term: name } : {});

/** A word with its sentence. */
export const word = (name, text) => (name ? h("span", { class: "term", tabindex: 0, data: { term: name, key: `term ${name} ${text}` }, text }) : text);

/** The kind of a gear. */
export const kind = (name) => word(KINDS[name], name);

/** Listen on the whole page. */
export function start() {
  tip = document.body.appendChild(h("div", { id: "tip", role: "tooltip", hidden: true }));
  document.addEventListener("pointerover", (event) => at(event.target, placeOf(event)));
  document.addEventListener("focusin", (event) => { if (event.target.matches(":focus-visible")) at(event.target); });
  document.addEventListener("focusout", hide);
  document.addEventListener("scroll", hide, true);
  document.addEventListener("keydown", (event) => { if (event.key === "Escape") hide(); }, true);
  for (const kind of ["pointerdown", "click"]) document.addEventListener(kind, (event) => { hide(); done = event.target.closest?.("[data-term]")?.dataset.term ?? ""; place = placeOf(event); });
  document.documentElement.addEventListener("pointerleave", hide);
  addEventListener("resize", hide);
  new MutationObserver(() => { if (shown && !shown.isConnected) hide(); }).observe(document.body, { childList: true, subtree: true }); // drawn anew
}

const placeOf = (event) => [event.clientX, event.clientY];
const rests = (from) => Math.hypot(from[0] - place[0], from[1] - place[1]) < 3; // events of one place differ by parts of a pixel

function at(target, from = [Infinity, 0]) {
  const found = target.closest?.("[data-term]");
  if (found?.dataset.term !== done && !rests(from)) done = ""; // what is drawn anew moves under a pointer that rests
  if (found === shown) return;
  hide();
  if (!found || done) return;
  shown = found;
  if (found.matches("[role=tab]")) soon = setTimeout(() => show(found), REST); else show(found);
}

function show(element) {
  tip.textContent = t(`term_${element.dataset.term}`);
  tip.hidden = false;
  element.setAttribute("aria-describedby", "tip");
  const box = element.getBoundingClientRect(), own = tip.getBoundingClientRect(), below = box.bottom + 6;
  const left = Math.max(8, Math.min(box.left, innerWidth - own.width - 8));
  const top = below + own.height > innerHeight - 8 ? box.top - own.height - 6 : below;
  tip.style.setProperty("left", `${left}px`);
  tip.style.setProperty("top", `${Math.max(8, top)}px`);
}

function hide() {
  if (!shown) return;
  clearTimeout(soon);
  shown.removeAttribute("aria-describedby");
  shown = null;
  tip.hidden = true;
}
