// An operator's tasks: merchants, their payout wallets and their API keys.

import { type EntityManager, LockMode } from '@mikro-orm/postgresql';
import type { KeyRing } from '../config/key-ring.ts';
import type { WalletAddress } from '../contract/wallet-address.ts';
import type { ChainName, ModeName } from '../contract/words.ts';
import { type ApiKey, ApiKeyEntity } from '../database/entities/api-key.ts';
import { CheckoutSettingsEntity, MerchantEntity, PayoutWalletEntity } from '../database/entities/merchant.ts';
import { formatIdentifier, newUuid, parseIdentifier } from '../database/identifiers.ts';
import { apiKeyHint, generateSecret } from './api-keys.ts';
import { AdministrationError, assertName, noneWith, uuidOf } from './operator-ids.ts';

export type Wallets = Partial<Record<ChainName, WalletAddress>>;

export type ApiKeySummary = ReturnType<typeof summarize>;

/** The whole key is only ever returned when it is new. */
export type NewApiKey = ApiKeySummary & { apiKey: string };

/** In characters. */
const maxMerchantNameLength = 200;

/** Creates a merchant who is paid to these wallets in that mode. Returns the merchant's id. */
export async function createMerchant(em: EntityManager, name: string, mode: ModeName, wallets: Wallets) {
  assertName('merchant', name, maxMerchantNameLength);
  const id = newUuid();
  await em.fork().transactional(async (tx) => {
    await tx.insert(MerchantEntity, { id, name, createdAt: new Date() });
    await upsertWallets(tx, id, mode, wallets);
  });
  return formatIdentifier('mer', id);
}

export async function listMerchants(em: EntityManager) {
  const fork = em.fork();
  const merchants = await fork.findAll(MerchantEntity, { orderBy: { id: 'asc' } });
  const wallets = await fork.findAll(PayoutWalletEntity, { orderBy: { mode: 'desc', chain: 'asc' } });
  const walletsOf = Map.groupBy(wallets, ({ merchantId }) => merchantId);
  return merchants.map(({ id, name, createdAt }) => ({
    merchantId: formatIdentifier('mer', id),
    name,
    createdAt,
    wallets: (walletsOf.get(id) ?? []).map(({ mode, chain, address }) => ({ mode, chain, address })),
  }));
}

/** Changes where a merchant is paid from now on. Existing intents keep the wallet of their creation. */
export async function setWallets(em: EntityManager, merchantId: string, mode: ModeName, wallets: Wallets) {
  const id = await findMerchant(em, merchantId);
  await em.fork().transactional((tx) => upsertWallets(tx, id, mode, wallets));
}

/** Replaces the allowed origins of a merchant's pages. Returns them as browsers write them. */
export async function setOrigins(
  em: EntityManager,
  merchantId: string,
  mode: ModeName,
  origins: readonly string[],
): Promise<string[]> {
  const id = await findMerchant(em, merchantId);
  const allowedOrigins = [...new Set(origins.map(originOf))];
  if (allowedOrigins.length > maxOrigins) {
    throw new AdministrationError(`a merchant has at most ${maxOrigins} origins in each mode`);
  }
  const updatedAt = new Date();
  await em.fork().upsert(CheckoutSettingsEntity, { merchantId: id, mode, allowedOrigins, updatedAt });
  return allowedOrigins;
}

/** Few, because each checkout page gets all of them every few seconds. */
const maxOrigins = 20;

/** Hosts whose pages are on the reader's own machine, which need no https. */
const loopbackHosts: ReadonlySet<string> = new Set(['localhost', '127.0.0.1', '[::1]']);

/** Parses an origin, and returns it as browsers write it. */
function originOf(text: string): string {
  const url = URL.parse(text);
  const isSafe = url?.protocol === 'https:' || (url?.protocol === 'http:' && loopbackHosts.has(url.hostname));
  // Only a scheme, a host and a port, with or without a trailing slash.
  if (url === null || !isSafe || url.href !== `${url.origin}/` || url.host.includes('*')) {
    throw new AdministrationError(
      `"${text}" is not an origin: it is https:// and a host, such as https://shop.example, or http:// and localhost`,
    );
  }
  return url.origin;
}

/** Returns a merchant's wallets in that mode; a chain without a wallet is left out. */
export async function findWallets(em: EntityManager, merchantId: string, mode: ModeName): Promise<Wallets> {
  const id = await findMerchant(em, merchantId);
  const rows = await em.fork().find(PayoutWalletEntity, { merchantId: id, mode });
  return Object.fromEntries(rows.map(({ chain, address }) => [chain, address]));
}

/** Issues a key. `expiresAt` undefined: it does not expire. */
export async function createApiKey(
  em: EntityManager,
  peppers: KeyRing,
  merchantId: string,
  mode: ModeName,
  expiresAt?: Date,
): Promise<NewApiKey> {
  return insertKey(em.fork(), peppers, await findMerchant(em, merchantId), mode, expiresAt);
}

export async function listApiKeys(em: EntityManager, merchantId: string): Promise<ApiKeySummary[]> {
  const id = await findMerchant(em, merchantId);
  const keys = await em.fork().find(ApiKeyEntity, { merchantId: id }, { orderBy: { id: 'asc' } });
  return keys.map(summarize);
}

export async function findApiKey(em: EntityManager, keyId: string): Promise<ApiKeySummary> {
  return summarize(await getKey(em.fork(), keyId));
}

/** Refuses the key from this moment on, on every process. A revoked key stays revoked. */
export async function revokeApiKey(em: EntityManager, keyId: string): Promise<ApiKeySummary> {
  return em.fork().transactional(async (tx) => {
    const key = await getKey(tx, keyId, LockMode.PESSIMISTIC_WRITE);
    key.revokedAt ??= new Date();
    return summarize(key);
  });
}

/** Issues a successor that expires at `expiresAt` or never. The old key is kept for at most `overlapMs`. */
export async function rotateApiKey(
  em: EntityManager,
  peppers: KeyRing,
  keyId: string,
  overlapMs: number,
  expiresAt: Date | undefined,
): Promise<NewApiKey> {
  return em.fork().transactional(async (tx) => {
    const old = await getKey(tx, keyId, LockMode.PESSIMISTIC_WRITE);
    if (old.revokedAt) throw new AdministrationError(`${keyId} is revoked: create a new key instead`);
    const end = new Date(Date.now() + overlapMs);
    if (old.expiresAt && old.expiresAt <= new Date()) {
      throw new AdministrationError(`${keyId} has expired: create a new key instead`);
    }
    // A key that expires sooner keeps its expiry.
    if (!old.expiresAt || old.expiresAt > end) old.expiresAt = end;
    return insertKey(tx, peppers, old.merchantId, old.mode, expiresAt);
  });
}

export async function merchantExists(em: EntityManager, merchantId: string): Promise<boolean> {
  const id = parseIdentifier('mer', merchantId);
  return id !== undefined && (await em.fork().count(MerchantEntity, { id })) > 0;
}

/** Returns the UUID of a merchant. Throws AdministrationError if there is none with that id. */
export async function findMerchant(em: EntityManager, merchantId: string): Promise<string> {
  const id = uuidOf('mer', merchantId);
  if (await merchantExists(em, merchantId)) return id;
  throw noneWith('mer', merchantId);
}

async function getKey(em: EntityManager, keyId: string, lockMode?: LockMode): Promise<ApiKey> {
  const id = uuidOf('key', keyId);
  const key = await em.findOne(ApiKeyEntity, { id }, lockMode === undefined ? {} : { lockMode });
  if (key === null) throw noneWith('key', keyId);
  return key;
}

async function insertKey(
  em: EntityManager,
  peppers: KeyRing,
  merchantId: string,
  mode: ModeName,
  expiresAt: Date | undefined,
): Promise<NewApiKey> {
  const apiKey = generateSecret(`sk_${mode}_`, peppers);
  const key: ApiKey = {
    id: newUuid(),
    merchantId,
    mode,
    pepperVersion: peppers.newestVersion,
    keyHash: Buffer.from(peppers.hmac(peppers.newestVersion, apiKey, 'hex'), 'hex'),
    format: 'keyed',
    hint: apiKeyHint(apiKey),
    createdAt: new Date(),
    expiresAt: expiresAt ?? null,
    revokedAt: null,
  };
  await em.insert(ApiKeyEntity, key);
  return { ...summarize(key), apiKey };
}

async function upsertWallets(tx: EntityManager, merchantId: string, mode: ModeName, wallets: Wallets) {
  const updatedAt = new Date();
  for (const [name, address] of Object.entries(wallets)) {
    const own = { merchantId, mode, chain: name as ChainName };
    // The same address keeps its `updatedAt`: the merchant has been paid there since then.
    const isSame = (await tx.count(PayoutWalletEntity, { ...own, address })) > 0;
    if (!isSame) await tx.upsert(PayoutWalletEntity, { ...own, address, updatedAt });
  }
}

function summarize(key: ApiKey) {
  return {
    keyId: formatIdentifier('key', key.id),
    merchantId: formatIdentifier('mer', key.merchantId),
    mode: key.mode,
    hint: key.hint,
    /** `crc32`: of the first release, to be rotated when convenient. */
    format: key.format,
    status: statusOf(key),
    createdAt: key.createdAt,
    expiresAt: key.expiresAt ?? undefined,
    revokedAt: key.revokedAt ?? undefined,
  };
}

function statusOf({ revokedAt, expiresAt }: ApiKey): 'active' | 'expiring' | 'expired' | 'revoked' {
  if (revokedAt) return 'revoked';
  if (expiresAt == null) return 'active';
  return expiresAt.getTime() <= Date.now() ? 'expired' : 'expiring';
}
