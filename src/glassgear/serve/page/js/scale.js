/**
 * Colours for values: blue below zero, orange above, further from the paper the larger the number.
 * Blue and orange differ for the common kinds of colour blindness too; both arms get equally far
 * from the paper in both themes. Pure functions.
 */

const STOPS = {
  light: {
    paper: [250, 250, 248],
    minus: [[168, 198, 228], [58, 124, 190], [8, 54, 108]],
    plus: [[247, 200, 158], [214, 108, 32], [124, 44, 4]],
    share: [[190, 224, 219], [48, 145, 136], [4, 62, 58]],
  },
  dark: {
    paper: [25, 28, 31],
    minus: [[36, 66, 102], [72, 142, 214], [190, 222, 255]],
    plus: [[98, 58, 26], [224, 130, 50], [255, 220, 178]],
    share: [[26, 70, 68], [60, 160, 148], [196, 244, 236]],
  },
};
const AT = [0.28, 0.66, 1];
const STEPS = 256;
const tables = new Map();

/** `STEPS` colours from paper to the end of an arm, as bytes. */
function table(theme, arm) {
  const key = `${theme} ${arm}`;
  if (!tables.has(key)) {
    const made = new Uint8Array(STEPS * 3);
    for (let i = 0; i < STEPS; i++) made.set(mixed(STOPS[theme], arm, i / (STEPS - 1)), i * 3);
    tables.set(key, made);
  }
  return tables.get(key);
}

function mixed(stops, arm, share) {
  let low = stops.paper, from = 0;
  for (let k = 0; k < AT.length; k++) {
    const high = stops[arm][k];
    if (share <= AT[k]) {
      const t = (share - from) / (AT[k] - from);
      return low.map((c, i) => Math.round(c + (high[i] - c) * t));
    }
    low = high; from = AT[k];
  }
  return low;
}

/** Index into an arm's table for a size between 0 and 1. */
const step = (share) => Math.max(0, Math.min(STEPS - 1, Math.round(share * (STEPS - 1))));

/** [r, g, b] of a value on a scale that ends at ±limit. NaN is marked with magenta. */
export function diverging(value, limit, theme) {
  if (Number.isNaN(value)) return [214, 38, 160];
  const share = limit > 0 ? Math.abs(value) / limit : 0;
  const i = step(share) * 3, colours = table(theme, value < 0 ? "minus" : "plus");
  return [colours[i], colours[i + 1], colours[i + 2]];
}

/** [r, g, b] of a weight between 0 and 1; the root lets small weights show. */
export function share(value, theme) {
  const i = step(Math.sqrt(Math.max(0, value))) * 3, colours = table(theme, "share");
  return [colours[i], colours[i + 1], colours[i + 2]];
}

/** The colour of a bar: its length tells the size, so that even a small one is seen well. */
export const ofBar = (value, most, theme) => diverging(Math.sign(value) * (0.45 + 0.35 * Math.min(1, Math.abs(value) / most)), 1, theme);

/** A colour as CSS takes it. */
export const css = ([r, g, b]) => `rgb(${r},${g},${b})`;

/**
 * Where the scale ends: the size that 99.5 % of the finite values stay below, rounded up to 1, 2 or 5
 * times a power of ten, so that a few outliers don't wash out the rest.
 */
export function limitOf(values, share99 = 0.995) {
  const every = Math.max(1, Math.floor(values.length / 20000));
  const sizes = [];
  for (let i = 0; i < values.length; i += every) {
    if (Number.isFinite(values[i])) sizes.push(Math.abs(values[i]));
  }
  if (!sizes.length) return 1;
  sizes.sort((a, b) => a - b);
  return rounded(sizes[Math.min(sizes.length - 1, Math.floor(sizes.length * share99))]);
}

/** The next 1, 2 or 5 times a power of ten. */
export function rounded(size) {
  if (!(size > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(size));
  const found = [1, 2, 5, 10].find((k) => k * power >= size * (1 - 1e-9)) ?? 10;
  return Number((found * power).toPrecision(6));
}

/** The colour of words on a colour. */
export const inkOn = (rgb) => ((rgb[0] * 3 + rgb[1] * 6 + rgb[2]) / 10 > 140 ? "#16181a" : "#ffffff");

/** Fill RGBA pixels from values. */
export function paint(values, pixels, limit, theme, kind = "diverging") {
  for (let i = 0, o = 0; i < values.length; i++, o += 4) {
    const c = kind === "share" ? share(values[i], theme) : diverging(values[i], limit, theme);
    pixels[o] = c[0]; pixels[o + 1] = c[1]; pixels[o + 2] = c[2]; pixels[o + 3] = 255;
  }
}
