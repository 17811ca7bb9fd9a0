// Fastify 5 with a schema for the request and one for the response, and `pg` with prepared statements.

import Fastify from 'fastify';
import { authenticate, cancelIntent, createIntent, findIntent, listIntents, port } from './shared.ts';

const body = {
  type: 'object',
  required: ['amount_units'],
  additionalProperties: false,
  properties: {
    amount_units: { type: 'integer', minimum: 1, maximum: 9007199254740991 },
    chain: { enum: ['base', 'polygon'], default: 'base' },
    wallet_address: { type: 'string', pattern: '^0x[0-9a-fA-F]{40}$' },
    expires_in_minutes: { type: 'integer', default: 30 },
    lane: { enum: ['sdk', 'manual'], default: 'sdk' },
    metadata: { type: 'object', maxProperties: 50, default: {} },
    token: { enum: ['USDC'], default: 'USDC' },
  },
} as const;

const text = { type: 'string' } as const;
const integer = { type: 'integer' } as const;
/** In the order in which they are written. */
const created = {
  ...{ id: text, status: text, client_secret: text, mode: text, chain: text, chain_id: integer },
  ...{ confirmations_required: integer, amount_units: integer, decimals: integer, token_symbol: text },
  ...{
    token_address: text,
    expected_wallet: text,
    expires_at: text,
    expires_in_minutes: integer,
    lane: text,
  },
  metadata: { type: 'object', additionalProperties: true },
} as const;
const intent = {
  type: 'object',
  properties: {
    ...created,
    ...{ created_at: text, amount_received_units: integer, payments_count: integer },
    labels: { type: 'array', items: text },
    ...{ succeeded_at: text, canceled_at: text, expired_at: text, amount_refunded_units: integer },
  },
} as const;
const response = { 201: { type: 'object', properties: created } };
const list = {
  querystring: {
    type: 'object',
    additionalProperties: false,
    properties: {
      limit: { type: 'integer', minimum: 1, maximum: 100, default: 20 },
      starting_after: { type: 'string', pattern: '^pi_[0-7][0-9a-hjkmnp-tv-z]{25}$' },
    },
  },
  response: {
    200: {
      type: 'object',
      properties: { payment_intents: { type: 'array', items: intent }, next_page_token: text },
    },
  },
} as const;

interface Body {
  amount_units: number;
  chain: 'base' | 'polygon';
  lane: 'sdk' | 'manual';
  expires_in_minutes: number;
  metadata: object;
}

const app = Fastify();
app.post<{ Body: Body }>('/v1/payment_intents', { schema: { body, response } }, async (request, reply) => {
  const merchant = authenticate(request.headers.authorization);
  if (merchant === undefined) return reply.code(401).send({ error: { code: 'api_key_invalid' } });
  const { amount_units, chain, lane, expires_in_minutes, metadata } = request.body;
  reply.code(201);
  return createIntent(
    { amountUnits: amount_units, chain, lane, expiresInMinutes: expires_in_minutes, metadata },
    merchant,
  );
});

app.get<{ Params: { id: string } }>(
  '/v1/payment_intents/:id',
  { schema: { response: { 200: intent } } },
  async (request, reply) => {
    const merchant = authenticate(request.headers.authorization);
    if (merchant === undefined) return reply.code(401).send({ error: { code: 'api_key_invalid' } });
    const found = await findIntent(request.params.id, merchant);
    return found ?? reply.code(404).send({ error: { code: 'resource_missing' } });
  },
);

app.get<{ Querystring: { limit: number; starting_after?: string } }>(
  '/v1/payment_intents',
  { schema: list },
  async (request, reply) => {
    const merchant = authenticate(request.headers.authorization);
    if (merchant === undefined) return reply.code(401).send({ error: { code: 'api_key_invalid' } });
    return listIntents(merchant, request.query.limit, request.query.starting_after);
  },
);

app.post<{ Params: { id: string } }>(
  '/v1/payment_intents/:id/cancel',
  { schema: { response: { 200: intent } } },
  async (request, reply) => {
    const merchant = authenticate(request.headers.authorization);
    if (merchant === undefined) return reply.code(401).send({ error: { code: 'api_key_invalid' } });
    const canceled = await cancelIntent(request.params.id, merchant);
    return canceled ?? reply.code(400).send({ error: { code: 'invalid_state' } });
  },
);

await app.listen({ port, host: '127.0.0.1' });
console.log('ready');
