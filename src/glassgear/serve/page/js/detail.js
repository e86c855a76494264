/** The numbers of one token around the chosen one, as bars from a line at zero. */

import { colour, sized } from "./dom.js";
import { number } from "./format.js";
import * as scale from "./scale.js";

const BAR = 6, LEAST = 2, LEFT = 58; // px of a bar where not all fit, and the least where all do

/** Whether there are so few numbers that each can be written out. */
const few = (row) => row && row.length <= 16;

export class Detail {
  /** `hooks`: pick(channel), hover(channel, value). */
  constructor(canvas, hooks) {
    Object.assign(this, { canvas, hooks, data: null });
    canvas.addEventListener("click", (event) => { const c = this.at(event); if (c !== null) hooks.pick(c); });
    canvas.addEventListener("pointermove", (event) => { const c = this.at(event); hooks.hover(c, c === null ? undefined : this.data.row[c]); });
    canvas.addEventListener("pointerleave", () => hooks.hover(null));
    new ResizeObserver(() => this.draw()).observe(canvas);
  }

  /** {row: Float32Array or null, channel, theme, name(channel), title(first, last), each: a name under every bar} */
  show(data) { this.data = data; this.draw(); }

  get count() { return Math.floor((this.canvas.clientWidth - LEFT - 8) / this.bar + 1e-6); }

  get bar() {
    const fit = (this.canvas.clientWidth - LEFT - 8) / Math.max(1, this.data?.row?.length ?? 1);
    return fit < LEAST ? BAR : Math.min(this.data?.each ? 64 : few(this.data?.row) ? 96 : 26, fit);
  }

  get first() {
    const n = this.data.row.length;
    return Math.max(0, Math.min(n - this.count, Math.max(0, this.data.channel) - Math.floor(this.count / 2)));
  }

  at(event) {
    if (!this.data?.row) return null;
    const place = Math.floor((event.clientX - this.canvas.getBoundingClientRect().left - LEFT) / this.bar);
    const channel = this.first + place;
    return place >= 0 && channel < this.data.row.length ? channel : null;
  }

  draw() {
    if (!this.data || !this.canvas.isConnected) return;
    const { context, width, height } = sized(this.canvas), { row, channel, theme } = this.data;
    context.font = `10.5px ${getComputedStyle(document.body).fontFamily}`;
    if (!row) return;
    this._title(context, width);
    const first = this.first, shown = row.subarray(first, first + this.count), bar = this.bar, gap = bar < 4 ? bar / 4 : 2;
    const finite = [...shown].filter(Number.isFinite), top = Math.max(0, ...finite), bottom = Math.min(0, ...finite);
    const room = height - 46, span = top - bottom || 1, zero = 22 + room * (top / span);
    this._axis(context, width, { top, bottom, zero, room });
    shown.forEach((value, i) => {
      const c = first + i, x = LEFT + i * bar, high = Number.isFinite(value) ? (value / span) * room : 0;
      if (c === channel) { context.fillStyle = colour("accent-soft"); context.fillRect(x, 4, bar, height - 8); }
      context.fillStyle = scale.css(scale.ofBar(value, Math.max(top, -bottom) || 1, theme));
      context.fillRect(x + gap / 2, Math.min(zero, zero - high), bar - gap, Math.max(1, Math.abs(high)));
    });
    this._numbers(context, first, shown.length, height);
    if (channel >= first && channel < first + shown.length) this._chosen(context, channel - first, row[channel], width);
  }

  _title(context, width) {
    context.fillStyle = colour("ink-3");
    context.textAlign = "right"; context.textBaseline = "top";
    context.fillText(this.data.title(this.first, Math.min(this.data.row.length, this.first + this.count) - 1), width - 10, 5);
  }

  _axis(context, width, { top, bottom, zero, room }) {
    context.fillStyle = colour("line-strong");
    context.fillRect(LEFT, Math.round(zero), width - LEFT - 8, 1);
    context.fillStyle = colour("ink-3");
    context.textAlign = "right"; context.textBaseline = "middle";
    if (top > 0) context.fillText(number(top, 3), LEFT - 8, 22);
    if (bottom < 0) context.fillText(number(bottom, 3), LEFT - 8, 22 + room);
    if (zero > 36 && zero < room + 8) context.fillText("0", LEFT - 8, zero);
  }

  _numbers(context, first, count, height) {
    context.fillStyle = colour("ink-3");
    context.textAlign = "center"; context.textBaseline = "alphabetic";
    const every = this.data.each || few(this.data.row) ? 1 : Math.max(1, scale.rounded(46 / this.bar));
    for (let i = 0; i < count; i++) if ((first + i) % every === 0) context.fillText(this.data.name(first + i), LEFT + (i + 0.5) * this.bar, height - 7);
  }

  _chosen(context, place, value, width) {
    const text = number(value, 5), x = LEFT + (place + 0.5) * this.bar;
    context.font = `600 11.5px ${getComputedStyle(document.body).fontFamily}`;
    context.fillStyle = colour("ink");
    const half = context.measureText(text).width / 2;
    context.textAlign = "center"; context.textBaseline = "top";
    context.fillText(text, Math.max(LEFT + half, Math.min(width - half - 8, x)), 3);
  }
}
