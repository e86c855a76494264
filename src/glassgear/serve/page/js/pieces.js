/** Tokens as people see them: spaces and line ends marked, characters that are cut in pieces joined. Pure. */

const DECODER = () => new TextDecoder("utf-8", { fatal: true });

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

/** Space and line end made visible. */
export function visible(text) {
  return text.replace(/\n/g, "↵").replace(/\t/g, "⇥").replace(/\r/g, "␍");
}

/** One token on its own, for lists. */
export function token(entry) {
  if (entry === undefined || entry === null) return "";
  const text = entry.bytes !== undefined ? whole(entry.bytes) : spelled(entry.text ?? "");
  if (text === null) return `<${(entry.bytes.match(/../g) ?? []).join(" ").toUpperCase()}>`;
  return visible(text);
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
  const made = texts.map((text, i) => {
    const own = hexes?.[i] === undefined ? spelled(text) : whole(hexes[i]);
    return { text: own, special: Boolean(special[i]), part: null };
  });
  let start = -1;
  for (let i = 0; i < made.length; i++) {
    if (made[i].text !== null) { start = -1; continue; }
    if (start < 0) start = i;
    const bytes = hexes.slice(start, i + 1).join("");
    const glyph = whole(bytes);
    made[i].text = (hexes[i].match(/../g) ?? []).join(" ").toUpperCase();
    made[i].part = { glyph: null };
    if (glyph !== null) { made[i].part.glyph = glyph; start = -1; }
  }
  return made;
}
