/**
 * Values in tiles: 32 tokens times up to 1,024 channels, fetched when they are drawn first. What a token's
 * values are never changes within a run (each token sees earlier ones alone), so a tile is fetched again only
 * where more tokens have been run, or tokens were taken back.
 */

import { get, slice } from "./api.js";

export const ROWS = 32, COLUMNS = 1024;
const MOST = 96, MOST_ROWS = 512; // tiles and rows of attention kept

export class Values {
  constructor(trouble) {
    this.tiles = new Map();
    this.shapes = new Map();
    this.rows = new Map();
    this.ready = () => {};
    this.trouble = trouble;
  }

  /** Forget everything (another run), or the tokens from `length` on. */
  clear(length = 0) {
    this.shapes.clear();
    if (!length) { this.tiles.clear(); this.rows.clear(); return; }
    for (const [key, row] of this.rows) if (row.token >= length) this.rows.delete(key);
    for (const [key, tile] of this.tiles) if (tile.last > length) this.tiles.delete(key);
  }

  /** Shape and axes of a value without its tokens: {width, axes, inner: [heads, channels]}. */
  async shape(run, path, tokens) {
    const key = `${run} ${path} ${tokens}`;
    if (!this.shapes.has(key)) {
      const asked = get(`runs/${run}/summary`, { path }).then((one) => {
        const inner = one.shape.filter((_, i) => one.axes[i] !== "token");
        return { path, axes: one.axes, inner, width: inner.reduce((a, b) => a * b, 1), summary: one };
      });
      asked.catch(() => this.shapes.delete(key));
      this.shapes.set(key, asked);
    }
    return this.shapes.get(key);
  }

  /** What a token reads, in every head: a promise of {array, heads, seen}; asked once. */
  async reads(run, path, token) {
    const key = `${run} ${path} ${token}`;
    if (!this.rows.has(key)) {
      const asked = slice(run, path, { token }).then((got) => ({ array: got.array, heads: got.shape[0], seen: got.shape[1] }));
      asked.catch(() => this.rows.delete(key));
      this.rows.set(key, { token, asked });
      while (this.rows.size > MOST_ROWS) this.rows.delete(this.rows.keys().next().value);
    }
    return this.rows.get(key).asked;
  }

  /** The tile with this token and channel, or null while it's under way. */
  tile(run, path, about, token, channel, tokens) {
    const flat = about.axes.length === 2;
    const row = Math.floor(token / ROWS), column = flat ? Math.floor(channel / COLUMNS) : 0;
    const key = `${run} ${path} ${row} ${column}`;
    const last = Math.min(tokens, (row + 1) * ROWS);
    const found = this.tiles.get(key);
    if (found && (found.last >= last || found.waiting)) {
      this.tiles.delete(key); this.tiles.set(key, found); // most recently used last
      return found.array ? found : null;
    }
    this._fetch(key, run, path, about, { row, column, flat, last, before: found });
    return found?.array ? found : null;
  }

  async _fetch(key, run, path, about, { row, column, flat, last, before }) {
    const tile = { ...(before ?? {}), last, waiting: true };
    this.tiles.set(key, tile);
    const wide = Math.min(COLUMNS, about.width - column * COLUMNS);
    const given = { first: row * ROWS, last };
    if (flat && about.width > COLUMNS) given.channels = `${column * COLUMNS}:${column * COLUMNS + wide}`;
    try {
      const got = await slice(run, path, given);
      const width = flat ? wide : about.width;
      Object.assign(tile, { array: got.array, width, from: flat ? column * COLUMNS : 0, row: rowsOf(got, row * ROWS, last), waiting: false });
      while (this.tiles.size > MOST) this.tiles.delete(this.tiles.keys().next().value);
      this.ready(path);
    } catch (trouble) {
      // Stays as a tile without rows, or every redraw would ask again.
      Object.assign(tile, { array: new Float32Array(0), width: wide, from: column * COLUMNS, row: () => -1, waiting: false });
      this.trouble(trouble);
    }
  }

  /** One number, or undefined while it isn't there. */
  at(run, path, about, token, channel, tokens) {
    const tile = this.tile(run, path, about, token, channel, tokens);
    const row = tile?.row(token) ?? -1;
    return row < 0 ? undefined : tile.array[row * tile.width + channel - tile.from];
  }

  /** One token's whole row as a Float32Array, or null. */
  row(run, path, about, token, tokens) {
    const made = new Float32Array(about.width);
    for (let from = 0; from < about.width; ) {
      const tile = this.tile(run, path, about, token, from, tokens);
      const row = tile?.row(token) ?? -1;
      if (row < 0 || tile.from + tile.width <= from) return null;
      made.set(tile.array.subarray(row * tile.width, (row + 1) * tile.width), tile.from);
      from = tile.from + tile.width;
    }
    return made;
  }
}

/** Which row of a slice holds a token: some values have rows for some tokens only. */
function rowsOf(got, first, last) {
  if (!got.positions) return (token) => (token >= first && token < last ? token - first : -1);
  const places = new Map(got.positions.map((position, i) => [position, i]));
  return (token) => places.get(token) ?? -1;
}
