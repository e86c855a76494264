/** What a head does, told from its shares. Pure functions. */

/** The strongest of {previous, first, self}, as {name, share}; `wide` where none has 40 %. */
export function habit(found) {
  const [name, share] = Object.entries(found).sort((a, b) => b[1] - a[1])[0];
  return share >= 0.4 ? { name, share } : { name: "wide", share };
}

/** All heads by one of their habits, the strongest first: [{path, layer, head, share}]. */
export function ranked(layers, name) {
  const all = layers.flatMap(({ path, heads }) => heads.map((shares, head) => ({ path, layer: Number(/\d+/.exec(path)), head, share: shares[name] })));
  return all.sort((a, b) => b.share - a.share);
}
