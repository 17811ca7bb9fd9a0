import { TokenBucket } from 'limiter';
import { LRUCache } from 'lru-cache';
import { ServiceError } from '../requests/errors.ts';

const perMinute = 10;
const maxPayers = 10_000;

/** Returns a function that counts a payment of an address, and throws `rate_limited` above ten a minute. */
export function createPayerLimit(): (address: string) => void {
  const buckets = new LRUCache<string, TokenBucket>({ max: maxPayers });
  return (address) => {
    let bucket = buckets.get(address);
    if (bucket === undefined) {
      bucket = new TokenBucket({ bucketSize: perMinute, tokensPerInterval: perMinute, interval: 'minute' });
      bucket.content = perMinute;
      buckets.set(address, bucket);
    }
    if (bucket.tryRemoveTokens(1)) return;
    throw new ServiceError('rate_limited', {
      message: 'Too many signed payments within a minute. Try again in a few seconds.',
      retryAfterSeconds: 60 / perMinute,
    });
  };
}
