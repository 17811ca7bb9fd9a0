// Shared code of the hand-written contenders: the same work as ours, done directly.

import { createHash, createHmac, createSecretKey, randomBytes } from 'node:crypto';
import pg from 'pg';
import { fromUUID } from 'typeid-js';
import { v7 as uuidv7 } from 'uuid';

export interface Create {
  amountUnits: number;
  chain: 'base' | 'polygon';
  lane: 'sdk' | 'manual';
  expiresInMinutes: number;
  metadata: object;
}

const env = (name: string): string => {
  const value = process.env[name];
  if (value === undefined) throw new Error(`${name} is missing: start contenders by "npm run bench"`);
  return value;
};

export const port = Number(env('PORT'));
const pool = new pg.Pool({ host: env('PGHOST'), user: env('PGUSER'), database: env('PGDATABASE'), max: 16 });
const secretKey = createSecretKey(randomBytes(32));

const usdc = {
  base: { id: 84532, token: '0x036CbD53842c5426634e7929541eC2318f3dCF7e', confirmations: 10 },
  polygon: { id: 80002, token: '0x41E94Eb019C0762f9Bfcf9Fb1E58725BfB0e7582', confirmations: 12 },
};

/** Keys by their hash, like a cache after the first request. */
const keys = new Map([
  [
    createHash('sha256').update(env('API_KEY')).digest('base64'),
    { merchantId: env('MERCHANT_ID'), wallet: `0x${'1'.repeat(40)}` },
  ],
]);

export function authenticate(authorization: string | undefined) {
  if (authorization?.startsWith('Bearer ') !== true) return undefined;
  return keys.get(createHash('sha256').update(authorization.slice(7)).digest('base64'));
}

const columns =
  'id, merchant_id, mode, status, chain, chain_id, confirmations_required, amount_units, decimals, token_symbol, token_address, expected_wallet, lane, metadata, expires_in_minutes, created_at, expires_at, client_secret_version';
const insert = {
  name: 'insert',
  text: `insert into payment_intents (${columns}) values ($1, $2, 'testnet', 'requires_payment', $3, $4, $5, $6, 6, 'USDC', $7, $8, $9, $10, $11, $12, $13, 1)`,
};

/** Writes one durable row and returns the fields that the specification requires. */
export async function createIntent(create: Create, merchant: { merchantId: string; wallet: string }) {
  const uuid = uuidv7();
  const id = fromUUID(uuid, 'pi');
  const facts = usdc[create.chain];
  const createdAt = new Date();
  const expiresInMinutes = Math.min(60, Math.max(5, create.expiresInMinutes));
  const expiresAt = new Date(createdAt.getTime() + expiresInMinutes * 60_000);
  await pool.query({
    ...insert,
    values: [
      uuid,
      merchant.merchantId,
      create.chain,
      facts.id,
      facts.confirmations,
      create.amountUnits,
      facts.token,
      merchant.wallet,
      create.lane,
      JSON.stringify(create.metadata),
      expiresInMinutes,
      createdAt,
      expiresAt,
    ],
  });
  return {
    id,
    status: 'requires_payment',
    client_secret: `${id}_secret_${createHmac('sha256', secretKey).update(id).digest('base64url')}`,
    mode: 'testnet',
    chain: create.chain,
    chain_id: facts.id,
    confirmations_required: facts.confirmations,
    amount_units: create.amountUnits,
    decimals: 6,
    token_symbol: 'USDC',
    token_address: facts.token,
    expected_wallet: merchant.wallet,
    expires_at: expiresAt.toISOString(),
    expires_in_minutes: expiresInMinutes,
    lane: create.lane,
    metadata: create.metadata,
  };
}
