/** Tokens as people see them: spaces and line ends marked, characters that are cut in pieces joined. Pure. */

const DECODER = () => new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }), ENCODER = new TextEncoder();

/** The text of a token by its bytes (hex); null if they aren't whole characters. */
function whole(hex) {
  try { return DECODER().decode(Uint8Array.from(hex.match(/../g) ?? [], (b) => parseInt(b, 16))); } catch { return null; }
}

/** How a vocabulary spells a token, read without its bytes. */
export function spelled(text) {
  const byte = /^<0x([0-9A-Fa-f]{2})>$/.exec(text);
  if (byte) return whole(byte[1]) ?? byte[1].toUpperCase();
  return text.replace(/[Ġ▁]/g, " ").replace(/Ċ/g, "\n").replace(/ĉ/g, "\t");
}

/** Line ends and characters that nobody sees made visible. */
export function visible(text) {
  return text.replace(/\n/g, "↵").replace(/\t/g, "⇥").replace(/\r/g, "␍")
    .replace(/[\p{Cc}\p{Cf}\p{Co}\p{Cn}\u00a0\u115f\u2000-\u200a\u2028\u2029\u202f\u3000\ufffd]/gu, (c) => `U+${c.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}`);
}

/** Bytes (hex) of a token that holds some that are no whole character: the server writes it as ` <F0><9F>`. Else null. */
export function bytesOf(text) {
  const parts = text.split(/<([89A-F][0-9A-F])>/); // text and bytes in turn; below 0x80 every byte is a character
  return parts.length < 2 ? null : parts.map((part, i) => (i % 2 ? part.toLowerCase() : hexOf(part))).join("");
}

const hexOf = (text) => [...ENCODER.encode(text)].map((byte) => byte.toString(16).padStart(2, "0")).join("");

/** Bytes (hex) as text, and those that are no whole character as ` <F0 9F>`: the one form that the page shows. */
function readable(hex) {
  const bytes = hex.match(/../g) ?? [], first = (i, n) => (i + n <= bytes.length ? whole(bytes.slice(i, i + n).join("")) : null);
  let said = "", loose = [];
  const end = () => { if (loose.length) said += `<${loose.join(" ").toUpperCase()}>`; loose = []; };
  for (let i = 0; i < bytes.length;) {
    const long = [1, 2, 3, 4].find((n) => first(i, n) !== null);
    if (long) { end(); said += first(i, long); } else loose.push(bytes[i]);
    i += long ?? 1;
  }
  end();
  return said;
}

/** One token on its own, for lists. */
export function token(entry) {
  if (entry === undefined || entry === null) return "";
  const hex = entry.bytes ?? bytesOf(entry.text ?? "");
  return visible(hex === null ? spelled(entry.text ?? "") : readable(hex));
}

/** The same with its leading space shown as a middle dot, where it would be lost. */
export function quoted(entry) {
  const text = token(entry);
  return text.replace(/^ +/, (s) => "·".repeat(s.length)).replace(/ +$/, (s) => "·".repeat(s.length)) || "∅";
}

/**
 * Chips of a text. Neighbouring tokens whose bytes make a character only together are parts of one:
 * the last of them carries the character.
 *
 * Returns [{text, special, part: null | {bytes, of, glyph}}], one for each token.
 */
export function chips(texts, hexes, special = []) {
  const known = [];
  const made = texts.map((text, i) => {
    const hex = hexes?.[i] ?? (special[i] ? null : bytesOf(text));
    if (hex) known[i] = hex;
    const own = hex ? whole(hex) : spelled(text);
    return { text: own, special: Boolean(special[i]), part: null };
  });
  let start = -1;
  for (let i = 0; i < made.length; i++) {
    if (made[i].text !== null) { start = -1; continue; }
    if (start < 0) start = i;
    const bytes = known.slice(start, i + 1).join("");
    const glyph = whole(bytes);
    made[i].text = readable(known[i]);
    made[i].part = { glyph: null };
    if (glyph !== null) { made[i].part.glyph = glyph; start = -1; }
  }
  return made;
}
