import { hash, randomInt, timingSafeEqual } from 'node:crypto';
import { crc32 } from 'node:zlib';
import type { EntityManager } from '@mikro-orm/postgresql';
import { LRUCache } from 'lru-cache';
import { checksum } from 'ox/Address';
import type { Pool } from 'pg';
import type { KeyRing } from '../config/key-ring.ts';
import type { WalletAddress } from '../contract/wallet-address.ts';
import type { ChainName, ModeName } from '../contract/words.ts';
import { Batcher, usualWaits } from '../database/batcher.ts';
import type { ApiKeyFormat } from '../database/entities/api-key.ts';
import { formatIdentifier } from '../database/identifiers.ts';
import { createPreparedStatements, preparedStatement } from '../database/prepared.ts';
import type { Identity, RequestContext } from '../requests/request-context.ts';
import type { Trace } from '../requests/trace.ts';
import { isServerGone, orUnavailable } from '../requests/unavailable.ts';
import { traceStatement } from '../telemetry/spans.ts';

/** Longest time a lookup of a key is cached if the notification of its change was lost. */
const apiKeyCacheMs = 10_000;
/** Maximum keys cached. The least recently used are evicted. */
const apiKeyCacheSize = 10_000;
/** Waiting lookups share a query: a flood of unknown keys costs a few queries, not one for each key. */
const maxBatchSize = 256;
/**
 * Queries in flight for each format, together a fifth of the default pool. The old format has only one,
 * because anybody can make up such a key, and it must be looked up.
 */
const lookupSlots = { crc32: 1, keyed: 2 } as const satisfies Record<ApiKeyFormat, number>;

type KnownKey = { identity: Identity; expiresAtMs: number; revoked: boolean };

interface ApiKeysOptions {
  /** Longest time that a lookup waits, even while the database fails over. */
  maxWaitMs?: number;
  /** Called for each lookup, with whether its result was cached. */
  onLookup?: (remembered: boolean) => void;
}

type Lookup = { apiKey: string; trace: Trace | undefined };

/** Looks keys up by their keyed hash, under every pepper in the ring. */
export function createApiKeys(
  em: EntityManager,
  peppers: KeyRing,
  { maxWaitMs = usualWaits.maxWaitMs, onLookup }: ApiKeysOptions = {},
) {
  let generation = 0;
  const known = new LRUCache<string, KnownKey>({ max: apiKeyCacheSize, ttl: apiKeyCacheMs });
  // Separate, so that a flood of unknown keys does not evict known ones.
  const unknown = new LRUCache<string, true>({ max: apiKeyCacheSize, ttl: apiKeyCacheMs });
  /** Lookups in flight, shared by callers with the same key. */
  const lookups = new Map<string, Promise<KnownKey | undefined>>();

  const run = (batch: readonly Lookup[]) => {
    const find = () => findKeys(em, peppers, batch);
    return orUnavailable(() => traceStatement({ operation: 'SELECT', table: 'api_keys' }, batch, find));
  };
  const createBatcher = (slots: number) =>
    new Batcher({ maxBatchSize, maxWaitMs, slots, isHeldAfter: isServerGone, run });
  const batchers = { crc32: createBatcher(lookupSlots.crc32), keyed: createBatcher(lookupSlots.keyed) };

  const lookUp = (cacheKey: string, format: ApiKeyFormat, lookup: Lookup): Promise<KnownKey | undefined> => {
    const running = lookups.get(cacheKey);
    if (running !== undefined) return running;
    const startedIn = generation;
    const result = batchers[format].add(lookup).then((found) => {
      // A result read before a change must not be cached after it.
      if (generation !== startedIn) return found;
      if (found === undefined) unknown.set(cacheKey, true);
      else known.set(cacheKey, found);
      return found;
    });
    lookups.set(cacheKey, result);
    const done = () => {
      if (lookups.get(cacheKey) === result) lookups.delete(cacheKey);
    };
    result.then(done, done);
    return result;
  };

  return {
    /**
     * Returns a key's identity; undefined if it is malformed, unknown, revoked or expired; a promise if that
     * needs a query. A key with wrong check characters costs no query. For a key that only the service can
     * have issued, `onIssuedKey` is called before the query. Throws `unavailable` if the database cannot be
     * queried or too many lookups wait. Old-format keys, which anybody can make up, have their own queue.
     */
    identify(
      apiKey: string,
      request?: Pick<RequestContext, 'trace' | 'onIssuedKey'>,
    ): Identity | undefined | Promise<Identity | undefined> {
      // A digest, so that no key stays in memory and the time of a comparison tells nothing about a key.
      const cacheKey = hash('sha256', apiKey, 'base64');
      const key = known.get(cacheKey);
      if (key !== undefined || unknown.has(cacheKey)) {
        onLookup?.(true);
        return identityOf(key);
      }
      const format = apiKeyFormatOf(apiKey, peppers);
      if (format === undefined) return undefined;
      onLookup?.(false);
      if (format === 'keyed') request?.onIssuedKey?.();
      return lookUp(cacheKey, format, { apiKey, trace: request?.trace }).then(identityOf);
    },
    /** Drops cached results and lookups in flight. Call it when a key, a wallet or a merchant has changed. */
    forget(): void {
      generation++;
      known.clear();
      unknown.clear();
      lookups.clear();
    },
    /** Refuses lookups that still wait after this time, because the process is stopping. */
    endWithin(ms: number): void {
      for (const batcher of Object.values(batchers)) batcher.endWithin(ms);
    },
  };
}

function identityOf(key: KnownKey | undefined): Identity | undefined {
  if (key === undefined || key.revoked || key.expiresAtMs <= Date.now()) return undefined;
  return key.identity;
}

/** Finds keys, and their merchants' wallets for every request, in one query. Unknown keys are undefined. */
async function findKeys(em: EntityManager, peppers: KeyRing, lookups: readonly Lookup[]) {
  const hashes = lookups.map(({ apiKey }) =>
    peppers.versions.map((version) => peppers.hmac(version, apiKey, 'hex')),
  );
  const pool: Pool = await em.getConnection().getNativeClient();
  const { rows } = await pool.query<KeyRow>(
    `select encode(k.key_hash, 'hex') as key_hash, k.id, k.merchant_id, k.mode, k.expires_at, k.revoked_at,
            w.chain, w.address
       from unnest($1::text[], $2::smallint[]) as wanted (key_hash, pepper_version)
       join api_keys k on k.key_hash = decode(wanted.key_hash, 'hex') and k.pepper_version = wanted.pepper_version
       left join payout_wallets w on w.merchant_id = k.merchant_id and w.mode = k.mode`,
    [hashes.flat(), hashes.flatMap(() => peppers.versions)],
  );
  const found = Map.groupBy(rows, ({ key_hash }) => key_hash);
  return hashes.map((keyHashes) => {
    const rowsOfKey = keyHashes.flatMap((keyHash) => found.get(keyHash) ?? []);
    return rowsOfKey.length === 0 ? undefined : knownKeyOf(rowsOfKey as [KeyRow, ...KeyRow[]]);
  });
}

/** A key from its rows, one for each wallet. */
function knownKeyOf(rows: readonly [KeyRow, ...KeyRow[]]): KnownKey {
  const [row] = rows;
  const payoutWallets: Partial<Record<ChainName, WalletAddress>> = {};
  for (const { chain, address } of rows) if (chain !== null) payoutWallets[chain] = checksum(address);
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
  /** Hexadecimal. */
  key_hash: string;
  id: string;
  merchant_id: string;
  mode: ModeName;
  expires_at: Date | string | null;
  revoked_at: Date | string | null;
  chain: ChainName | null;
  address: WalletAddress;
}

/** Finds a merchant in a mode by its UUID: an identity without the caller's id; undefined if none. */
export type FindMerchant = (id: string, mode: ModeName) => Promise<Omit<Identity, 'keyTypeId'> | undefined>;

export function createFindMerchant(em: EntityManager): FindMerchant {
  const { run } = createPreparedStatements(em);
  return async (id, mode) => {
    const { rows } = await orUnavailable(() => run(find, [id, mode]));
    if (rows.length === 0) return undefined;
    const wallets = rows.filter(({ chain }) => chain !== null);
    return {
      merchantId: id,
      merchantTypeId: formatIdentifier('mer', id),
      mode,
      payoutWallets: Object.fromEntries(wallets.map(({ chain, address }) => [chain, checksum(address)])),
    };
  };
}

const find = preparedStatement(
  'find_merchant_with_wallets',
  `select w.chain, w.address from merchants m
     left join payout_wallets w on w.merchant_id = m.id and w.mode = $2
    where m.id = $1`,
);

const base62 = '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz';
/** 62^43 is the first power of 62 beyond 2^256. */
const secretLength = 43;
const checkLength = 6;
const checkValues = 62 ** checkLength;
const shape = /^(?:sk_testnet|sk_mainnet|cl|cs|ct)_[0-9A-Za-z]{43}[0-9A-Za-z]{6}$/;

/** The beginning of a secret: of an API key, or of a code, a token or a ticket of the console. */
type SecretPrefix = `sk_${ModeName}_` | 'cl_' | 'cs_' | 'ct_';

/**
 * Returns a new secret: its prefix, 43 random base62 characters (256 bits), and 6 base62 check characters: a
 * truncated HMAC-SHA256 of all that under the newest pepper. A mistyped or invented one costs no query.
 */
export function generateSecret(prefix: SecretPrefix, peppers: KeyRing): string {
  const body =
    prefix + Array.from({ length: secretLength }, () => base62.charAt(randomInt(base62.length))).join('');
  return body + inBase62(keyedCheck(body, peppers, peppers.newestVersion));
}

/**
 * Returns the format of a secret if its check characters are right under any pepper in the ring; undefined
 * otherwise. The secret may be unknown. Compares with every pepper, in constant time.
 */
export function apiKeyFormatOf(text: string, peppers: KeyRing): ApiKeyFormat | undefined {
  if (!shape.test(text)) return undefined;
  const body = text.slice(0, -checkLength);
  const check = Buffer.from(text.slice(-checkLength));
  const isCheck = (value: number) => timingSafeEqual(check, Buffer.from(inBase62(value)));
  const matching = peppers.versions.filter((version) => isCheck(keyedCheck(body, peppers, version)));
  if (matching.length > 0) return 'keyed';
  return isCheck(crc32(body)) ? 'crc32' : undefined;
}

/** True if only the service can have made this secret of the console. It may be unknown all the same. */
export const mayBeIssued = (prefix: SecretPrefix, text: string, peppers: KeyRing): boolean =>
  text.startsWith(prefix) && apiKeyFormatOf(text, peppers) === 'keyed';

/** Returns the part of a key that may be shown: its prefix and its last four characters. */
export function apiKeyHint(apiKey: string): string {
  return `${apiKey.slice(0, 'sk_testnet_'.length)}…${apiKey.slice(-4)}`;
}

/** An integer below 62^6. */
function keyedCheck(body: string, peppers: KeyRing, version: number): number {
  // 48 bits are exact in a double and well beyond the 36 of six characters.
  const first48Bits = Number.parseInt(peppers.hmac(version, `api-key-check:${body}`, 'hex').slice(0, 12), 16);
  return first48Bits % checkValues;
}

/** Six base62 digits of an integer below 62^6. */
function inBase62(value: number): string {
  let rest = value;
  let digits = '';
  for (let i = 0; i < checkLength; i++) {
    digits = base62.charAt(rest % 62) + digits;
    rest = Math.floor(rest / 62);
  }
  return digits;
}
