/**
 * Everything the page asks the server, in the page's language. Errors come as `Trouble` with one sentence, and `lost`: what the
 * server hasn't (any more), "server" itself, a "run" or a "model"; "" where it is something else.
 */

import { language, t } from "./texts.js";

export class Trouble extends Error {
  constructor(text, lost = "") { super(text); this.lost = lost; }
}

async function answer(response) {
  if (response.ok) return response;
  let told = {};
  try { told = await response.json(); } catch { /* no JSON: the status has to do */ }
  throw new Trouble(told.error || t("server_answered", { n: response.status }), lostOf(response, told));
}

/** A name that isn't known comes with others that are near. */
function lostOf({ status, url }, told) {
  const path = new URL(url).pathname;
  if (status !== 404) return "";
  if (told.near) return path.endsWith("/runs") ? "model" : "";
  return /\/(runs\/.|compare$)/.test(path) ? "run" : "";
}

/** The address with the language in which sentences are wanted. */
const spoken = (address) => (language() === "en" ? address : `${address}${address.includes("?") ? "&" : "?"}lang=${language()}`);

async function ask(address, options) {
  try {
    return await answer(await fetch(spoken(address), options));
  } catch (trouble) {
    if (trouble instanceof Trouble || trouble.name === "AbortError") throw trouble;
    throw new Trouble(t("no_answer"), "server");
  }
}

const query = (given) => new URLSearchParams(Object.entries(given).filter(([, v]) => v !== undefined && v !== null)).toString();

/** Readings of a run end with it: what was asked before it was given up has no answer any more. */
const runs = new Map();

function whileItLives(path, signal) {
  const run = /^runs\/([^/?]+)/.exec(path)?.[1];
  if (!run) return signal;
  if (!runs.has(run)) runs.set(run, new AbortController());
  const end = runs.get(run).signal;
  return signal ? AbortSignal.any([signal, end]) : end;
}

export const get = async (path, given = {}, signal) =>
  (await ask(`api/${path}${Object.keys(given).length ? `?${query(given)}` : ""}`, { signal: whileItLives(path, signal) })).json();

let work = new AbortController().signal;

/** What is posted from now on belongs to work that is given up with this signal: then nothing more is begun. */
export const within = (signal) => { work = signal; };

/** Have the server do something; what has been begun is awaited, for the server finishes it anyhow. */
export async function post(path, body) {
  work.throwIfAborted();
  return (await ask(`api/${path}`, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) })).json();
}

/** Give a run up, and everything that is being read of it. */
export function forget(run) {
  if (whileItLives(`runs/${run}`).aborted) return Promise.resolve(); // another run's beginning has done so
  runs.get(run).abort();
  return ask(`api/runs/${run}`, { method: "DELETE", headers: { "Content-Type": "application/json" } }).catch(() => {});
}

/** A slice of a value: {array: Float32Array, shape, axes, min, max, positions}. */
export async function slice(run, path, given, signal) {
  const response = await ask(`api/runs/${run}/value?${query({ path, ...given })}`, { signal: whileItLives(`runs/${run}`, signal) });
  const list = (name) => (response.headers.get(name) || "").split(",").filter(Boolean);
  return {
    array: new Float32Array(await response.arrayBuffer()),
    shape: list("X-Shape").map(Number), axes: list("X-Axes"),
    min: Number(response.headers.get("X-Min")), max: Number(response.headers.get("X-Max")),
    positions: response.headers.has("X-Positions") ? list("X-Positions").map(Number) : null,
  };
}

/** Runs the newest call only: an older one that is still under way is ended, and its answer ignored. */
export function latest(work) {
  let now = null;
  const ask = async (...args) => {
    now?.abort();
    const mine = (now = new AbortController());
    try {
      const found = await work(...args, mine.signal);
      return now === mine ? found : null;
    } catch (trouble) {
      if (trouble.name === "AbortError" || now !== mine) return null;
      throw trouble;
    }
  };
  ask.stop = () => { now?.abort(); now = null; };
  return ask;
}
