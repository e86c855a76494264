/** Words of the trade: a sentence on each, under the pointer or at the keyboard's focus. */

import { h } from "./dom.js";
import { t } from "./texts.js";

const KINDS = { RMSNorm: "rmsnorm", LayerNorm: "layernorm" };
let tip = null, shown = null;

/** Marks an element that can have the focus itself (data of `h`); nothing for a word that needs no sentence. */
export const of = (name) => (name ? { term: name } : {});

/** A word with its sentence. */
export const word = (name, text) => (name ? h("span", { class: "term", tabindex: 0, data: { term: name, key: `term ${name} ${text}` }, text }) : text);

/** The kind of a gear. */
export const kind = (name) => word(KINDS[name], name);

/** Listen on the whole page. */
export function start() {
  tip = document.body.appendChild(h("div", { id: "tip", role: "tooltip", hidden: true }));
  document.addEventListener("pointerover", (event) => at(event.target));
  document.addEventListener("focusin", (event) => { if (event.target.matches(":focus-visible")) at(event.target); });
  document.addEventListener("focusout", hide);
  document.addEventListener("scroll", hide, true);
  document.addEventListener("keydown", (event) => { if (event.key === "Escape") hide(); }, true);
  document.addEventListener("pointerdown", hide);
  document.documentElement.addEventListener("pointerleave", hide);
  addEventListener("resize", hide);
  new MutationObserver(() => { if (shown && !shown.isConnected) hide(); }).observe(document.body, { childList: true, subtree: true }); // drawn anew
}

function at(target) {
  const found = target.closest?.("[data-term]");
  if (found === shown) return;
  hide();
  if (found) show(found);
}

function show(element) {
  shown = element;
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
  shown.removeAttribute("aria-describedby");
  shown = null;
  tip.hidden = true;
}
