import { TokenBucket } from 'limiter';
import { LRUCache } from 'lru-cache';
import { ServiceError } from './errors.ts';

/** Most keys counted. The least recently used is forgotten, which refills its bucket. */
const maxKeys = 10_000;

/** Returns the buckets of keys, each full when it is first asked for by `memo`. */
export function createBuckets(bucketSize: number, tokensPerInterval: number, interval: 'second' | 'minute') {
  return new LRUCache<string, TokenBucket>({
    max: maxKeys,
    memoMethod: () =>
      Object.assign(new TokenBucket({ bucketSize, tokensPerInterval, interval }), { content: bucketSize }),
  });
}

const perMinute = 10;

/** Returns a function that counts a request, and throws `rate_limited` above ten at once and ten a minute. */
export function createMinuteLimit(tooMany: string): (key: string) => void {
  const buckets = createBuckets(perMinute, perMinute, 'minute');
  return (key) => {
    if (buckets.memo(key).tryRemoveTokens(1)) return;
    throw new ServiceError('rate_limited', {
      message: `${tooMany} Try again in a few seconds.`,
      retryAfterSeconds: 60 / perMinute,
    });
  };
}
