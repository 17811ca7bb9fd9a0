// Classifies the refusals of nodes. Providers use their own messages: the patterns are those of Alchemy, Ankr, Blast,
// Chainstack, dRPC, Infura, QuickNode, Geth and Erigon.

/** The request or its answer is larger than the node allows. */
const ofSize =
  /\brange\b|\bblocks? (?:limit|distance)|(?:more than|up to|maximum|max|limited to|exceeds?)\b.{0,40}\b(?:blocks|results|logs)|too (?:large|wide|many (?:blocks|results|logs))|(?:response|result) (?:size|set)|query (?:returned|exceeds)/i;
const ofRate =
  /rate.?limit|too many requests|compute units|throughput|throttl|capacity|quota|credits|per second|(?:request|call|daily|limit).{0,20}exceeded|exceeded.{0,40}(?:limit|capacity|requests)/i;
/** `LimitExceeded`. Some nodes also use it for sizes. */
const limitExceeded = -32005;
const maxRead = 1_000;

interface NodeRefusal {
  fault: 'rate_limited' | 'too_large';
  retryAfterMs: number | undefined;
}

/**
 * Classifies an answer by its HTTP status and `Retry-After`, and by the JSON-RPC code and message (`details`). Returns
 * undefined unless it is a refusal for rate or size.
 */
export function readRefusal(reason: unknown): NodeRefusal | undefined {
  const { status, code, details, retryAfter } = reason as {
    status?: unknown;
    code?: unknown;
    details?: unknown;
    retryAfter?: unknown;
  };
  const words = typeof details === 'string' ? details.slice(0, maxRead) : '';
  const retryAfterMs = typeof retryAfter === 'string' ? msOf(retryAfter) : undefined;
  const isTooMany = (status === 429 || code === 429) && !/\brange\b/i.test(words);
  if (status === 413 || (!isTooMany && ofSize.test(words))) return { fault: 'too_large', retryAfterMs };
  const isRate =
    status === 429 ||
    code === limitExceeded ||
    code === 429 ||
    ofRate.test(words) ||
    retryAfterMs !== undefined;
  return isRate ? { fault: 'rate_limited', retryAfterMs } : undefined;
}

/** In milliseconds, at most a minute. */
function msOf(value: string): number | undefined {
  const seconds = /^\d+$/.test(value) ? Number(value) : (Date.parse(value) - Date.now()) / 1_000;
  return Number.isNaN(seconds) ? undefined : Math.min(Math.max(0, seconds * 1_000), 60_000);
}
