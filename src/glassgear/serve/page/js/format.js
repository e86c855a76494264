/** Numbers as people read them. Pure functions. */

const MINUS = "\u2212";

/** A value with so many significant digits; a real minus sign; never an exponent between 0.0001 and 1e6. */
export function number(value, digits = 4) {
  if (value === null || value === undefined || Number.isNaN(value)) return "NaN";
  if (!Number.isFinite(value)) return value > 0 ? "∞" : `${MINUS}∞`;
  if (value === 0) return "0";
  const size = Math.abs(value);
  let text;
  if (size >= 1e6 || size < 1e-4) {
    const [mantissa, power] = size.toExponential(Math.max(0, digits - 1)).split("e");
    text = `${mantissa.replace(/\.?0+$/, "")}e${power.replace("+", "").replace("-", MINUS)}`;
  } else {
    const decimals = Math.max(0, digits - 1 - Math.floor(Math.log10(size)));
    text = size.toFixed(Math.min(decimals, 9));
    if (size >= 1e4) text = grouped(Number(text));
  }
  return value < 0 ? MINUS + text : text;
}

/** A number as a float32 holds it: nine digits tell every float32 apart. */
export function exact(value) {
  if (!Number.isFinite(value)) return number(value);
  return String(Number(value.toPrecision(9))).replace(/-/g, MINUS);
}

/** With a sign in front, for addends. */
export function signed(value, digits = 4) {
  const text = number(value, digits);
  return value > 0 ? `+${text}` : text;
}

/** Whole numbers with groups of three. */
export function grouped(value) {
  return String(Math.round(value)).replace(/\B(?=(\d{3})+(?!\d))/g, ",");
}

/** 134.5M, 8.03B: three digits at most. */
export function short(value) {
  for (const [unit, size] of [["T", 1e12], ["B", 1e9], ["M", 1e6], ["k", 1e3]]) {
    if (value >= size) return `${trimmed(value / size)}${unit}`;
  }
  return String(Math.round(value));
}

/** 92.1 MB. */
export function bytes(value) {
  for (const [unit, size] of [["GB", 1e9], ["MB", 1e6], ["kB", 1e3]]) {
    if (value >= size) return `${trimmed(value / size)} ${unit}`;
  }
  return `${Math.round(value)} B`;
}

/** A share: 25.9 %, 0.31 %, < 0.01 %. */
export function percent(share) {
  const value = share * 100;
  if (value === 0) return "0 %";
  if (value < 0.01) return "< 0.01 %";
  return `${value < 1 ? value.toFixed(2) : value.toFixed(1)} %`;
}

/** The same without a fraction, where there is little room. */
export const rounded = (share) => `${Math.round(share * 100)} %`;

function trimmed(value) {
  return value >= 100 ? String(Math.round(value)) : value.toPrecision(3).replace(/\.0+$/, "");
}
