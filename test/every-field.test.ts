// Each field of a create has an effect, in every way to send it. Driven by the contract's descriptor: a new
// field fails here until it has a sample.

import { randomUUID } from 'node:crypto';
import type { DescField } from '@bufbuild/protobuf';
import { describe, expect, test } from 'vitest';
import {
  type CreatePaymentIntent,
  createPaymentIntentsClient,
  PaymentIntentsError,
} from '../client/index.ts';
import { createPaymentIntentsClient as createJsonClient } from '../client/json.ts';
import { CreatePaymentIntentRequestSchema } from '../src/contract/gen/payments/v1/payment_intent_service_pb.ts';
import type { Door, Request } from './support/call.ts';
import { expectNoComplaints, useService } from './support/use-service.ts';

interface Sample {
  /** The first is not the field's default. */
  values: [unknown, unknown];
  /** The field of the answer that has the value, if it has another name. */
  answeredAs?: string;
}

const samples: Record<string, Sample> = {
  amount_units: { values: [12_500_000, 9_007_199_254_740_991] },
  chain: { values: ['polygon', 'base'] },
  wallet_address: {
    values: ['0xd8dA6BF26964aF9D7eEd9e03E53415D37aA96045', '0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed'],
    answeredAs: 'expected_wallet',
  },
  expires_in_minutes: { values: [45, 5] },
  lane: { values: ['manual', 'sdk'] },
  metadata: {
    values: [{ order_id: 'order-1001', nested: [1, null, { a: 'b' }] }, { order_id: 'order-1002' }],
  },
};

/** Fields with one possible value, which is the default: sending it has no visible effect. */
const withoutChoice: Record<string, unknown> = { token: 'USDC' };

/** What is sent besides the field. */
const base: Request = { amount_units: 1 };

interface Outcome {
  code: string;
  replayed: boolean;
  /** The answer's fields by their names in the contract. */
  intent: Record<string, unknown> | undefined;
}

type Create = (body: Request, idempotencyKey: string) => Promise<Outcome>;

const ways = [
  'JSON over HTTP',
  'gRPC',
  'the client over JSON',
  'the client over gRPC',
  'the client for edge runtimes',
] as const;

const service = await useService();

const { fields } = CreatePaymentIntentRequestSchema;
const snakeCase = (name: string) => name.replace(/[A-Z]/g, (c) => `_${c.toLowerCase()}`);

/** The request with the client's field names in place of the contract's. */
function clientCreate(body: Request): CreatePaymentIntent {
  const localNames = new Map(fields.map(({ name, localName }) => [name, localName]));
  const entries = Object.entries(body).map(([name, value]) => [localNames.get(name), value]);
  return Object.fromEntries(entries);
}

const overDoor =
  (door: Door): Create =>
  async (body, idempotencyKey) => {
    const answer = await service.call('createPaymentIntent', body, { door, idempotencyKey });
    const { code, replayed, json } = answer;
    return { code, replayed, intent: code === 'ok' ? { ...json } : undefined };
  };

const overClient =
  (client: ReturnType<typeof createPaymentIntentsClient>): Create =>
  async (body, idempotencyKey) => {
    try {
      const { replayed, ...intent } = await client.createPaymentIntent(clientCreate(body), {
        idempotencyKey,
      });
      const json = Object.entries(intent).map(([name, value]) => [
        snakeCase(name),
        value instanceof Date ? value.toISOString() : typeof value === 'bigint' ? Number(value) : value,
      ]);
      return { code: 'ok', replayed, intent: Object.fromEntries(json) };
    } catch (error) {
      if (!(error instanceof PaymentIntentsError)) throw error;
      return { code: error.code, replayed: false, intent: undefined };
    }
  };

const { apiKey } = service.merchant.keys.testnet;
const { publicUrl, internalUrl } = service;
const creates = {
  'JSON over HTTP': overDoor('json'),
  gRPC: overDoor('grpc'),
  'the client over JSON': overClient(createPaymentIntentsClient({ baseUrl: publicUrl, apiKey })),
  'the client over gRPC': overClient(
    createPaymentIntentsClient({ baseUrl: internalUrl, apiKey, protocol: 'grpc' }),
  ),
  'the client for edge runtimes': overClient(createJsonClient({ baseUrl: publicUrl, apiKey })),
};

expectNoComplaints(service);

test('every field has a sample, and nothing else has', () => {
  const names = fields.map(({ name }) => name).sort();
  expect([...Object.keys(samples), ...Object.keys(withoutChoice)].sort()).toEqual(names);
});

const chosen = fields.filter(({ name }) => !(name in withoutChoice));
const sampleOf = ({ name }: DescField): Sample => {
  const sample = samples[name];
  if (sample === undefined) throw new Error(`${name} has no sample value`);
  return sample;
};

describe.each(ways)('by %s', (way) => {
  test.each(chosen.map((field): [string, DescField] => [field.name, field]))(
    '%s: is returned, replayed, and part of the request that an idempotency key stands for',
    async (name, field) => {
      const { values, answeredAs = name } = sampleOf(field);
      const create = creates[way];
      const idempotencyKey = randomUUID();
      const [value, other] = values;

      const first = await create({ ...base, [name]: value }, idempotencyKey);
      expect(first).toMatchObject({ code: 'ok', replayed: false });
      expect(first.intent?.[answeredAs]).toEqual(value);

      // The default differs, or the sample would prove nothing.
      const plain = await create(base, randomUUID());
      expect(plain.intent?.[answeredAs]).not.toEqual(value);

      // Each way replays the same.
      for (const again of ways) {
        const replay = await creates[again]({ ...base, [name]: value }, idempotencyKey);
        expect([again, replay]).toEqual([again, { code: 'ok', replayed: true, intent: first.intent }]);
      }

      const { [name]: _, ...without } = { ...base, [name]: value } as Request;
      for (const changed of [{ ...base, [name]: other }, ...(name in base ? [] : [without])]) {
        const reused = await create(changed, idempotencyKey);
        expect([changed, reused.code]).toEqual([changed, 'idempotency_key_reused']);
      }
    },
  );

  test.each(Object.entries(withoutChoice))('%s: may be given, and changes nothing', async (name, value) => {
    const idempotencyKey = randomUUID();
    const first = await creates[way]({ ...base, [name]: value }, idempotencyKey);
    expect(first.code).toBe('ok');
    expect(await creates[way](base, idempotencyKey)).toEqual({ ...first, replayed: true });
  });
});
