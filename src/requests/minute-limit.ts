import { TokenBucket } from 'limiter';
import { LRUCache } from 'lru-cache';
import { ServiceError } from './errors.ts';

const perMinute = 10;
const maxKeys = 10_000;

/** Returns a function that counts a request under a key, and throws `rate_limited` above ten a minute. */
export function createMinuteLimit(tooMany: string): (key: string) => void {
  const buckets = new LRUCache<string, TokenBucket>({ max: maxKeys });
  return (key) => {
    let bucket = buckets.get(key);
    if (bucket === undefined) {
      bucket = new TokenBucket({ bucketSize: perMinute, tokensPerInterval: perMinute, interval: 'minute' });
      bucket.content = perMinute;
      buckets.set(key, bucket);
    }
    if (bucket.tryRemoveTokens(1)) return;
    throw new ServiceError('rate_limited', {
      message: `${tooMany} Try again in a few seconds.`,
      retryAfterSeconds: 60 / perMinute,
    });
  };
}
