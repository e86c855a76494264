/** The line that says what the page is doing, how long something took, and what went wrong. */

import { byId } from "./dom.js";
import { set } from "./store.js";

/** Say a sentence, which replaces the last one. */
export function say(text, bad = false) {
  const line = byId("status");
  line.textContent = line.title = text;
  line.className = bad ? "bad" : "";
}

/** Say what is under way; with no text, nothing is any more. */
export function busy(text) {
  const line = byId("status");
  line.textContent = line.title = text;
  line.className = text ? "busy" : "";
  document.body.setAttribute("aria-busy", String(Boolean(text)));
}

/** Something didn't work: said in the line, and kept for the middle to show. */
export function trouble(error) {
  if (error?.name === "AbortError") return;
  say(error.message, true);
  set({ failed: error.message, lost: error.lost ?? "" });
}
