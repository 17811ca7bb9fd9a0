// Rows and answers of the release that could only create intents, kept in support/golden-answers.json: what it wrote on
// 2026-11-22, with the keys of the file. A merchant that retries an order of those days gets the same bytes.

import grpc from '@grpc/grpc-js';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { parseIdentifier } from '../src/database/identifiers.ts';
import { grpcCall, openGrpcClient } from './support/call.ts';
import golden from './support/golden-answers.json' with { type: 'json' };
import { postJson, startService, type TestService } from './support/service.ts';

const { clientSecretKeys, apiKeyPeppers, apiKeys, rows, answers } = golden;
type Golden = (typeof answers)[number];
const apiKeyOf = ({ mode }: Golden) => apiKeys[mode as 'testnet' | 'mainnet'];
const cases = answers.map((each): [string, Golden] => [each.name, each]);

const anotherKey = `3:${Buffer.from('a client secret key of a later day').toString('base64')}`;

describe.each([
  ['the same keys', clientSecretKeys],
  ['a newer key for client secrets', `${anotherKey},${clientSecretKeys}`],
])('with %s', (_, secretKeys) => {
  let service: TestService;
  let client: grpc.Client;

  beforeAll(async () => {
    service = await startService(
      // These intents are overdue, and stay as they are.
      { ROLES: 'api' },
      { secrets: { CLIENT_SECRET_KEYS: secretKeys, API_KEY_PEPPERS: apiKeyPeppers } },
    );
    for (const row of rows) await service.query(row);
    client = openGrpcClient(service);
  });

  afterEach(() => {
    expect(service.log.filter(({ level }) => level === 'error' || level === 'warn')).toEqual([]);
  });

  afterAll(async () => {
    client.close();
    await service.close();
  });

  const replayOverHttp = (each: Golden) =>
    postJson(`${service.publicUrl}/v1/payment_intents`, apiKeyOf(each), each.body, {
      headers: { 'idempotency-key': each.idempotencyKey },
    });

  const replayOverGrpc = (each: Golden) => {
    const metadata = new grpc.Metadata();
    metadata.set('authorization', `Bearer ${apiKeyOf(each)}`);
    metadata.set('idempotency-key', each.idempotencyKey);
    return grpcCall(client, Buffer.from(each.grpcRequest, 'base64'), metadata);
  };

  const assertReplays = async (each: Golden) => {
    const overHttp = await replayOverHttp(each);
    expect([overHttp.status, overHttp.headers['idempotent-replayed']]).toEqual([201, 'true']);
    expect(overHttp.body).toBe(each.answer);
    const overGrpc = await replayOverGrpc(each);
    expect(overGrpc.error).toBeUndefined();
    expect(overGrpc.metadata.get('idempotent-replayed')).toEqual(['true']);
    expect(overGrpc.bytes?.toString('base64')).toBe(each.grpcAnswer);
  };

  test.each(cases)('%s: a retry returns the same bytes through each door', async (__, each) => {
    await assertReplays(each);
  });

  test('a retry returns the same bytes whatever has happened to the intents since', async () => {
    for (const [i, each] of answers.entries()) {
      const { id } = JSON.parse(each.answer);
      const status = ['processing', 'succeeded', 'expired', 'canceled'][i % 4];
      await service.query(
        `update payment_intents
            set status = $2, amount_received_units = 1, payments_count = 2, event_count = 3,
                labels = '{underpaid}', succeeded_at = now(), canceled_at = now(), expired_at = now()
          where id = $1`,
        [parseIdentifier('pi', id), status],
      );
      await assertReplays(each);
      expect((await service.call('getPaymentIntent', { id }, { apiKey: apiKeyOf(each) })).json.status).toBe(
        status,
      );
    }
    const [count] = await service.query<{ count: string }>('select count(*) from payment_intents');
    expect(count).toEqual({ count: String(answers.length) });
  });
});
