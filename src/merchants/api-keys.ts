import { hash } from 'node:crypto';
import type { EntityManager } from '@mikro-orm/postgresql';
import { LRUCache } from 'lru-cache';
import type { ChainName, ModeName } from '../chains.ts';
import { orUnavailable } from '../database/unavailable.ts';
import { formatIdentifier } from '../identifiers.ts';
import type { KeyRing } from '../key-ring.ts';
import type { Trace, Tracing } from '../operations/tracing.ts';
import type { Identity } from '../request-context.ts';
import type { WalletAddress } from '../wallet-address.ts';
import { isWellFormedApiKey } from './api-key-format.ts';

/** Longest time an answer of the database about a key is used, where the news of its change was lost. */
const apiKeyCacheMs = 10_000;
/** Keys remembered at most, known and unknown; the least recently used make room. */
const apiKeyCacheSize = 10_000;

export interface ApiKeys {
  /**
   * Whom a key stands for, or undefined where it is malformed, unknown, revoked or expired. A key of the wrong
   * shape or checksum costs no query. Throws `unavailable` where the database cannot be asked.
   */
  identify(apiKey: string, trace?: Trace): Promise<Identity | undefined>;
  /** Drops what is remembered, and what is being asked right now: a key, a wallet or a merchant has changed. */
  forget(): void;
}

interface CachedKey {
  identity: Identity;
  expiresAtMs: number;
  revoked: boolean;
}

export interface ApiKeysObserver {
  /** Told of each lookup: whether the answer was remembered, or the database had to be asked. */
  onLookup?: (remembered: boolean) => void;
  tracing?: Tracing | undefined;
}

/** Looks keys up by their keyed hash, under every pepper in the ring. */
export function createApiKeys(
  em: EntityManager,
  peppers: KeyRing,
  { onLookup, tracing }: ApiKeysObserver = {},
): ApiKeys {
  let generation = 0;
  const cache = new LRUCache<string, CachedKey | 'unknown'>({ max: apiKeyCacheSize, ttl: apiKeyCacheMs });
  /** Shared by callers who ask for the same key at the same time. */
  const lookups = new Map<string, Promise<CachedKey | 'unknown'>>();

  const find = (apiKey: string, trace: Trace | undefined) => {
    const run = () => findKey(em, peppers, apiKey);
    return tracing ? tracing.statement({ operation: 'SELECT', table: 'api_keys' }, [trace], run) : run();
  };

  const lookUp = (
    cacheKey: string,
    apiKey: string,
    trace: Trace | undefined,
  ): Promise<CachedKey | 'unknown'> => {
    const running = lookups.get(cacheKey);
    if (running !== undefined) return running;
    const startedIn = generation;
    const lookup = orUnavailable(() => find(apiKey, trace)).then((found) => {
      // Read before a change, stored after it, it would outlive the change.
      if (generation === startedIn) cache.set(cacheKey, found);
      return found;
    });
    lookups.set(cacheKey, lookup);
    const done = () => {
      if (lookups.get(cacheKey) === lookup) lookups.delete(cacheKey);
    };
    lookup.then(done, done);
    return lookup;
  };

  return {
    async identify(apiKey, trace) {
      if (!isWellFormedApiKey(apiKey)) return undefined;
      // A digest, so that no key stays in memory and no comparison of texts tells how much of a guess was right.
      const cacheKey = hash('sha256', apiKey, 'base64');
      const remembered = cache.get(cacheKey);
      onLookup?.(remembered !== undefined);
      const key = remembered ?? (await lookUp(cacheKey, apiKey, trace));
      if (key === 'unknown' || key.revoked || key.expiresAtMs <= Date.now()) return undefined;
      return key.identity;
    },
    forget() {
      generation++;
      cache.clear();
      lookups.clear();
    },
  };
}

async function findKey(em: EntityManager, peppers: KeyRing, apiKey: string): Promise<CachedKey | 'unknown'> {
  // One query for the key and its merchant's wallets: both are needed for every request.
  const rows = await em.fork().execute<KeyRow[]>(
    `select k.id, k.merchant_id, k.mode, k.expires_at, k.revoked_at, w.chain, w.address
       from api_keys k
       left join payout_wallets w on w.merchant_id = k.merchant_id and w.mode = k.mode
      where ${peppers.versions.map(() => '(k.key_hash = ? and k.pepper_version = ?)').join(' or ')}`,
    peppers.versions.flatMap((version) => [peppers.hmac(version, apiKey).digest(), version]),
  );
  const [row] = rows;
  if (row === undefined) return 'unknown';
  const payoutWallets: Partial<Record<ChainName, WalletAddress>> = {};
  for (const { chain, address } of rows) if (chain !== null) payoutWallets[chain] = address;
  return {
    identity: {
      merchantId: row.merchant_id,
      merchantTypeId: formatIdentifier('mer', row.merchant_id),
      keyTypeId: formatIdentifier('key', row.id),
      mode: row.mode,
      payoutWallets,
    },
    expiresAtMs: row.expires_at === null ? Number.POSITIVE_INFINITY : new Date(row.expires_at).getTime(),
    revoked: row.revoked_at !== null,
  };
}

interface KeyRow {
  id: string;
  merchant_id: string;
  mode: ModeName;
  expires_at: Date | string | null;
  revoked_at: Date | string | null;
  chain: ChainName | null;
  address: WalletAddress;
}
