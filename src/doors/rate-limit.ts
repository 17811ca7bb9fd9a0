import type { ContextValues, Interceptor } from '@connectrpc/connect';
import { TokenBucket } from 'limiter';
import { LRUCache } from 'lru-cache';
import { ServiceError } from '../requests/errors.ts';
import { requestContextOf } from '../requests/request-context.ts';

/** Keys whose use is counted at most; the least recently used are forgotten, which gives them a full bucket. */
const maxKeys = 10_000;
/** How many seconds' worth of requests may come at once. */
const burstSeconds = 2;

export interface RateLimit {
  /** Takes one request of its API key's allowance. Throws `rate_limited` where there is none left. */
  take(values: ContextValues): void;
  /** Takes for what came past no gate, and tells what is left with every answer. */
  interceptor: Interceptor;
}

/**
 * Limits the requests of each API key, on this process, to `perSecond` with a burst of twice that; 0 limits nothing.
 * Answers carry the headers of draft-ietf-httpapi-ratelimit-headers: the policy, what remains, and the seconds until
 * all of it is there again.
 */
export function createRateLimit(perSecond: number): RateLimit {
  if (perSecond === 0) return { take: () => {}, interceptor: (next) => next };
  const bucketSize = perSecond * burstSeconds;
  const policy = `"creates";q=${bucketSize};w=${burstSeconds}`;
  const buckets = new LRUCache<string, TokenBucket>({ max: maxKeys });

  const bucketOf = (keyId: string): TokenBucket => {
    const known = buckets.get(keyId);
    if (known !== undefined) return known;
    const bucket = new TokenBucket({ bucketSize, tokensPerInterval: perSecond, interval: 'second' });
    bucket.content = bucketSize;
    buckets.set(keyId, bucket);
    return bucket;
  };

  const take = (values: ContextValues) => {
    const context = requestContextOf(values);
    if (context.identity === undefined) throw new Error('an unauthenticated request has no rate limit');
    const bucket = bucketOf(context.identity.keyTypeId);
    const isAllowed = bucket.tryRemoveTokens(1);
    const secondsUntilFull = Math.ceil((bucketSize - bucket.content) / perSecond);
    context.rateLimit = {
      'RateLimit-Policy': policy,
      RateLimit: `"creates";r=${Math.floor(bucket.content)};t=${secondsUntilFull}`,
    };
    if (!isAllowed)
      throw new ServiceError('rate_limited', { retryAfterSeconds: 1, httpHeaders: context.rateLimit });
  };

  return {
    take,
    interceptor: (next) => async (request) => {
      const context = requestContextOf(request.contextValues);
      if (context.rateLimit === undefined) take(request.contextValues);
      const response = await next(request);
      for (const [name, value] of Object.entries(context.rateLimit ?? {})) response.header.set(name, value);
      return response;
    },
  };
}
