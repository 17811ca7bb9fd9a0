// Payments on an unwatched chain would not be seen, so no mainnet intent is created for it.

import grpc from '@grpc/grpc-js';
import { describe, expect, test } from 'vitest';
import type { ChainName, ModeName } from '../src/contract/words.ts';
import { type Door, doors, type Request } from './support/call.ts';
import { postJson, startService, type TestService } from './support/service.ts';
import { insertWatchedChain } from './support/transfer-rows.ts';
import { useService } from './support/use-service.ts';

const amount_units = 12_500_000;

const watch = (service: TestService, mode: ModeName, chain: ChainName) =>
  insertWatchedChain(service, { mode, chain });

const unwatchAll = (service: TestService) => service.query('delete from watched_chains');

describe('on an unwatched mainnet chain', async () => {
  const service = await useService({ ALLOW_UNWATCHED: 'testnet' });

  const create = (door: Door, body: Request, idempotencyKey?: string, mode: ModeName = 'mainnet') =>
    service.call(
      'createPaymentIntent',
      { amount_units, ...body },
      {
        door,
        apiKey: service.merchant.keys[mode].apiKey,
        ...(idempotencyKey && { idempotencyKey }),
      },
    );

  /** Creates intents until the answer has this code. */
  const untilCreate = (code: string, body: Request) =>
    expect.poll(async () => (await create('json', body)).code, { timeout: 5_000, interval: 20 }).toBe(code);

  test.each([
    ['json', 409],
    ['grpc', grpc.status.FAILED_PRECONDITION],
  ] as const)('over %s the intent is refused, and the log names the variable', async (door, status) => {
    const answer = await create(door, { chain: 'polygon' }, `refused-${door}`);
    expect(answer).toMatchObject({
      code: 'chain_unwatched',
      status,
      details: [{ field: 'chain', message: 'cannot be polygon: it is not watched in mainnet now' }],
    });
    const line = await service.loggedLine(({ request_id }) => request_id === answer.requestId);
    expect(line).toMatchObject({
      level: 'warn',
      code: 'chain_unwatched',
      reason: expect.stringMatching(/RPC_URL_POLYGON .*ALLOW_UNWATCHED/),
    });
    expect(await service.query('select from payment_intents')).toEqual([]);
  });

  test('the refusal has no Retry-After', async () => {
    const { apiKey } = service.merchant.keys.mainnet;
    const url = `${service.publicUrl}/v1/payment_intents`;
    const { status, headers } = await postJson(url, apiKey, JSON.stringify({ amount_units }));
    expect([status, headers['retry-after']]).toEqual([409, undefined]);
  });

  test('a testnet intent is created', async () => {
    expect((await create('json', {}, undefined, 'testnet')).code).toBe('ok');
  });

  test('a chain is allowed exactly while its row exists', async () => {
    await watch(service, 'mainnet', 'base');
    await untilCreate('ok', { chain: 'base' });
    expect((await create('grpc', { chain: 'base' })).code).toBe('ok');
    expect((await create('json', { chain: 'polygon' })).code).toBe('chain_unwatched');
    await unwatchAll(service);
    await untilCreate('chain_unwatched', { chain: 'base' });
  });

  test.each(doors)('over %s a replay is answered whether or not the chain is watched', async (door) => {
    await watch(service, 'mainnet', 'base');
    await untilCreate('ok', {});
    const key = `order-${door}`;
    const first = await create(door, {}, key);
    await unwatchAll(service);
    await untilCreate('chain_unwatched', {});
    expect(await create(door, {}, key)).toMatchObject({
      code: 'ok',
      replayed: true,
      json: { id: first.json.id, client_secret: first.json.client_secret },
    });
    expect((await create(door, { amount_units: 1 }, key)).code).toBe('idempotency_key_reused');
    expect((await create(door, {}, `${key}/2`)).code).toBe('chain_unwatched');
    // In the other mode it is a different key.
    expect((await create(door, {}, key, 'testnet')).replayed).toBe(false);
  });

  test('a create makes no query about the chain', async () => {
    await watch(service, 'mainnet', 'base');
    await untilCreate('ok', {});
    await service.query('alter table watched_chains rename to elsewhere');
    const answers = await Promise.all([create('json', {}), create('grpc', { chain: 'polygon' })]);
    await service.query('alter table elsewhere rename to watched_chains');
    expect(answers.map(({ code }) => code)).toEqual(['ok', 'chain_unwatched']);
    await unwatchAll(service);
  });
});

describe('without notifications', async () => {
  const service = await useService({ ALLOW_UNWATCHED: 'none' }, { isNotified: false });

  test('a newly watched chain is noticed within seconds, also for testnet with ALLOW_UNWATCHED=none', {
    timeout: 40_000,
  }, async () => {
    const create = async () =>
      (await service.call('createPaymentIntent', { amount_units, chain: 'polygon' })).code;
    expect(await create()).toBe('chain_unwatched');
    await watch(service, 'testnet', 'polygon');
    await expect.poll(create, { timeout: 30_000, interval: 250 }).toBe('ok');
  });
});

describe('the log at the start', () => {
  const unwatchedLine = ({ log }: TestService) =>
    log.find(({ message }) => /^no node is configured/.test(String(message)));

  test('warns of unwatched chains on which a merchant with a mainnet key is paid', async () => {
    const service = await startService();
    expect(unwatchedLine(service)).toMatchObject({ level: 'info' });
    const api = await startService({ ROLES: 'api' }, { beside: service });
    expect(unwatchedLine(api)).toMatchObject({
      level: 'warn',
      chains: ['mainnet base', 'mainnet polygon'],
      variables: ['RPC_URL_BASE', 'RPC_URL_POLYGON'],
    });
    await api.close();
    await watch(service, 'mainnet', 'polygon');
    const watcher = await startService({ ROLES: 'watcher' }, { beside: service });
    expect(unwatchedLine(watcher)).toMatchObject({ level: 'warn' });
    await watcher.close();
    await service.query(`update api_keys set revoked_at = now() where mode = 'mainnet'`);
    const quiet = await startService({ ROLES: 'api' }, { beside: service });
    expect(unwatchedLine(quiet)).toBeUndefined();
    await quiet.close();
    await service.close();
  });
});
