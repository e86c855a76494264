/**
 * Tokens by channels on a canvas. Only what is in view is drawn; pixels narrower than a channel show the
 * largest number of those under them. The wheel scrolls, with Ctrl it zooms; arrows move; a click explains.
 */

import { colour, sized } from "./dom.js";
import { number } from "./format.js";
import * as scale from "./scale.js";

const GUTTER = 92, TOP = 18, FEW = 16; // so few channels have room for their numbers

export class Heatmap {
  /** `hooks`: hover(token, channel, value), pick(token, channel). */
  constructor(canvas, values, hooks) {
    Object.assign(this, { canvas, values, hooks, cell: 0, row: 20, x: 0, y: 0, data: null, asked: false });
    canvas.addEventListener("wheel", (event) => this._wheel(event), { passive: false });
    canvas.addEventListener("pointermove", (event) => this._hover(event));
    canvas.addEventListener("pointerleave", () => hooks.hover(null));
    canvas.addEventListener("click", (event) => { const at = this.at(event); if (at) hooks.pick(at.token, at.channel); });
    new ResizeObserver(() => this.draw()).observe(canvas);
  }

  /** Show a value: {run, path, about, tokens, labels, token, channel, limit, theme}. */
  show(data) {
    const other = !this.data || this.data.path !== data.path || this.data.run !== data.run;
    this.data = data;
    if (other) { this.cell = 0; this.x = 0; }
    this.follow(other);
    this.draw();
  }

  get columns() { return Math.max(10, this.canvas.clientWidth - GUTTER); }

  /** Width of a channel in pixels: all of them in view, unless zoomed. */
  get wide() {
    const fit = Math.min(this.data.about.width <= FEW ? 96 : 64, this.columns / this.data.about.width);
    return this.cell || (this.data.about.axes.includes("entry") ? 8 : Math.max(fit, 0.05));
  }

  get high() {
    const room = (this.canvas.clientHeight - TOP) / Math.max(1, this.data.tokens);
    return Math.max(15, Math.min(80, room));
  }

  /** Bring the chosen number into view. */
  follow(centre) {
    const { token, channel, tokens, about } = this.data;
    const rows = this.canvas.clientHeight - TOP, y = token * this.high;
    if (y < this.y) this.y = y; else if (y + this.high > this.y + rows) this.y = y + this.high - rows;
    this.y = Math.max(0, Math.min(this.y, tokens * this.high - rows));
    if (channel >= 0) {
      const x = channel * this.wide;
      if (centre || x < this.x || x + this.wide > this.x + this.columns) this.x = x - this.columns / 2;
    }
    this.x = Math.max(0, Math.min(this.x, about.width * this.wide - this.columns));
  }

  /** Scroll to a channel without choosing it. */
  look(channel) {
    this.x = Math.max(0, Math.min(channel * this.wide - this.columns / 2, this.data.about.width * this.wide - this.columns));
    this.draw();
  }

  at(event) {
    if (!this.data) return null;
    const box = this.canvas.getBoundingClientRect();
    const token = Math.floor((event.clientY - box.top - TOP + this.y) / this.high);
    const channel = Math.floor((event.clientX - box.left - GUTTER + this.x) / this.wide);
    if (event.clientY - box.top < TOP || token < 0 || token >= this.data.tokens) return null;
    if (channel >= this.data.about.width) return null;
    return { token, channel: event.clientX - box.left < GUTTER ? -1 : channel };
  }

  zoom(factor, centre = this.columns / 2) {
    const before = this.wide, at = (this.x + centre) / before, fit = this.columns / this.data.about.width;
    const cell = Math.min(40, before * factor);
    this.cell = cell <= fit * 1.01 ? 0 : cell;
    this.x = Math.max(0, Math.min(at * this.wide - centre, this.data.about.width * this.wide - this.columns));
    this.draw();
  }

  _wheel(event) {
    if (!this.data) return;
    event.preventDefault();
    if (event.ctrlKey || event.metaKey) {
      this.zoom(Math.exp(-event.deltaY * 0.004), Math.max(0, event.offsetX - GUTTER));
      return;
    }
    const sideways = event.shiftKey ? event.deltaY : event.deltaX, down = event.shiftKey ? 0 : event.deltaY;
    this.x = Math.max(0, Math.min(this.x + sideways, this.data.about.width * this.wide - this.columns));
    this.y = Math.max(0, Math.min(this.y + down, this.data.tokens * this.high - this.canvas.clientHeight + TOP));
    this.draw();
  }

  _hover(event) {
    const at = this.at(event);
    if (!at || at.channel < 0) { this.hooks.hover(null); return; }
    const { run, path, about, tokens } = this.data;
    this.hooks.hover({ ...at, value: this.values.at(run, path, about, at.token, at.channel, tokens) });
  }

  draw() {
    if (this.asked) return;
    this.asked = true;
    requestAnimationFrame(() => { this.asked = false; this._draw(); });
  }

  _draw() {
    if (!this.data || !this.canvas.isConnected) return;
    const { context, width, height, ratio } = sized(this.canvas);
    const { tokens, about, labels, token } = this.data;
    const high = this.high, first = Math.floor(this.y / high), last = Math.min(tokens, Math.ceil((this.y + height - TOP) / high));
    this._cells(context, first, last, ratio);
    if (about.width <= FEW && this.wide >= 56) this._numbers(context, first, last);
    context.font = `12px ${getComputedStyle(document.body).fontFamily}`;
    context.textBaseline = "middle";
    for (let i = first; i < last; i++) {
      const y = TOP + i * high - this.y;
      if (i === token) { context.fillStyle = colour("accent-soft"); context.fillRect(0, y, GUTTER, high); }
      context.fillStyle = i === token ? colour("ink") : colour("ink-2");
      context.save();
      context.beginPath(); context.rect(0, Math.max(TOP, y), GUTTER - 6, high); context.clip();
      context.textAlign = "right";
      context.fillText(labels(i), GUTTER - 10, y + high / 2 + 0.5);
      context.restore();
    }
    this._ruler(context, width);
    this._heads(context, about, height);
    this._chosen(context, width);
  }

  /** The cells themselves, in device pixels. */
  _cells(context, first, last, ratio) {
    const { run, path, about, tokens, limit, theme } = this.data;
    const pixels = Math.max(1, Math.round(Math.min(this.columns, about.width * this.wide) * ratio));
    const line = context.createImageData(pixels, 1), wide = this.wide * ratio, left = this.x * ratio;
    for (let i = first; i < last; i++) {
      const from = Math.floor(left / wide), to = Math.min(about.width, Math.ceil((left + pixels) / wide));
      const row = this._part(run, path, about, i, from, to, tokens);
      if (!row) continue;
      const data = line.data;
      for (let p = 0; p < pixels; p++) {
        const value = largest(row, Math.floor((left + p) / wide) - from, Math.max(1, Math.ceil(1 / wide - 1e-6)));
        const c = value === undefined ? scale.diverging(0, 1, theme) : scale.diverging(value, limit, theme);
        const o = p * 4;
        data[o] = c[0]; data[o + 1] = c[1]; data[o + 2] = c[2]; data[o + 3] = 255;
      }
      this._paste(context, line, i, ratio);
    }
  }

  /** The numbers themselves, where there are few. */
  _numbers(context, first, last) {
    const { run, path, about, tokens, limit, theme } = this.data;
    context.font = `12px ${getComputedStyle(document.body).fontFamily}`;
    context.textAlign = "center"; context.textBaseline = "middle";
    for (let i = first; i < last; i++) {
      const row = this._part(run, path, about, i, 0, about.width, tokens) ?? [];
      row.forEach((value, c) => {
        context.fillStyle = scale.inkOn(scale.diverging(value, limit, theme));
        context.fillText(number(value, this.wide < 76 ? 3 : 4), GUTTER + (c + 0.5) * this.wide - this.x, TOP + (i + 0.5) * this.high - this.y);
      });
    }
  }

  _paste(context, line, i, ratio) {
    const band = (this.band ??= document.createElement("canvas"));
    band.width = line.width; band.height = 1;
    band.getContext("2d").putImageData(line, 0, 0);
    const y = TOP + i * this.high - this.y, gap = this.high > 6 ? 1 : 0, top = Math.max(TOP, y);
    context.imageSmoothingEnabled = false;
    if (y + this.high - gap > top) context.drawImage(band, GUTTER, top, line.width / ratio, y + this.high - gap - top);
  }

  /** Numbers of some channels of a token; undefined ones are on their way. */
  _part(run, path, about, token, from, to, tokens) {
    const made = [];
    for (let at = from; at < to; ) {
      const tile = this.values.tile(run, path, about, token, at, tokens), row = tile?.row(token) ?? -1;
      if (row < 0) { if (!tile) { this._ask(run, path, about, token, at, to, tokens); return null; } return null; }
      const until = Math.min(to, tile.from + tile.width);
      if (until <= at) return null;
      for (let c = at; c < until; c++) made.push(tile.array[row * tile.width + c - tile.from]);
      at = until;
    }
    return made;
  }

  _ask(run, path, about, token, from, to, tokens) {
    for (let at = from; at < to; at += 1024) this.values.tile(run, path, about, token, at, tokens);
  }

  /** Channel numbers along the top. */
  _ruler(context, width) {
    const step = scale.rounded(64 / this.wide);
    context.fillStyle = colour("ink-3");
    context.font = `10.5px ${getComputedStyle(document.body).fontFamily}`;
    context.textAlign = "left"; context.textBaseline = "alphabetic";
    const whole = Math.max(1, Math.round(step));
    for (let c = Math.ceil(this.x / this.wide / whole) * whole; c < this.data.about.width; c += whole) {
      const x = GUTTER + (c + 0.5) * this.wide - this.x;
      if (x > width - 20) break;
      context.fillRect(Math.round(x), TOP - 4, 1, 3);
      context.fillText(String(c), Math.round(x) + 3, TOP - 5);
    }
  }

  /** Lines between heads. */
  _heads(context, about, height) {
    if (about.inner.length < 2) return;
    const part = about.inner[1] * this.wide;
    context.fillStyle = colour("panel");
    for (let k = 1; k < about.inner[0]; k++) {
      const x = GUTTER + k * part - this.x;
      if (x > GUTTER) context.fillRect(Math.round(x) - 1, TOP, 2, height - TOP);
    }
  }

  _chosen(context, width) {
    const { token, channel } = this.data, y = TOP + token * this.high - this.y;
    context.strokeStyle = colour("accent"); context.lineWidth = 1.5;
    context.strokeRect(GUTTER + 0.5, y - 0.5, Math.min(this.columns, this.data.about.width * this.wide) - 1, this.high);
    if (channel < 0) return;
    const x = GUTTER + channel * this.wide - this.x, wide = Math.max(5, this.wide);
    if (x < GUTTER || x > width) return;
    context.fillStyle = colour("accent");
    const middle = x + this.wide / 2;
    context.beginPath(); context.moveTo(middle - 4, y - 6); context.lineTo(middle + 4, y - 6); context.lineTo(middle, y - 0.5); context.fill();
    context.lineWidth = 2;
    context.strokeRect(middle - wide / 2, y, wide, this.high - 1);
  }
}

/** The number furthest from zero among `count` from `at` on. */
function largest(row, at, count) {
  let most = row[at];
  for (let k = at + 1; k < at + count && k < row.length; k++) if (Math.abs(row[k]) > Math.abs(most)) most = row[k];
  return most;
}
