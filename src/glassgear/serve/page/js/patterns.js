/** What a head does, told from its weights. Pure functions. */

/**
 * How much of a head's weight goes to the token before, to the first token and to the token itself, on
 * average over tokens from the third on (before it, these are the same ones).
 *
 * `weights` holds rows of `tokens` numbers, one row a reading token.
 */
export function shares(weights, tokens) {
  const sums = { previous: 0, first: 0, self: 0 };
  const from = Math.min(2, tokens - 1);
  for (let i = from; i < tokens; i++) {
    sums.previous += i ? weights[i * tokens + i - 1] : 0;
    sums.first += weights[i * tokens];
    sums.self += weights[i * tokens + i];
  }
  const count = Math.max(1, tokens - from);
  return Object.fromEntries(Object.entries(sums).map(([name, sum]) => [name, sum / count]));
}

/** The strongest of them: {name, share}; `wide` where none has 40 %. */
export function habit(found) {
  const [name, share] = Object.entries(found).sort((a, b) => b[1] - a[1])[0];
  return share >= 0.4 ? { name, share } : { name: "wide", share };
}
