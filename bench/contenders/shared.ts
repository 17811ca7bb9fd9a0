// Shared by the hand-written contenders: the same work as ours, done directly.

import { createHash, createHmac, createSecretKey, randomBytes } from 'node:crypto';
import pg from 'pg';
import { fromString, fromUUID, toUUID } from 'typeid-js';
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
const pool = new pg.Pool({
  host: env('PGHOST'),
  user: env('PGUSER'),
  database: env('PGDATABASE'),
  max: 16,
  // Connections are kept while other servers are measured.
  idleTimeoutMillis: 0,
});
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

export interface Merchant {
  merchantId: string;
  wallet: string;
}

export function authenticate(authorization: string | undefined): Merchant | undefined {
  if (authorization?.startsWith('Bearer ') !== true) return undefined;
  return keys.get(createHash('sha256').update(authorization.slice(7)).digest('base64'));
}

const columns =
  'id, merchant_id, mode, status, chain, chain_id, confirmations_required, amount_units, decimals, token_symbol, token_address, expected_wallet, lane, metadata, expires_in_minutes, created_at, expires_at, client_secret_version';
const insert = {
  name: 'insert',
  text: `insert into payment_intents (${columns}) values ($1, $2, 'testnet', 'requires_payment', $3, $4, $5, $6, 6, 'USDC', $7, $8, $9, $10, $11, $12, $13, 1)`,
};

/** Writes one durable row and returns the fields that the contract requires. */
export async function createIntent(create: Create, merchant: Merchant) {
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
    client_secret: clientSecretOf(id),
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

function clientSecretOf(id: string): string {
  return `${id}_secret_${createHmac('sha256', secretKey).update(id).digest('base64url')}`;
}

/** A row as `pg` reads it: bigint as text, timestamps as Date, JSON as an object. */
interface Row {
  id: string;
  status: string;
  mode: string;
  chain: string;
  chain_id: number;
  confirmations_required: number;
  amount_units: string;
  decimals: number;
  token_symbol: string;
  token_address: string;
  expected_wallet: string;
  lane: string;
  metadata: object;
  expires_in_minutes: number;
  created_at: Date;
  expires_at: Date;
  amount_received_units: string;
  payments_count: number;
  amount_refunded_units: string;
  labels: string[] | null;
  succeeded_at: Date | null;
  canceled_at: Date | null;
  expired_at: Date | null;
}

const readColumns = `${columns}, amount_received_units, payments_count, amount_refunded_units, labels, succeeded_at, canceled_at, expired_at`;

const find = {
  name: 'find',
  text: `select ${readColumns} from payment_intents where id = $1 and merchant_id = $2 and mode = 'testnet'`,
};
const listFirst = {
  name: 'list_first',
  text: `select ${readColumns} from payment_intents where merchant_id = $1 and mode = 'testnet' order by id desc limit $2`,
};
const listBelow = {
  name: 'list_below',
  text: `select ${readColumns} from payment_intents where merchant_id = $1 and mode = 'testnet' and id < $3 order by id desc limit $2`,
};
const cancel = {
  name: 'cancel',
  text: `update payment_intents set status = 'canceled', canceled_at = $3
          where id = $1 and merchant_id = $2 and mode = 'testnet' and status = 'requires_payment' returning ${readColumns}`,
};
const insertEvent = {
  name: 'insert_event',
  text: `insert into events (id, merchant_id, mode, type, payment_intent, created_at, data)
         values ($1, $2, 'testnet', 'payment_intent.canceled', $3, $4, $5)`,
};

/** Returns an intent with its client secret, or undefined if the merchant has none with that id. */
export async function findIntent(id: string, { merchantId }: Merchant) {
  const uuid = uuidOf(id);
  if (uuid === undefined) return undefined;
  const { rows } = await pool.query<Row>({ ...find, values: [uuid, merchantId] });
  return rows[0] && withSecret(rows[0]);
}

/** Returns a page of intents, newest first, below an id. */
export async function listIntents({ merchantId }: Merchant, limit: number, below: string | undefined) {
  const { rows } = await pool.query<Row>(
    below === undefined
      ? { ...listFirst, values: [merchantId, limit + 1] }
      : { ...listBelow, values: [merchantId, limit + 1, uuidOf(below)] },
  );
  const page = rows.slice(0, limit).map((row) => present(row));
  return {
    payment_intents: page,
    ...(rows.length > limit && { next_page_token: page.at(-1)?.id }),
  };
}

/** Cancels an intent and records the event, or returns undefined if it cannot be canceled. */
export async function cancelIntent(id: string, { merchantId }: Merchant) {
  const uuid = uuidOf(id);
  if (uuid === undefined) return undefined;
  const at = new Date();
  const client = await pool.connect();
  try {
    await client.query('begin');
    const { rows } = await client.query<Row>({ ...cancel, values: [uuid, merchantId, at] });
    const [row] = rows;
    if (row === undefined) {
      await client.query('rollback');
      return undefined;
    }
    const data = JSON.stringify({ payment_intent: present(row) });
    await client.query({ ...insertEvent, values: [uuidv7(), merchantId, uuid, at, data] });
    await client.query('commit');
    client.release();
    return withSecret(row);
  } catch (error) {
    client.release(true);
    throw error;
  }
}

function uuidOf(id: string): string | undefined {
  try {
    return toUUID(fromString(id, 'pi'));
  } catch {
    return undefined;
  }
}

function present(row: Row) {
  return {
    id: fromUUID(row.id, 'pi'),
    status: row.status,
    mode: row.mode,
    chain: row.chain,
    chain_id: row.chain_id,
    confirmations_required: row.confirmations_required,
    amount_units: Number(row.amount_units),
    decimals: row.decimals,
    token_symbol: row.token_symbol,
    token_address: row.token_address,
    expected_wallet: row.expected_wallet,
    expires_at: row.expires_at.toISOString(),
    expires_in_minutes: row.expires_in_minutes,
    lane: row.lane,
    metadata: row.metadata,
    created_at: row.created_at.toISOString(),
    amount_received_units: Number(row.amount_received_units),
    payments_count: row.payments_count,
    ...(row.labels && { labels: row.labels }),
    ...(row.succeeded_at && { succeeded_at: row.succeeded_at.toISOString() }),
    ...(row.canceled_at && { canceled_at: row.canceled_at.toISOString() }),
    ...(row.expired_at && { expired_at: row.expired_at.toISOString() }),
    amount_refunded_units: Number(row.amount_refunded_units),
  };
}

function withSecret(row: Row) {
  const intent = present(row);
  return { ...intent, client_secret: clientSecretOf(intent.id) };
}
