/** Small helpers to make elements. No inline styles in markup: the page's policy forbids them. */

const SVG = "http://www.w3.org/2000/svg";

function fill(element, props, children) {
  for (const [key, value] of Object.entries(props ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (key === "style") for (const [name, set] of Object.entries(value)) element.style.setProperty(name, set);
    else if (key === "text") element.textContent = value;
    else if (key === "data") Object.assign(element.dataset, value);
    else element.setAttribute(key, value === true ? "" : value);
  }
  for (const child of children.flat(3)) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child);
  }
  return element;
}

/** An HTML element: h("p", {class: "small", onclick}, "text", child). */
export const h = (tag, props, ...children) => fill(document.createElement(tag), props, children);

/** An SVG element. */
export const s = (tag, props, ...children) => fill(document.createElementNS(SVG, tag), props, children);

export const byId = (id) => document.getElementById(id);

/** Replace what is inside, keeping the keyboard's place where an element with the same data-key is there again. */
export function swap(parent, ...children) {
  const key = parent.contains(document.activeElement) ? document.activeElement.dataset?.key : null;
  const top = parent.scrollTop;
  parent.replaceChildren(...children.flat(3).filter(Boolean));
  parent.scrollTop = top;
  if (key) parent.querySelector(`[data-key="${CSS.escape(key)}"]`)?.focus({ preventScroll: true });
}

/** Scroll a box until an element in it is in view; the document stays where it is. */
export function reveal(box, element) {
  if (!box || !element) return;
  const outer = box.getBoundingClientRect(), inner = element.getBoundingClientRect();
  if (inner.top < outer.top) box.scrollTop -= outer.top - inner.top;
  else if (inner.bottom > outer.bottom) box.scrollTop += inner.bottom - outer.bottom;
}

/** Whether things may move. */
export const moves = () => !matchMedia("(prefers-reduced-motion: reduce)").matches;

/** A canvas sized to its box in device pixels; returns its context, scaled, with the size in CSS pixels. */
export function sized(canvas, width = canvas.clientWidth, height = canvas.clientHeight) {
  const ratio = devicePixelRatio || 1;
  const w = Math.max(1, Math.round(width * ratio)), t = Math.max(1, Math.round(height * ratio));
  if (canvas.width !== w || canvas.height !== t) { canvas.width = w; canvas.height = t; }
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  return { context, width, height, ratio };
}

/** A colour of the theme. */
export const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

/** Save something as a file. */
export function save(name, blob) {
  const link = h("a", { href: URL.createObjectURL(blob), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

/** Call after a pause; a new call within it starts over. */
export function later(wait, work) {
  let timer = 0;
  return (...args) => { clearTimeout(timer); timer = setTimeout(() => work(...args), wait); };
}
