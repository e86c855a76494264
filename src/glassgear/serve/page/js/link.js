/** The page's state as the part of a link behind `#`, and back. Pure functions. */

import { languages } from "./texts.js";

export const VIEWS = ["value", "prompt", "growth", "heads", "lens", "sampling", "cache", "compare"];

export const SAMPLING = {
  temperature: ["t", 0.8], top_k: ["k", 40], top_p: ["p", 0.95], min_p: ["m", 0.05],
  repetition_penalty: ["r", 1], seed: ["s", 1],
};

/** The largest seed that the page passes on exactly; the engine takes any whole number from 0. */
export const MOST_SEED = Number.MAX_SAFE_INTEGER;
export const isSeed = (value) => Number.isInteger(value) && value >= 0 && value <= MOST_SEED;

/** The sampling settings before anyone has touched them. */
export function defaultSampling() {
  return Object.fromEntries(Object.entries(SAMPLING).map(([name, [, value]]) => [name, value]));
}

const PLAIN = [["m", "model"], ["p", "prompt"], ["g", "gear"], ["w", "value"], ["v", "view"], ["l", "language"], ["u", "tour"], ["y", "habit"]];
const WHOLE = [["t", "token"], ["h", "head"], ["n", "made"], ["o", "open"]];

/** `#m=…&p=…`: only what differs from the beginning. */
export function encode(state) {
  const parts = [];
  const add = (key, value) => parts.push(`${key}=${encodeURIComponent(value).replace(/%20/g, "+").replace(/%2C/g, ",").replace(/%3A/g, ":")}`);
  for (const [key, name] of PLAIN) if (state[name]) add(key, state[name]);
  for (const [key, name] of WHOLE) if (Number.isInteger(state[name]) && (state[name] || name === "token")) add(key, state[name]);
  if (state.index?.length) add("i", state.index.join(","));
  const sampling = samplingText(state.sampling);
  if (sampling) add("s", sampling);
  if (state.chat) add("c", "1");
  if (state.changes?.length) add("x", JSON.stringify(state.changes));
  for (const [key, value] of secondText(state)) add(key, value);
  return `#${parts.join("&")}`;
}

/** What a link says. Anything unknown or malformed is left out: a link never breaks the page. */
export function decode(hash) {
  const given = new Map();
  for (const part of hash.replace(/^#/, "").split("&")) {
    const at = part.indexOf("=");
    if (at > 0) given.set(part.slice(0, at), plain(part.slice(at + 1)));
  }
  const state = {};
  for (const [key, name] of PLAIN) if (given.get(key)) state[name] = given.get(key);
  if (!VIEWS.includes(state.view)) delete state.view;
  if (!languages.includes(state.language)) delete state.language;
  for (const [key, name] of WHOLE) if (/^\d{1,9}$/.test(given.get(key) ?? "")) state[name] = Number(given.get(key));
  if (/^\d+(,\d+)*$/.test(given.get("i") ?? "")) state.index = given.get("i").split(",").map(Number);
  if (given.has("s")) state.sampling = samplingOf(given.get("s"));
  if (given.get("c") === "1") state.chat = true;
  const changes = changesOf(given.get("x"));
  if (changes.length) state.changes = changes;
  const second = secondOf(given);
  if (second) state.second = second;
  return state;
}

function plain(text) {
  try { return decodeURIComponent(text.replace(/\+/g, " ")); } catch { return ""; }
}

function samplingText(sampling = {}) {
  return Object.entries(SAMPLING)
    .filter(([name, [, usual]]) => sampling[name] !== undefined && sampling[name] !== usual)
    .map(([name, [letter]]) => letter + sampling[name]).join(",");
}

function samplingOf(text) {
  const made = defaultSampling();
  for (const part of text.split(",")) {
    const name = Object.keys(SAMPLING).find((key) => SAMPLING[key][0] === part[0]);
    const value = Number(part.slice(1));
    if (name && part.length > 1 && Number.isFinite(value) && (name !== "seed" || isSeed(value))) made[name] = value;
  }
  return made;
}

/** Of the second run, what differs from the first; its prompt where nothing does, for it is there all the same. */
function* secondText({ second, model, prompt }) {
  if (!second) return;
  const other = (second.model ?? model) !== model;
  if (!other || (second.prompt ?? prompt) !== prompt) yield ["q", second.prompt ?? prompt];
  if (other) yield ["b", second.model];
}

function secondOf(given) {
  const found = {};
  if (given.get("b")) found.model = given.get("b");
  if (given.has("q")) found.prompt = given.get("q");
  return Object.keys(found).length ? found : null;
}

function changesOf(text) {
  if (!text) return [];
  try {
    const found = JSON.parse(text);
    return Array.isArray(found) ? found.filter((c) => c && typeof c.path === "string" && ["zero", "activation"].includes(c.op)) : [];
  } catch { return []; }
}
