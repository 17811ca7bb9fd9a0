/** The seed of this run. To repeat it: `FAULT_SEED=… npm run test:faults`. */
const seed = Number(process.env.FAULT_SEED ?? Math.floor(Math.random() * 2 ** 31));

export interface Random {
  seed: number;
  /** A number from 0 to below 1. */
  fraction(): number;
  /** An integer from 0 to below the limit. */
  below(limit: number): number;
}

/** Pseudo-random choices of the fault tests: what to send, where to, and when to break something. */
export const random: Random = createRandom(seed);

function createRandom(seed: number): Random {
  // mulberry32: small, and good enough for tests.
  let state = seed >>> 0;
  const fraction = () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
  return { seed, fraction, below: (limit) => Math.floor(fraction() * limit) };
}
