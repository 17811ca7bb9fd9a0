// Refunds, from the request to the transfer on the chain. Covers each rule of docs/settlement.md.

import { randomBytes } from 'node:crypto';
import { type Address, concatHex, getAddress, type Hex, stringToHex } from 'viem';
import { afterEach, beforeEach, describe, expect, onTestFinished, test } from 'vitest';
import { bridgedUsdcAddresses, networkFor } from '../src/contract/chains.ts';
import { parseIdentifier } from '../src/database/identifiers.ts';
import { createPreparedStatements } from '../src/database/prepared.ts';
import { findBrokenRules } from '../src/payment-intents/intent-rules.ts';
import { listEvents } from '../src/processes/list-tasks.ts';
import { measureRefunds } from '../src/settlement/measures.ts';
import { sessionsWaiting } from './support/blocker.ts';
import { doors, pagesOf, type Request } from './support/call.ts';
import { allPositioned } from './support/event-rows.ts';
import { openClient } from './support/open-client.ts';
import { createTestWatcher, endWatch, leaseNumber, sendPayment } from './support/settlement.ts';
import { insertTransfers, type Rows, type TransferSettings } from './support/transfer-rows.ts';
import { useChain, useService } from './support/use-service.ts';

const service = await useService({ ROLES: 'api,expiry' });
/** Watches nothing, and refuses requests for unwatched chains. */
const unwatched = await useService({ ROLES: 'api', ALLOW_UNWATCHED: 'none' }, { beside: service });
const payer = '0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed';
const exchange: Address = '0xfB6916095ca1df60bB79Ce92cE3Ea74c37c5d359';
const uuidOf = (id: string) => parseIdentifier('pi', id) ?? parseIdentifier('rf', id);

/** An intent with payments, inserted with SQL. */
async function paidIntent(...payments: TransferSettings[]): Promise<string> {
  const { apiKey } = service.merchant.keys[payments[0]?.mode ?? 'testnet'];
  const { id } = (await service.call('createPaymentIntent', { amount_units: 1_000 }, { apiKey })).json;
  const confirmed = payments.map((payment) => ({
    paymentIntent: id,
    state: 'confirmed' as const,
    amountUnits: 1_000,
    ...payment,
  }));
  await insertTransfers(service, service.merchant, confirmed);
  return id;
}

const create = (payment_intent: string, fields: Request = {}, options = {}) =>
  service.call('createRefund', { payment_intent, destination: payer, ...fields }, options);

const refusal = (message: RegExp) => ({ code: 'invalid_state', message: expect.stringMatching(message) });

describe('what can be returned', () => {
  test.each<[string, TransferSettings[], number]>([
    ['nothing without a payment', [], 0],
    ['a confirmed payment', [{}], 1_000],
    ['nothing of a pending payment', [{ state: 'pending' }], 0],
    ['nothing of a reorged payment', [{ state: 'reorged' }], 0],
    ['payments that do not count', [{ labels: ['late'] }, { labels: ['after_cancel'] }], 2_000],
    ['nothing of a payment in another token', [{ labels: ['wrong_token'] }], 0],
    ['more than the amount of the intent, if it is overpaid', [{}, { amountUnits: 500 }], 1_500],
  ])('%s', async (_, payments, rest) => {
    for (const door of doors) {
      const intent = await paidIntent(...payments);
      const all = await create(intent, {}, { door });
      if (rest > 0) expect(all.json.amount_units).toBe(rest);
      else expect(all).toMatchObject(refusal(/^Nothing/));
      expect((await create(intent, { amount_units: 1 }, { door })).code).toBe('invalid_state');
    }
  });

  test('nothing on an unwatched chain', async () => {
    const asked = { payment_intent: await paidIntent({}), destination: payer };
    const { apiKey } = service.merchant.keys.testnet;
    const refused = await unwatched.call('createRefund', asked, { apiKey });
    expect(refused).toMatchObject(refusal(/The service is not watching base/));
  });

  test('nothing after a hundred refunds, canceled ones included', async () => {
    const intent = await paidIntent({});
    const { id } = (await create(intent, { amount_units: 1 })).json;
    await service.call('cancelRefund', { id });
    await service.query(
      `insert into refunds select c.* from refunds r, generate_series(1, 98) n,
         json_populate_record(r, json_build_object('id', gen_random_uuid(), 'n', n)) c where r.id = $1`,
      [uuidOf(id)],
    );
    expect((await create(intent, { amount_units: 1 })).code).toBe('ok');
    expect(await create(intent, { amount_units: 1 })).toMatchObject(refusal(/ has 100 refunds/));
  });

  test('not the amount of an open refund, until it is canceled', async () => {
    for (const door of doors) {
      const intent = await paidIntent({});
      const { id } = (await create(intent, { amount_units: 700 }, { door })).json;
      const refused = await create(intent, { amount_units: 301 }, { door });
      expect(refused).toMatchObject(refusal(/At most 300 /));
      await service.call('cancelRefund', { id }, { door });
      expect((await create(intent, {}, { door })).json.amount_units).toBe(1_000);
    }
  });

  test('a payment that refunds need cannot be detached', async () => {
    const { id } = (await service.call('createPaymentIntent', { amount_units: 2_000 })).json;
    const [byHand = ''] = await insertTransfers(service, service.merchant, [
      { amountUnits: 1_000, state: 'confirmed' },
      { amountUnits: 500, state: 'confirmed', paymentIntent: id },
    ]);
    await service.call('attributeTransfer', { id: byHand, payment_intent: id });
    const refund = (await create(id, { amount_units: 501 })).json;
    const refused = await service.call('detachTransfer', { id: byHand });
    expect(refused).toMatchObject(refusal(/refunds of the intent need this payment/));
    await service.call('cancelRefund', { id: refund.id });
    await create(id, { amount_units: 500 });
    expect((await service.call('detachTransfer', { id: byHand })).json.status).toBe('unattributed');
  });

  test.each<[string, TransferSettings]>([
    ['pending', { state: 'pending' }],
    ['in another token', { state: 'confirmed', tokenAddress: bridgedUsdcAddresses.usdbC }],
  ])('a payment that is %s is detached, though refunds exceed the others', async (_, payment) => {
    const intent = await paidIntent({});
    const { id } = (await create(intent)).json;
    await service.query('update refunds set amount_units = amount_units + 1 where id = $1', [uuidOf(id)]);
    const [byHand = ''] = await insertTransfers(service, service.merchant, [payment]);
    await service.call('attributeTransfer', { id: byHand, payment_intent: intent });
    expect((await service.call('detachTransfer', { id: byHand })).json.status).toBe('unattributed');
  });

  test('never exceeds the payments, even with concurrent refunds', async () => {
    const intent = await paidIntent({});
    const made = await Promise.all(Array.from({ length: 20 }, () => create(intent, { amount_units: 300 })));
    expect(made.filter(({ code }) => code === 'ok')).toHaveLength(3);
  });
});

describe('a request', () => {
  test('returns the transaction to sign', async () => {
    for (const door of doors) {
      const intent = await paidIntent({});
      const fields = { amount_units: 999, reason: 'Out of stock', metadata: { ticket: '4711' } };
      const { json: refund } = await create(intent, fields, { door });
      const words = `${payer.slice(2).toLowerCase().padStart(64, '0')}${(999).toString(16).padStart(64, '0')}`;
      expect(refund).toMatchObject({
        id: expect.stringMatching(/^rf_/),
        payment_intent: intent,
        status: 'requires_transfer',
        destination: payer,
        ...fields,
        transaction: {
          chain_id: 84532,
          to: refund.token_address,
          value: '0x0',
          data: `0xa9059cbb${words}${stringToHex(refund.id).slice(2)}`,
        },
      });
      expect(Date.parse(refund.expires_at) - Date.parse(refund.created_at)).toBe(30 * 86_400_000);
      expect((await service.call('getRefund', { id: refund.id }, { door })).json).toEqual(refund);
    }
  });

  test('repeated with its idempotency key gets the first answer', async () => {
    for (const door of doors) {
      const intent = await paidIntent({});
      const options = { door, idempotencyKey: `refund-${door}` };
      const first = await create(intent, { amount_units: 400 }, options);
      await service.call('cancelRefund', { id: first.json.id });
      const again = await create(intent, { amount_units: 400 }, options);
      expect(again.json).toEqual(first.json);
      expect(again.replayed).toBe(true);
      const others = [
        { amount_units: 401 },
        { destination: exchange },
        { reason: 'x' },
        { metadata: { x: 'x' } },
      ];
      for (const changed of others) {
        const { code } = await create(intent, { amount_units: 400, ...changed }, options);
        expect([changed, code]).toEqual([changed, 'idempotency_key_reused']);
      }
      const other = await paidIntent({});
      expect((await create(other, { amount_units: 400 }, options)).code).toBe('idempotency_key_reused');
      expect((await service.call('listRefunds', { payment_intent: intent })).json.refunds).toHaveLength(1);
    }
  });

  test('with the same idempotency key for two intents at once creates one refund', async () => {
    const intents = [await paidIntent({}), await paidIntent({})];
    const made = intents.map((intent) => create(intent, {}, { idempotencyKey: 'refund-both' }));
    const codes = (await Promise.all(made)).map(({ code }) => code).sort();
    expect(codes).toEqual(['idempotency_key_reused', 'ok']);
  });

  test('without an idempotency key, whose answer is lost, is not said to be safe to repeat', async () => {
    const id = await paidIntent({});
    // Ends the session when it commits.
    await service.query(
      `create function end_session() returns trigger language plpgsql as 'begin perform pg_terminate_backend(pg_backend_pid()); return null; end'`,
    );
    await service.query(
      'create constraint trigger end_session after insert on refunds deferrable initially deferred for each row execute function end_session()',
    );
    onTestFinished(async () => void (await service.query('drop function end_session() cascade')));
    const lost = { code: 'unavailable', message: expect.stringMatching(/may have been created: list the/) };
    expect(await create(id)).toMatchObject(lost);
    const keyed = await create(id, {}, { idempotencyKey: 'lost' });
    expect(keyed).toMatchObject({ code: 'unavailable', message: expect.stringMatching(/with the same/) });
  });

  const wallet = service.merchant.wallets.testnet.base;
  test.each<[Request, string, RegExp]>([
    [{ amount_units: 0 }, 'amount_units', /integer from 1/],
    [{ destination: '' }, 'destination', /must be an address/],
    [{ destination: `0x${'00'.repeat(20)}` }, 'destination', /zero address/],
    [{ destination: payer.replace('5a', '5A') }, 'destination', /checksum/],
    [{ destination: wallet }, 'destination', /one of your own/],
    [{ reason: '€'.repeat(501) }, 'reason', /at most 500 characters/],
    [{ reason: '\0' }, 'reason', /NUL/],
    [{ metadata: { ['k'.repeat(65)]: '' } }, 'metadata', /64 characters/],
    [{ payment_intent: '' }, 'payment_intent', /id of an intent/],
    [{ payment_intent: 'pi_00000000000000000000000000' }, 'payment_intent', /not an intent of yours/],
  ])('with %j is refused', async (fields, field, message) => {
    const intent = await paidIntent({});
    for (const door of doors) {
      const { code, details } = await create(intent, fields, { door });
      expect([code, details]).toEqual(['invalid_body', [{ field, message: expect.stringMatching(message) }]]);
    }
  });

  test('to a wallet at which the merchant was paid before is refused', async () => {
    const intent = await paidIntent({});
    const former = [getAddress(`0x${'6a'.repeat(20)}`), getAddress(`0x${'7a'.repeat(20)}`)];
    for (const address of [...former, wallet]) {
      await service.query(
        `update payout_wallets set address = $1 where merchant_id = $2 and mode = 'testnet' and chain = 'base'`,
        [address, service.merchant.id],
      );
    }
    const refused = former.map(async (destination) => (await create(intent, { destination })).code);
    expect(await Promise.all(refused)).toEqual(['invalid_body', 'invalid_body']);
    // Only the wallets of its own mode and chain count.
    const { mainnet, testnet } = service.merchant.wallets;
    for (const destination of [mainnet.base, testnet.polygon])
      expect((await create(intent, { destination, amount_units: 1 })).code).toBe('ok');
  });

  test('to a wallet of an intent is refused if the intent is of the same merchant', async () => {
    const intent = await paidIntent({});
    const destination = '0xdbF03B407c01E7cD3CBea99509d93f8DDDC8C6FB';
    const other = await service.newMerchant();
    const expecting = { amount_units: 1, wallet_address: destination };
    await service.call('createPaymentIntent', expecting, { apiKey: other.keys.testnet.apiKey });
    await service.call('createPaymentIntent', { ...expecting, chain: 'polygon' });
    expect((await create(intent, { destination, amount_units: 1 })).code).toBe('ok');
    await service.call('createPaymentIntent', expecting);
    expect((await create(intent, { destination, amount_units: 1 })).details).toMatchObject([
      { field: 'destination' },
    ]);
  });

  test('for an intent or refund of another merchant or mode finds nothing', async () => {
    const { id } = (await create(await paidIntent({}))).json;
    const other = await service.newMerchant();
    const keys = [other.keys.testnet.apiKey, service.merchant.keys.mainnet.apiKey];
    const transaction_hash = `0x${'12'.repeat(32)}`;
    for (const apiKey of keys) {
      for (const door of doors) {
        const options = { door, apiKey };
        expect((await service.call('getRefund', { id }, options)).code).toBe('resource_missing');
        expect((await service.call('cancelRefund', { id }, options)).code).toBe('resource_missing');
        const confirm = { id, transaction_hash };
        expect((await service.call('confirmRefund', confirm, options)).code).toBe('resource_missing');
        expect((await service.call('listRefunds', {}, options)).json.refunds).toEqual([]);
      }
    }
  });

  test('with the idempotency key of a refund in the other mode creates a refund', async () => {
    const [testnet, mainnet] = [await paidIntent({}), await paidIntent({ mode: 'mainnet' })];
    const idempotencyKey = 'refund-modes';
    const first = (await create(testnet, {}, { idempotencyKey })).json;
    const { apiKey } = service.merchant.keys.mainnet;
    const second = await create(mainnet, {}, { idempotencyKey, apiKey });
    expect(second.json).toMatchObject({ payment_intent: mainnet, mode: 'mainnet' });
    expect((await create(testnet, {}, { idempotencyKey })).json).toEqual(first);
  });
});

test('refunds are listed newest first, by intent and by status', async () => {
  const intent = await paidIntent({});
  const [a, b, c] = [1, 2, 3].map((amount_units) => () => create(intent, { amount_units }));
  const ids = [(await a?.())?.json.id, (await b?.())?.json.id, (await c?.())?.json.id];
  await service.call('cancelRefund', { id: ids[1] });
  for (const door of doors) {
    const idsOf = async (query: Request) =>
      (
        await pagesOf(
          service.call,
          'listRefunds',
          { page_size: 1, payment_intent: intent, ...query },
          { door },
        )
      )
        .flat()
        .map(({ id }) => id);
    expect(await idsOf({})).toEqual(ids.toReversed());
    expect(await idsOf({ status: 'canceled' })).toEqual([ids[1]]);
    expect(await idsOf({ status: 'requires_transfer' })).toEqual([ids[2], ids[0]]);
  }
});

test('a refund whose transfer is being recorded is not canceled', async () => {
  const { id } = (await create(await paidIntent({}))).json;
  const recording = await openClient(service.location);
  await recording.query('begin');
  await recording.query(`update refunds set status = 'processing' where id = $1`, [uuidOf(id)]);
  const cancel = service.call('cancelRefund', { id });
  await sessionsWaiting(service, 1);
  await recording.query('commit');
  await recording.end();
  expect((await cancel).code).toBe('invalid_state');
});

test.each<[string, (refund: { id: string; payment_intent: string }) => Promise<unknown>]>([
  ['retrieved', async ({ id }) => (await service.call('getRefund', { id })).json],
  [
    'listed',
    async ({ payment_intent }) => (await service.call('listRefunds', { payment_intent })).json.refunds[0],
  ],
])('a refund whose transfer is recorded while it is %s has the status of its transfer', async (_, read) => {
  const { json: refund } = await create(await paidIntent({}));
  const id = uuidOf(refund.id);
  const recording = await openClient(service.location);
  await recording.query('begin; lock table transfers in access exclusive mode');
  const answer = read(refund);
  await sessionsWaiting(service, 1);
  const rows: Rows = { query: (...of) => recording.query(...of) };
  await insertTransfers(rows, service.merchant, [{ isRefund: true, amountUnits: 999 }]);
  await recording.query('update transfers set refund = $1 where amount_units = 999 and refund is null', [id]);
  await recording.query(`update refunds set status = 'processing' where id = $1`, [id]);
  await recording.query('commit');
  await recording.end();
  expect(await answer).toMatchObject({ status: 'processing', transfers: [{ amount_units: 999 }] });
});

describe('on the chain', async () => {
  const chain = await useChain();
  let watcher: ReturnType<typeof createTestWatcher>;
  const wallet = service.merchant.wallets.testnet.base as Address;
  const asPrepared = { from: wallet, to: payer, amountUnits: 1_000n } as const;

  beforeEach(async () => {
    watcher = createTestWatcher(service, { urls: [chain.url] });
    await watcher.catchUp();
  });

  afterEach(() => endWatch(service, { watcher }));

  async function mine(blocks = 1) {
    await watcher.catchUp(chain.mine(blocks));
  }

  /** An intent with a confirmed payment on the chain. */
  async function settledIntent(): Promise<string> {
    const { id } = (await service.call('createPaymentIntent', { amount_units: 1_000 })).json;
    await sendPayment(chain, { id, expected_wallet: wallet }, 1_000);
    await mine(10);
    return id;
  }

  const newRefund = async (fields: Request = {}) => (await create(await settledIntent(), fields)).json;

  const get = async (id: string) => (await service.call('getRefund', { id })).json;
  const intentOf = async (id: string) => (await service.call('getPaymentIntent', { id })).json;
  const eventsOf = async (id: string) => {
    const rows = await service.query<{ type: string; sequence: number }>(
      'select type, sequence from events where refund = $1 order by sequence',
      [uuidOf(id)],
    );
    expect(rows.map(({ sequence }) => sequence)).toEqual(rows.map((_, i) => i + 1));
    return rows.map(({ type }) => type.replace('refund.', ''));
  };
  /** Reverts the transfers of a transaction, as if no node had them any more. */
  async function revert(hash: string) {
    const find = 'select id from transfers where transaction_hash = $1';
    const found = await service.query<{ id: string }>(find, [`\\x${hash.slice(2)}`]);
    const ids = found.map(({ id }) => id);
    await watcher.ledger.revertTransfers(await leaseNumber(service), ids);
  }
  const suffixOf = (id: string) => stringToHex(id);
  type Made = Awaited<ReturnType<typeof newRefund>>;
  const sendPrepared = ({ transaction }: Made, from = wallet) =>
    chain.send(from, { to: transaction.to as Address, data: transaction.data as Hex });

  test('the prepared transaction is recognised, and succeeds with ten confirmations', async () => {
    const refund = await newRefund({ amount_units: 600 });
    const hash = await sendPrepared(refund);
    await mine();
    expect(await get(refund.id)).toMatchObject({
      status: 'processing',
      transfers: [
        { transaction_hash: hash, amount_units: 600, status: 'pending', counts: true, to_address: payer },
      ],
    });
    expect((await intentOf(refund.payment_intent)).amount_refunded_units).toBe(0);
    const another = await create(refund.payment_intent, { amount_units: 401 });
    expect(another).toMatchObject(refusal(/At most 400 /));
    await mine(9);
    const succeeded = await get(refund.id);
    expect(succeeded).toMatchObject({ status: 'succeeded', transfers: [{ status: 'confirmed' }] });
    expect(succeeded.succeeded_at).toBeDefined();
    const intent = await intentOf(refund.payment_intent);
    expect([intent.status, intent.amount_refunded_units, intent.payments_count]).toEqual([
      'succeeded',
      600,
      1,
    ]);
    expect((await create(refund.payment_intent)).json.amount_units).toBe(400);
    expect(await eventsOf(refund.id)).toEqual(['processing', 'succeeded']);
    // It is not listed as a transfer.
    const { transfers } = (await service.call('listTransfers', { transaction_hash: hash })).json;
    expect(transfers).toEqual([]);
  });

  test.each<[string, (refund: Made) => Promise<Hex>]>([
    [
      'a Safe',
      async ({ transaction }) => {
        await chain.mint(chain.safe.address, 1_000n);
        return chain.safeExec({ to: transaction.to as Address, data: transaction.data as Hex });
      },
    ],
    [
      'an EIP-7702 account',
      async ({ transaction }) => {
        const account = chain.accounts[1] as (typeof chain.accounts)[number];
        await chain.mint(account.address, 1_000n);
        return chain.batch7702(account, [{ to: transaction.to as Address, data: transaction.data as Hex }]);
      },
    ],
    [
      'an ERC-4337 account',
      async ({ transaction }) => {
        const account = chain.simpleAccounts['0.7'][0] as (typeof chain.simpleAccounts)['0.7'][number];
        await chain.mint(account.address, 1_000n);
        return chain.bundle([{ account, to: transaction.to as Address, data: transaction.data as Hex }]);
      },
    ],
  ])('the prepared transaction is recognised if %s sends it', async (_, send) => {
    const refund = await newRefund();
    await send(refund);
    await mine();
    expect((await get(refund.id)).status).toBe('processing');
  });

  test('a transfer without the id counts only once the merchant confirms its transaction', async () => {
    const refund = await newRefund();
    const hash = await chain.transfer(asPrepared);
    const confirm = (id: string, transaction_hash: string, door: (typeof doors)[number] = 'json') =>
      service.call('confirmRefund', { id, transaction_hash }, { door });
    expect(await confirm(refund.id, hash)).toMatchObject(refusal(/try again/));
    await mine(10);
    expect((await get(refund.id)).status).toBe('requires_transfer');
    for (const door of doors) {
      expect((await confirm(refund.id, hash, door)).json).toMatchObject({
        status: 'succeeded',
        transfers: [{ transaction_hash: hash, counts: true }],
      });
    }
    expect(await eventsOf(refund.id)).toEqual(['processing', 'succeeded']);
    expect((await intentOf(refund.payment_intent)).amount_refunded_units).toBe(1_000);
    // A transfer belongs to one refund only.
    const other = await newRefund();
    expect((await confirm(other.id, hash)).code).toBe('invalid_state');
    const reverted = await chain.transfer(asPrepared);
    await mine();
    await revert(reverted);
    expect((await confirm(other.id, reverted)).code).toBe('invalid_state');
  });

  test('a confirmation that is repeated does not wait for the lock of the chain', async () => {
    const { id } = await newRefund();
    const transaction_hash = await chain.transfer(asPrepared);
    await mine();
    const confirm = () => service.call('confirmRefund', { id, transaction_hash });
    await confirm();
    const holder = await openClient(service.location);
    onTestFinished(() => holder.end());
    await holder.query('begin; select from watched_chains for update');
    expect((await confirm()).code).toBe('ok');
    await holder.query('commit');
  });

  test('a confirmed transfer of a canceled refund is reported once when the merchant names it', async () => {
    const refund = await newRefund();
    const transaction_hash = await chain.transfer(asPrepared);
    await mine(10);
    await service.call('cancelRefund', { id: refund.id });
    const { json } = await service.call('confirmRefund', { id: refund.id, transaction_hash });
    expect(json).toMatchObject({ status: 'canceled', labels: ['after_cancel'] });
    expect(await eventsOf(refund.id)).toEqual(['canceled', 'unexpected']);
    expect((await intentOf(refund.payment_intent)).amount_refunded_units).toBe(1_000);
  });

  test('of two refunds that are confirmed with one transfer at the same time, one gets it', async () => {
    const refunds = [await newRefund(), await newRefund()];
    const transaction_hash = await chain.transfer(asPrepared);
    await mine(10);
    const holder = await openClient(service.location);
    await holder.query('begin');
    await holder.query('select from transfers where transaction_hash = $1 for update', [
      `\\x${transaction_hash.slice(2)}`,
    ]);
    const confirmed = refunds.map(({ id }) => service.call('confirmRefund', { id, transaction_hash }));
    await sessionsWaiting(service, 2);
    await holder.end();
    const codes = (await Promise.all(confirmed)).map(({ code }) => code);
    expect(codes.sort()).toEqual(['invalid_state', 'ok']);
    const returned = await Promise.all(
      refunds.map(async (each) => (await intentOf(each.payment_intent)).amount_refunded_units ?? 0),
    );
    expect(returned.sort()).toEqual([0, 1_000]);
  });

  test.each([
    ['from another wallet', { from: chain.accounts[2].address }],
    ['of another amount', { amountUnits: 999n }],
    ['to another wallet', { to: exchange }],
  ])('a refund cannot be confirmed with a transfer %s', async (_, change) => {
    const refund = await newRefund();
    await chain.mint(chain.accounts[2].address, 1_000n);
    const hash = await chain.transfer({ ...asPrepared, ...change });
    await mine();
    const answer = await service.call('confirmRefund', { id: refund.id, transaction_hash: hash });
    expect(answer.code).toBe('invalid_state');
    expect(await get(refund.id)).toMatchObject({ status: 'requires_transfer' });
  });

  test.each<[string, { to: Address; amountUnits: bigint; token?: Address }]>([
    ['to the merchant', { to: wallet, amountUnits: 1_000n }],
    ['of bridged USDC to the payer', { to: payer, amountUnits: 1_000n, token: bridgedUsdcAddresses.usdbC }],
    ['of another amount to the payer', { to: payer, amountUnits: 1n }],
    ['to the payer of another refund', { to: exchange, amountUnits: 1_000n }],
  ])('the id after a transfer %s by somebody else returns nothing', async (_, payment) => {
    const refund = await newRefund();
    await create(await paidIntent({}), { destination: exchange });
    const { address: from } = chain.accounts[4] as { address: Address };
    await chain.mint(from, 1_000n, payment.token);
    await chain.transfer({ from, ...payment, suffix: suffixOf(refund.id) });
    await mine(10);
    expect(await get(refund.id)).toMatchObject({ status: 'requires_transfer' });
    expect((await get(refund.id)).transfers).toBeUndefined();
    expect((await intentOf(refund.payment_intent)).amount_refunded_units).toBe(0);
  });

  test('transfers with the id from another wallet count twice at most, however often the money circulates', async () => {
    const refund = await newRefund();
    const { address: from } = chain.accounts[2] as { address: Address };
    await chain.mint(from, 5_000n);
    const send = () => chain.transfer({ ...asPrepared, from, suffix: suffixOf(refund.id) });
    // The refund's own transfer takes no place of these.
    await sendPrepared(refund);
    await mine();
    const first = await send();
    await mine();
    await send();
    await send();
    await mine();
    await send();
    await mine(10);
    // The verification must not find more.
    await watcher.verify();
    const twice = { counts: true, labels: ['twice'] };
    const transfers = [{ counts: true }, twice, twice];
    expect(await get(refund.id)).toMatchObject({ status: 'succeeded', transfers });
    expect((await intentOf(refund.payment_intent)).amount_refunded_units).toBe(3_000);
    const unexpected = ['unexpected', 'unexpected'];
    expect(await eventsOf(refund.id)).toEqual(['processing', ...unexpected, 'succeeded', ...unexpected]);
    // The place of one that was reverted is free.
    await revert(first);
    await send();
    await mine();
    const labels = (await get(refund.id)).transfers.map((transfer) => transfer.labels);
    expect(labels).toEqual([undefined, undefined, ['twice'], ['twice']]);
  });

  test.each([
    ['on another chain', `network = ${networkFor('testnet', 'polygon').id}`],
    ['whose time to be looked for is over', 'watched_until = now()'],
  ])('the id of a refund %s returns nothing', async (_, columns) => {
    const refund = await newRefund();
    // Another refund makes the watcher look at the transfer.
    await newRefund();
    await service.query(`update refunds set ${columns} where id = $1`, [uuidOf(refund.id)]);
    await sendPrepared(refund);
    await mine();
    expect((await get(refund.id)).transfers).toBeUndefined();
  });

  test('a transfer like a refund, to what became a wallet of the merchant, is only a payment', async () => {
    const destination = `0x${randomBytes(20).toString('hex')}` as const;
    const refund = await newRefund({ destination });
    const fields = { amount_units: 2_000, wallet_address: destination };
    const { id } = (await service.call('createPaymentIntent', fields)).json;
    const transaction_hash = await chain.transfer({ ...asPrepared, to: destination });
    await mine();
    expect(await intentOf(id)).toMatchObject({ amount_received_units: 1_000 });
    const answer = await service.call('confirmRefund', { id: refund.id, transaction_hash });
    expect(answer.code).toBe('invalid_state');
  });

  test('a transfer with two ids proves nothing, whatever their kind', async () => {
    const refund = await newRefund();
    const suffix = concatHex([suffixOf(refund.id), suffixOf(refund.payment_intent)]);
    await chain.transfer({ ...asPrepared, suffix });
    await mine();
    expect((await get(refund.id)).status).toBe('requires_transfer');
  });

  test.each<[string, object, string[], string]>([
    ['another amount', { amountUnits: 999n }, ['other_amount'], 'requires_transfer'],
    ['another destination', { to: exchange }, ['other_destination'], 'requires_transfer'],
  ])('a transfer with %s is recorded, counted and labeled', async (_, change, labels, status) => {
    const refund = await newRefund();
    // Another refund makes the watcher look at the other destination.
    await create(await paidIntent({}), { destination: exchange });
    const payment = { ...asPrepared, suffix: suffixOf(refund.id), ...change };
    await chain.transfer(payment);
    await mine(10);
    expect(await get(refund.id)).toMatchObject({ status, labels, transfers: [{ labels, counts: true }] });
    expect((await intentOf(refund.payment_intent)).amount_refunded_units).toBe(Number(payment.amountUnits));
    expect(await eventsOf(refund.id)).toEqual(['unexpected', 'unexpected']);
  });

  test('a second transfer is labeled, and replaces the first one if that is reorged', async () => {
    const refund = await newRefund({ amount_units: 400 });
    await sendPrepared(refund);
    await mine();
    await sendPrepared(refund);
    await mine();
    expect(await get(refund.id)).toMatchObject({
      status: 'processing',
      labels: ['twice'],
      transfers: [{ counts: true }, { counts: true, labels: ['twice'] }],
    });
    await mine(10);
    const { transfers } = await get(refund.id);
    expect((await intentOf(refund.payment_intent)).amount_refunded_units).toBe(800);
    await revert(transfers[0]?.transaction_hash as string);
    const left = await get(refund.id);
    expect(left).toMatchObject({ status: 'succeeded', transfers: [{}, { counts: true }] });
    expect(left.transfers[1]?.labels).toBeUndefined();
    expect((await intentOf(refund.payment_intent)).amount_refunded_units).toBe(400);
    expect((await eventsOf(refund.id)).join(' ')).toBe(
      'processing unexpected succeeded unexpected reorged processing succeeded',
    );
    // What was reorged can be returned again.
    expect((await create(refund.payment_intent)).json.amount_units).toBe(600);
  });

  test('a refund is reverted with its transfer, and succeeds when the transfer returns', async () => {
    const account = chain.accounts[3] as (typeof chain.accounts)[number];
    const refund = await newRefund();
    await chain.mint(account.address, 1_000n);
    await mine();
    const hash = await sendPrepared(refund, account.address);
    await mine();
    // It is not confirmed for another block.
    const find = 'select id from transfers where refund = $1';
    const [row] = await service.query<{ id: string }>(find, [uuidOf(refund.id)]);
    await watcher.ledger.confirmAll(await leaseNumber(service), `0x${'1'.repeat(64)}`, [row?.id as string]);
    expect((await get(refund.id)).status).toBe('processing');
    const raw = await chain.client.request<{ Method: string; Parameters: Hex[]; ReturnType: Hex }>({
      method: 'eth_getRawTransactionByHash',
      params: [hash],
    });
    await chain.reorg(1);
    await watcher.catchUp().catch(() => {});
    await mine();
    expect(await get(refund.id)).toMatchObject({
      status: 'requires_transfer',
      transfers: [{ status: 'reorged' }],
    });
    await chain.client.sendRawTransaction({ serializedTransaction: raw });
    await mine(10);
    expect(await get(refund.id)).toMatchObject({ status: 'succeeded', transfers: [{ counts: true }] });
    expect(await eventsOf(refund.id)).toEqual(['processing', 'reorged', 'processing', 'succeeded']);
  });

  test('a transfer after cancellation is recorded, counted and labeled', async () => {
    const refund = await newRefund();
    expect((await service.call('cancelRefund', { id: refund.id })).json.status).toBe('canceled');
    expect((await service.call('cancelRefund', { id: refund.id })).json.status).toBe('canceled');
    const watched = "select from refunds where id = $1 and watched_until = canceled_at + interval '30 days'";
    expect(await service.query(watched, [uuidOf(refund.id)])).toHaveLength(1);
    await sendPrepared(refund);
    await mine(10);
    expect(await get(refund.id)).toMatchObject({ status: 'canceled', labels: ['after_cancel'] });
    expect((await intentOf(refund.payment_intent)).amount_refunded_units).toBe(1_000);
    expect(await eventsOf(refund.id)).toEqual(['canceled', 'unexpected', 'unexpected']);
    expect((await create(refund.payment_intent)).code).toBe('invalid_state');
  });

  test('a refund expires by the clock of the chain, and a later transfer is late', async () => {
    const [refund, elsewhere] = [await newRefund(), await newRefund()];
    await service.query('update refunds set network = 4 where id = $1', [uuidOf(elsewhere.id)]);
    await chain.mine(1, { timestamp: Math.ceil(Date.parse(refund.expires_at) / 1_000) + 1 });
    await mine(20);
    // The clock of another chain.
    expect((await service.call('cancelRefund', { id: elsewhere.id })).json.status).toBe('canceled');
    const expired = await get(refund.id);
    expect([expired.status, Boolean(expired.expired_at)]).toEqual(['expired', true]);
    const { json: next } = await create(refund.payment_intent);
    expect(next.amount_units).toBe(1_000);
    await service.call('cancelRefund', { id: next.id });
    await sendPrepared(refund);
    await mine(10);
    expect(await get(refund.id)).toMatchObject({ status: 'expired', labels: ['late'] });
    expect(await eventsOf(refund.id)).toEqual(['expired', 'unexpected', 'unexpected']);
    expect((await service.call('cancelRefund', { id: refund.id })).code).toBe('invalid_state');
  });

  test('a refund whose payment is reorged is labeled', async () => {
    const refund = await newRefund();
    await sendPrepared(refund);
    await mine(10);
    const { payments } = await intentOf(refund.payment_intent);
    await revert(payments[0]?.transaction_hash as string);
    expect(await get(refund.id)).toMatchObject({ status: 'succeeded', labels: ['payment_reorged'] });
    expect(await eventsOf(refund.id)).toEqual(['processing', 'succeeded', 'unexpected']);
  });

  test('a canceled refund is labeled, too, if its transfer is on the chain', async () => {
    const refund = await newRefund({ amount_units: 400 });
    const { json: other } = await create(refund.payment_intent, { amount_units: 400 });
    for (const { id } of [refund, other]) await service.call('cancelRefund', { id });
    await sendPrepared(refund);
    const reverted = await sendPrepared(other);
    await mine(10);
    await revert(reverted);
    const { payments } = await intentOf(refund.payment_intent);
    await revert(payments[0]?.transaction_hash as string);
    expect((await get(refund.id)).labels).toEqual(['after_cancel', 'payment_reorged']);
    expect((await get(other.id)).labels).toBeUndefined();
  });

  test('a canceled refund is not labeled if its transfer is reorged with the payment and 600 others', async () => {
    const refund = await newRefund();
    await service.call('cancelRefund', { id: refund.id });
    const others = Array.from({ length: 600 }, () => ({ amountUnits: 1, labels: ['wrong_token' as const] }));
    await insertTransfers(service, service.merchant, others);
    await sendPrepared(refund);
    await mine(10);
    expect((await get(refund.id)).labels).toEqual(['after_cancel']);
    const rows = await service.query<{ id: string }>('select id from transfers');
    const ids = rows.map(({ id }) => id);
    await watcher.ledger.revertTransfers(await leaseNumber(service), ids);
    expect((await get(refund.id)).labels).toBeUndefined();
    expect(await eventsOf(refund.id)).toEqual(['canceled', 'unexpected', 'unexpected', 'reorged']);
  });

  test('a refund is not labeled if other payments cover it, or none of those that are reorged was confirmed', async () => {
    const id = await settledIntent();
    const pay = () => sendPayment(chain, { id, expected_wallet: wallet }, 1_000);
    await pay();
    await mine(10);
    const { json: refund } = await create(id, { amount_units: 1_000 });
    await sendPrepared(refund);
    await mine(10);
    await revert((await intentOf(id)).payments[0]?.transaction_hash as string);
    expect((await get(refund.id)).labels).toBeUndefined();
    // Sent by mistake: more is returned than was received.
    await sendPrepared(refund);
    await pay();
    await mine();
    await revert((await intentOf(id)).payments.at(-1)?.transaction_hash as string);
    expect((await get(refund.id)).labels).toEqual(['twice']);
  });

  test("the payer's checkout shows the refund once it is on the chain", async () => {
    const refund = await newRefund({ amount_units: 400 });
    const { client_secret } = await intentOf(refund.payment_intent);
    const shown = async () =>
      (await service.call('getCheckout', {}, { apiKey: client_secret })).json.refunds?.map(
        ({ status, amount_units, to_address }) => [status, amount_units, to_address],
      );
    expect(await shown()).toBeUndefined();
    await sendPrepared(refund);
    await mine();
    expect(await shown()).toEqual([['pending', 400, payer]]);
    await mine(9);
    expect(await shown()).toEqual([['confirmed', 400, payer]]);
  });

  test('doctor finds an intent with a wrong refunded sum, and open refunds are measured', async () => {
    const refund = await newRefund();
    await sendPrepared(refund);
    await mine(10);
    const { em } = service.database.orm;
    expect((await findBrokenRules(em, 1)).broken).toEqual([]);
    await service.query('update payment_intents set amount_refunded_units = 999 where id = $1', [
      uuidOf(refund.payment_intent),
    ]);
    expect((await findBrokenRules(em, 1)).broken).toMatchObject([
      { rule: expect.stringMatching(/sum of the confirmed/), example: refund.payment_intent },
    ]);
    await service.query('update payment_intents set amount_refunded_units = 1000 where id = $1', [
      uuidOf(refund.payment_intent),
    ]);
    const waiting = await newRefund();
    await service.query(`update refunds set created_at = now() - interval '24 hours' where id = $1`, [
      uuidOf(waiting.id),
    ]);
    const { counts, oldestMs } = await measureRefunds(createPreparedStatements(em).run);
    const open = await service.query(`select from refunds where status = 'requires_transfer'`);
    expect(counts.requires_transfer).toBe(open.length);
    expect(oldestMs).toBeGreaterThan(86_000_000);
  });

  test('a refund to a wallet of another merchant is an ordinary transfer to that merchant', async () => {
    const other = await service.newMerchant();
    const apiKey = other.keys.testnet.apiKey;
    const refund = await newRefund({ destination: other.wallets.testnet.base });
    const hash = await sendPrepared(refund);
    await mine();
    expect((await get(refund.id)).status).toBe('processing');
    const { transfers } = (await service.call('listTransfers', { transaction_hash: hash }, { apiKey })).json;
    expect(transfers).toMatchObject([{ status: 'unattributed', amount_units: 1_000 }]);
  });

  test('events of a refund are found by the refund and by its intent', async () => {
    const refund = await newRefund();
    await sendPrepared(refund);
    await mine(10);
    await allPositioned(service);
    const typesOf = async (query: Request, door: (typeof doors)[number]) =>
      (await pagesOf(service.call, 'listEvents', { page_size: 1, ...query }, { door }))
        .flat()
        .map(({ type }) => type);
    for (const door of doors) {
      const ofRefund = ['refund.processing', 'refund.succeeded'];
      const ofIntent = ['payment_intent.processing', 'payment_intent.succeeded'];
      const both = { refund: refund.id, payment_intent: refund.payment_intent };
      expect(await typesOf({ refund: refund.id }, door)).toEqual(ofRefund);
      const all = await typesOf({ payment_intent: refund.payment_intent }, door);
      expect(all.filter((type) => type.startsWith('refund.'))).toEqual(ofRefund);
      expect(all.filter((type) => !type.startsWith('refund.'))).toEqual(ofIntent);
      expect(await typesOf(both, door)).toEqual(ofRefund);
      expect(await typesOf({ ...both, type: 'refund.succeeded' }, door)).toEqual(['refund.succeeded']);
    }
    const { json } = await listEvents(service.database, { intent: refund.payment_intent, limit: 10 });
    expect((json as { type: string }[]).filter(({ type }) => type.startsWith('refund.'))).toHaveLength(2);
  });
});
