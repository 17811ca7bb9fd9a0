// Plain functions without imports: the client package compiles them too.

/** The rest of a longer name is ignored. */
const longestMeant = 64;

/** Other services' names for ours, both as `plain` writes them. */
const synonyms: Record<string, string> = { limit: 'pagesize', perpage: 'pagesize', cursor: 'pagetoken' };

/**
 * Returns the name that was probably meant: in another spelling (`wallet_address`), with up to two typing
 * mistakes (`walletAdress`), as a prefix (`wallet`) or a synonym (`limit`). Undefined if none is near.
 */
export function nearestName(name: string, names: readonly string[]): string | undefined {
  const given = plain(name.slice(0, longestMeant));
  const synonym = names.find((known) => plain(known) === synonyms[given]);
  if (synonym !== undefined) return synonym;
  const [best] = names
    .map((known) => ({ known, slips: slipsFrom(given, known) }))
    .sort((a, b) => a.slips - b.slips);
  if (best !== undefined && best.slips <= 2) return best.known;
  return names.find((known) => given.length >= 4 && plain(known).startsWith(given));
}

function plain(name: string): string {
  return name.toLowerCase().replaceAll(/[^a-z0-9]/g, '');
}

/**
 * The number of typing mistakes between the two, ignoring case and punctuation: insertions, deletions,
 * replacements and swaps of neighbours. Exact up to 2.
 */
export function slipsFrom(name: string, known: string): number {
  const [a, b] = [plain(name), plain(known)];
  if (Math.abs(a.length - b.length) > 2) return 3;
  let beforeLast: number[] = [];
  let last = Array.from({ length: b.length + 1 }, (_, j) => j);
  for (let i = 1; i <= a.length; i++) {
    const row = [i];
    for (let j = 1; j <= b.length; j++) {
      const same = a[i - 1] === b[j - 1];
      const swapped = a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1];
      row[j] = Math.min(
        (last[j] ?? 0) + 1,
        (row[j - 1] ?? 0) + 1,
        (last[j - 1] ?? 0) + (same ? 0 : 1),
        swapped && i > 1 && j > 1 ? (beforeLast[j - 2] ?? 0) + 1 : Number.POSITIVE_INFINITY,
      );
    }
    [beforeLast, last] = [last, row];
  }
  return last[b.length] ?? 0;
}

/** Returns `walletAdress is not a field here; did you mean walletAddress?` without its first word. */
export function notAName(kind: string, name: string, names: readonly string[]): string {
  const nearest = nearestName(name, names);
  return `is not ${kind} here; ${nearest === undefined ? `there are ${names.join(', ')}` : `did you mean ${nearest}?`}`;
}
