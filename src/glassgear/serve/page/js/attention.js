/** Tokens by the tokens that they read: one head large, all of them small. */

import { slice } from "./api.js";
import { colour, h, sized, swap } from "./dom.js";
import { rounded } from "./format.js";
import { habit } from "./patterns.js";
import * as scale from "./scale.js";
import { state } from "./store.js";
import { t } from "./texts.js";

const GUTTER = 92, TOP = 74, LARGEST = 72, AT_ONCE = 3e6; // numbers in one answer

export class Attention {
  /** `hooks`: hover(token, seen, value), pick(token, seen), head(number). */
  constructor(canvas, heads, hooks) {
    Object.assign(this, { canvas, box: heads, hooks, data: null, loaded: new Map(), images: new Map(), x: 0, y: 0, over: null, key: "" });
    canvas.addEventListener("pointermove", (event) => this._hover(event));
    canvas.addEventListener("pointerleave", () => { this.over = null; hooks.hover(null); this.draw(); });
    canvas.addEventListener("click", (event) => { const at = this.at(event); if (at) hooks.pick(at.token, at.seen); });
    canvas.addEventListener("wheel", (event) => this._wheel(event), { passive: false });
    new ResizeObserver(() => this.draw()).observe(canvas);
  }

  /** Show scores or weights: {run, path, heads, habits, tokens, labels, head, token, seen, theme}; habits: of each head, or null. */
  async show(data) {
    const moved = data.token !== this.data?.token || data.tokens !== this.data?.tokens;
    this.data = data;
    if (moved) this.follow();
    const key = `${data.run} ${data.path} ${data.tokens}`;
    if (key === this.key) { this.images.clear(); this.thumbs(); this.draw(); return; }
    this.key = key;
    await this._load(data, key);
  }

  /** Bring the chosen token's row into view. */
  follow() {
    const high = this.canvas.clientHeight - TOP, wide = this.canvas.clientWidth - GUTTER, size = this.data.tokens * this.cell, y = this.data.token * this.cell;
    const into = (at, room) => Math.max(0, Math.min(y < at || y + this.cell > at + room ? y - room + this.cell * 2 : at, size - room));
    this.y = into(this.y, high);
    this.x = into(this.x, wide);
  }

  async _load(data, key) {
    const { run, path, heads, tokens } = data, given = { first: 0, last: tokens };
    const whole = heads * tokens * tokens <= AT_ONCE;
    const wanted = [data.head, ...Array.from({ length: heads }, (_, i) => i).filter((i) => i !== data.head)];
    const fresh = new Map();
    for (const head of whole ? [null] : wanted) {
      const got = await slice(run, path, head === null ? given : { ...given, head });
      if (this.key !== key) return; // another one was asked for meanwhile
      const size = tokens * tokens;
      for (let i = 0; i < got.array.length / size; i++) fresh.set(head ?? i, got.array.subarray(i * size, (i + 1) * size));
      this.loaded = fresh;
      this.limit = scale.limitOf(got.array, 0.999);
      this.images.clear();
      this.thumbs(); this.draw();
    }
  }

  get weights() { return this.data.path.endsWith("weights"); }

  get cell() {
    const room = Math.min(this.canvas.clientWidth - GUTTER - 8, this.canvas.clientHeight - TOP - 6);
    return Math.max(3, Math.min(LARGEST, room / Math.max(1, this.data.tokens)));
  }

  at(event) {
    if (!this.data) return null;
    const box = this.canvas.getBoundingClientRect();
    const token = Math.floor((event.clientY - box.top - TOP + this.y) / this.cell);
    const seen = Math.floor((event.clientX - box.left - GUTTER + this.x) / this.cell);
    const inside = token >= 0 && token < this.data.tokens && seen < this.data.tokens && event.clientY - box.top >= TOP;
    return inside ? { token, seen: Math.max(0, seen), gutter: seen < 0 } : null;
  }

  value(token, seen) { return this.loaded.get(this.data.head)?.[token * this.data.tokens + seen]; }

  /** What a token reads, in the head shown: a weight for every token. */
  row(token) {
    const all = this.loaded.get(this.data.head), n = this.data.tokens;
    return all ? all.subarray(token * n, token * n + n) : null;
  }

  _hover(event) {
    const at = this.at(event);
    this.over = at;
    this.hooks.hover(at ? { ...at, value: this.value(at.token, at.seen) } : null);
    this.draw();
  }

  _wheel(event) {
    if (!this.data) return;
    const most = this.data.tokens * this.cell, wide = this.canvas.clientWidth - GUTTER, high = this.canvas.clientHeight - TOP;
    if (most <= wide && most <= high) return;
    event.preventDefault();
    this.x = Math.max(0, Math.min(this.x + (event.shiftKey ? event.deltaY : event.deltaX), most - wide));
    this.y = Math.max(0, Math.min(this.y + (event.shiftKey ? 0 : event.deltaY), most - high));
    this.draw();
  }

  /** One head as a picture, a pixel a number. */
  image(head) {
    const made = this.images.get(head);
    if (made || !this.loaded.has(head)) return made;
    const n = this.data.tokens, canvas = document.createElement("canvas");
    canvas.width = canvas.height = n;
    const context = canvas.getContext("2d"), pixels = context.createImageData(n, n);
    scale.paint(this.loaded.get(head), pixels.data, this.limit, this.data.theme, this.weights ? "share" : "diverging");
    if (state.tree?.causal !== false) for (let i = 0; i < n; i++) for (let k = i + 1; k < n; k++) pixels.data[(i * n + k) * 4 + 3] = 0;
    context.putImageData(pixels, 0, 0);
    this.images.set(head, canvas);
    return canvas;
  }

  thumbs() {
    const { heads, tokens, head, habits } = this.data;
    swap(this.box, Array.from({ length: heads }, (_, i) => {
      const canvas = h("canvas", { width: 96, height: 96, "aria-hidden": "true" }), picture = this.image(i), context = canvas.getContext("2d");
      context.imageSmoothingEnabled = tokens > 96;
      if (picture) context.drawImage(picture, 0, 0, 96, 96);
      const found = this.weights && habits ? habit(habits[i]) : null;
      const says = found ? (found.name === "wide" ? t("wide") : `${t(found.name)} ${rounded(found.share)}`) : "";
      return h("button", { "aria-pressed": String(i === head), "aria-label": `${t("head_no", { n: i })} ${says}`, title: `${t("head_no", { n: i })}${says ? ` · ${says}` : ""}`, onclick: () => this.hooks.head(i), data: { key: `head ${i}` } },
        canvas, h("span", { class: "label" }, h("span", { text: i }), h("span", { text: says })));
    }));
  }

  draw() {
    if (this.asked) return;
    this.asked = true;
    requestAnimationFrame(() => { this.asked = false; if (this.data && this.canvas.isConnected) this._draw(); });
  }

  _draw() {
    const { context, width, height } = sized(this.canvas), { tokens, head, token, seen } = this.data, cell = this.cell;
    const picture = this.image(head), size = tokens * cell, left = GUTTER - this.x, top = TOP - this.y;
    context.save();
    context.beginPath(); context.rect(GUTTER, TOP, width, height); context.clip();
    context.imageSmoothingEnabled = false;
    if (picture) context.drawImage(picture, left, top, size, size);
    if (cell >= 8) this._grid(context, left, top, size);
    const row = this.over?.token ?? token;
    context.strokeStyle = colour("accent"); context.lineWidth = 1.5;
    context.strokeRect(left + 0.5, top + row * cell + 0.5, size - 1, cell - 1);
    if (seen >= 0) { context.lineWidth = 2.5; context.strokeRect(left + seen * cell, top + token * cell, cell, cell); }
    context.restore();
    this._labels(context, width, height, cell, row);
  }

  _grid(context, left, top, size) {
    context.strokeStyle = colour("panel"); context.lineWidth = 1;
    context.beginPath();
    for (let i = 0; i <= this.data.tokens; i++) {
      const at = Math.round(i * this.cell) + 0.5;
      context.moveTo(left, top + at); context.lineTo(left + size, top + at);
      context.moveTo(left + at, top); context.lineTo(left + at, top + size);
    }
    context.stroke();
  }

  _labels(context, width, height, cell, row) {
    const every = Math.max(1, Math.ceil(13 / cell)), over = this.over;
    context.font = `12px ${getComputedStyle(document.body).fontFamily}`;
    context.textBaseline = "middle";
    for (let i = 0; i < this.data.tokens; i += 1) {
      const strong = i === row || i === over?.seen;
      if (i % every && !strong) continue;
      const y = TOP - this.y + (i + 0.5) * cell, x = GUTTER - this.x + (i + 0.5) * cell;
      context.fillStyle = colour(strong ? "ink" : "ink-2");
      if (y > TOP && y < height) this._text(context, this.data.labels(i), GUTTER - 10, y, 0, "right");
      if (x > GUTTER && x < width && (i === over?.seen || i % every === 0)) this._text(context, this.data.labels(i), x, TOP - 8, -Math.PI / 3.2, "left");
    }
  }

  _text(context, text, x, y, turn, align) {
    context.save();
    context.translate(x, y); context.rotate(turn);
    context.textAlign = align;
    const short = [...text].length > 11 ? `${[...text].slice(0, 10).join("")}…` : text;
    context.fillText(short, 0, 0);
    context.restore();
  }
}
