// Fastify 5 with a schema for the request and one for the response, and `pg` with a prepared insert.

import Fastify from 'fastify';
import { authenticate, createIntent, port } from './shared.ts';

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
const response = {
  201: {
    type: 'object',
    properties: {
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
    },
  },
};

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
await app.listen({ port, host: '127.0.0.1' });
console.log('ready');
