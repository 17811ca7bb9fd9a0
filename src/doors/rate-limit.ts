import type { RatePolicy } from '../config/config.ts';
import { ServiceError } from '../requests/errors.ts';
import { createBuckets } from '../requests/minute-limit.ts';
import type { RequestContext } from '../requests/request-context.ts';

/** The burst, in seconds' worth of requests. */
const burstSeconds = 2;

/** Takes one request from the caller's allowance under a policy. Throws `rate_limited` if none is left. */
export type TakeFromLimit = (context: RequestContext, ratePolicy: RatePolicy) => void;

/**
 * Limits the rate of each API key and each client secret on this process, by policy. A policy allows a number
 * of requests per second, with a burst of twice that; 0 means no limit. A method may count as more than one
 * request (`requests/row-cost.ts`). Answers carry the headers of draft-ietf-httpapi-ratelimit-headers: the
 * policy, the requests left, and the seconds until all are available again.
 */
export function createRateLimit(perSecondByPolicy: Readonly<Record<RatePolicy, number>>): TakeFromLimit {
  const policies = new Map(
    Object.entries(perSecondByPolicy).map(([name, perSecond]) => [name, createPolicy(name, perSecond)]),
  );
  return (context, ratePolicy) => (policies.get(ratePolicy) as Policy)(context);
}

/** By key, by opened intent, or by address or session for requests that have neither. */
function bucketKeyOf({ identity, openedIntent, countedUnder }: RequestContext): string {
  return identity?.keyTypeId ?? openedIntent?.typeId ?? countedUnder?.() ?? 'unknown';
}

/** Takes one request from the caller's allowance. */
type Policy = (context: RequestContext) => void;

function createPolicy(name: string, perSecond: number): Policy {
  if (perSecond === 0) return () => {};
  const bucketSize = perSecond * burstSeconds;
  const policy = `"${name}";q=${bucketSize};w=${burstSeconds}`;
  const buckets = createBuckets(bucketSize, perSecond, 'second');
  return (context) => {
    const bucket = buckets.memo(bucketKeyOf(context));
    const isAllowed = bucket.tryRemoveTokens(1);
    const setHeaders = () => {
      const left = Math.max(0, Math.floor(bucket.content));
      const fullInSeconds = Math.ceil((bucketSize - bucket.content) / perSecond);
      context.rateLimit = { 'RateLimit-Policy': policy, RateLimit: `"${name}";r=${left};t=${fullInSeconds}` };
    };
    setHeaders();
    if (!isAllowed) {
      // More than a second if the key is in debt.
      const retryAfterSeconds = Math.max(1, Math.ceil((1 - bucket.content) / perSecond));
      const message = context.identity ? undefined : 'Too many requests. Wait and retry.';
      throw new ServiceError('rate_limited', { retryAfterSeconds, message });
    }
    context.charge = (requests) => {
      bucket.content -= requests;
      setHeaders();
    };
  };
}
