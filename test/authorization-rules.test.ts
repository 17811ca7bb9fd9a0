// Rules for payments by signature that are usually masked by another rule: each is tested alone.

import { createServer } from 'node:http';
import { json } from 'node:stream/consumers';
import {
  type Address,
  concatHex,
  encodeFunctionData,
  erc20Abi,
  maxUint256,
  numberToHex,
  pad,
  size,
} from 'viem';
import { generatePrivateKey, privateKeyToAccount } from 'viem/accounts';
import { describe, expect, onTestFinished, test } from 'vitest';
import { createAuthorizationStore } from '../src/authorizations/authorization-store.ts';
import { networkFor } from '../src/contract/chains.ts';
import { authorizationState, authorizationUsedTopic } from '../src/contract/eip-3009.ts';
import type { SignedPayment } from '../src/contract/x402.ts';
import { PaymentIntentEntity, type PaymentIntentRow } from '../src/database/entities/payment-intent.ts';
import { parseIdentifier } from '../src/database/identifiers.ts';
import { createPreparedStatements } from '../src/database/prepared.ts';
import { changeOf, endOf, storeChanges } from '../src/payment-intents/change-payment-intents.ts';
import { sessionsWaiting } from './support/blocker.ts';
import { startChain } from './support/chain.ts';
import { amount, type Json, type Order, useGasless } from './support/gasless.ts';
import { listenInTest } from './support/listen.ts';
import type { Rewrite } from './support/lying-node.ts';
import { openClient } from './support/open-client.ts';
import { createTestWatcher } from './support/settlement.ts';
import { insertTransfers } from './support/transfer-rows.ts';
import { callOf, paymentHeader, randomNonce, type SignedFields, sign } from './support/x402.ts';

const gasless = await useGasless('api');
const { chain, facilitator, node, service, watcher } = gasless;
const { start, pay, createIntent, newOrder, statusesOf, readBlock } = gasless;

const holdsBack = { '/verify': () => ({ isValid: false }) };

/** Submits a signature for the order. The facilitator does not send it. */
async function submit(order: Order, fields: Partial<SignedFields> = {}) {
  facilitator.behaviour = holdsBack;
  const signed = await sign(order.account, order.offer, fields);
  expect((await pay(order.secret, paymentHeader(signed, order.offer))).status).toBe(202);
  return signed;
}

const statusOf = async (id: string, options: { apiKey?: string } = {}) =>
  (await service.call('getPaymentIntent', { id }, options)).json.status;

/** A node that returns the result or Error of `answer`. A call for which it is undefined is forwarded. */
function nodeThat(answer: (call: { method: string; params: Json }) => unknown): Promise<string> {
  return listenInTest(
    createServer(async (request, response) => {
      const call = (await json(request)) as Json;
      const said = answer(call);
      if (said instanceof Error)
        response.end(
          JSON.stringify({ jsonrpc: '2.0', id: call.id, error: { code: -32_000, message: said.message } }),
        );
      else if (said !== undefined)
        response.end(JSON.stringify({ jsonrpc: '2.0', id: call.id, result: said }));
      else {
        const body = JSON.stringify(call);
        response.end(
          await (
            await fetch(chain.url, { method: 'POST', body, headers: { 'content-type': 'application/json' } })
          ).text(),
        );
      }
    }),
  );
}

describe('an authorization', () => {
  const { em } = service.database.orm;
  const store = createAuthorizationStore(em);
  const rowOf = ({ id }: Order) =>
    em.fork().findOneOrFail(PaymentIntentEntity, {
      id: parseIdentifier('pi', id) as string,
    }) as Promise<PaymentIntentRow>;
  const signedBy = ({ account }: Order): SignedPayment =>
    ({
      from: account.address.toLowerCase(),
      nonce: randomNonce(),
      value: BigInt(amount),
      validBefore: BigInt(Math.floor(Date.now() / 1_000) + 60),
    }) as SignedPayment;
  const countTo = (row: PaymentIntentRow, count: number) =>
    service.query('update payment_intents set authorizations_count = $2 where id = $1', [row.id, count]);

  test('is not stored while another one of its intent can still be used', async () => {
    const order = await newOrder();
    expect(await store.store(await rowOf(order), signedBy(order))).toHaveProperty('row');
    expect(await store.store(await rowOf(order), signedBy(order))).toBeUndefined();
    expect(await statusesOf(order.id)).toEqual(['submitted']);
  });

  test('is stored only once if two processes store one at the same time', async () => {
    const order = await newOrder();
    const row = await rowOf(order);
    const blocker = await openClient(service.location);
    onTestFinished(() => blocker.end());
    await blocker.query('begin');
    await blocker.query('select from payment_intents where id = $1 for update', [row.id]);
    const stored = [store, createAuthorizationStore(em)].map((each) => each.store(row, signedBy(order)));
    await sessionsWaiting(service, 2);
    await blocker.query('commit');
    await Promise.all(stored);
    expect(await statusesOf(order.id)).toEqual(['submitted']);
  });

  test('is not stored for an intent that was partly paid since it was read', async () => {
    const order = await newOrder();
    const row = await rowOf(order);
    await service.query('update payment_intents set amount_received_units = 1 where id = $1', [row.id]);
    expect(await store.store(row, signedBy(order))).toBeUndefined();
    expect(await statusesOf(order.id)).toEqual([]);
  });

  test('that lands while its intent is read is not paid a second time', async () => {
    const order = await newOrder();
    await submit(order);
    const blocker = await openClient(service.location);
    onTestFinished(() => blocker.end());
    await blocker.query('begin; lock table authorizations in access exclusive mode');
    const checkout = service.call('getCheckout', {}, { apiKey: order.secret });
    const offer = pay(order.secret);
    await sessionsWaiting(service, 2);
    const { id } = await rowOf(order);
    await blocker.query(
      `update payment_intents set status = 'processing', amount_received_units = amount_units where id = '${id}';
       update authorizations set status = 'landed' where payment_intent = '${id}'; commit`,
    );
    expect((await checkout).json).toMatchObject({ status: 'processing', gasless: false });
    expect(await offer).toMatchObject({ status: 200, json: { status: 'processing' } });
  });

  test('whose payment is reorged while the payments are read can still be used', async () => {
    const order = await newOrder();
    await submit(order);
    const { id } = await rowOf(order);
    await insertTransfers(service, service.merchant, [{ paymentIntent: order.id, amountUnits: amount }]);
    const become = (status: string, authorization: string) =>
      `update payment_intents set status = '${status}', payments_count = 1 where id = '${id}';
       update authorizations set status = '${authorization}' where payment_intent = '${id}'`;
    await service.query(become('processing', 'landed'));
    const blocker = await openClient(service.location);
    onTestFinished(() => blocker.end());
    await blocker.query('begin; lock table transfers in access exclusive mode');
    const checkout = service.call('getCheckout', {}, { apiKey: order.secret });
    await sessionsWaiting(service, 1);
    await blocker.query(`${become('requires_payment', 'submitted')}; commit`);
    const authorization = { status: 'submitted' };
    expect((await checkout).json).toMatchObject({
      status: 'requires_payment',
      gasless: false,
      authorization,
    });
  });

  test('is refused if it is the twenty-first of its intent', async () => {
    const order = await newOrder();
    for (const [count, isStored] of [
      [19, true],
      [20, false],
    ] as const) {
      await countTo(await rowOf(order), count);
      await service.query("update authorizations set status = 'failed'");
      const stored = await store.store(await rowOf(order), signedBy(order));
      expect([count, stored !== undefined && 'row' in stored]).toEqual([count, isStored]);
    }
    const refused = await store.store(await rowOf(order), signedBy(order));
    expect(refused).toMatchObject({ refusal: { reason: 'too_many_authorizations' } });
  });

  test('on Polygon is released by a final block at its end, not by confirmations alone', async () => {
    // Blocks are final 40 blocks later.
    const polygon = await startChain({ network: networkFor('testnet', 'polygon'), slotsInAnEpoch: 20 });
    onTestFinished(polygon.stop);
    const order = { ...(await newOrder()), ...(await createIntent({ chain: 'polygon' })) };
    const signed = signedBy(order);
    await store.store(await rowOf(order), signed);
    const own = createTestWatcher(service, { urls: [polygon.url], chainId: polygon.network.chainId });
    await polygon.mine(1, { timestamp: Number(signed.validBefore) });
    await own.catchUp(polygon.mine(39));
    expect(await statusesOf(order.id)).toEqual(['submitted']);
    await own.catchUp(polygon.mine());
    await own.release();
    expect(await statusesOf(order.id)).toEqual(['released']);
  });

  test('is not released if it has become doubtful since it was read', async () => {
    const order = await newOrder();
    await store.store(await rowOf(order), signedBy(order));
    const [{ id, lease } = expect.fail()] = await service.query<{ id: string; lease: string }>(
      `update authorizations a set is_doubtful = true from watched_chains
        where payment_intent = $1 and chain_id = $2 returning a.id, lease_number as lease`,
      [parseIdentifier('pi', order.id), chain.network.chainId],
    );
    for (const [isDoubtful, status] of [
      [false, 'submitted'],
      [true, 'released'],
    ] as const) {
      await watcher.ledger.releaseAuthorizations(BigInt(lease), [{ id, isDoubtful }]);
      expect(await statusesOf(order.id)).toEqual([status]);
    }
  });

  test('or a newer sum of refunds prevents a cancel by a process that read the intent earlier', async () => {
    const order = await newOrder();
    const before = await rowOf(order);
    await store.store(before, signedBy(order));
    const { run } = createPreparedStatements(em);
    const cancel = async (row: PaymentIntentRow) =>
      (await storeChanges(run, [changeOf(row, [endOf(row, 'canceled', new Date())], [], new Date())])).size;
    expect(await cancel(before)).toBe(0);
    expect(await statusOf(order.id)).toBe('requires_payment');
    // The event of this cancel would have an outdated sum of refunds.
    const read = await rowOf(order);
    await service.query('update payment_intents set amount_refunded_units = 1 where id = $1', [read.id]);
    expect(await cancel(read)).toBe(0);
    expect(await cancel(await rowOf(order))).toBe(1);
  });
});

describe('an answer', () => {
  test('for a paid intent is its state, even if the nonce belongs to another intent', async () => {
    const first = await newOrder();
    const signed = await submit(first);
    const second = await newOrder();
    await service.query("update payment_intents set status = 'processing' where id = $1", [
      parseIdentifier('pi', second.id),
    ]);
    const shown = await sign(first.account, second.offer, { nonce: signed.nonce });
    expect(await pay(second.secret, paymentHeader(shown, second.offer))).toMatchObject({
      status: 200,
      settled: undefined,
    });
  });

  test('to an old signature for an intent that was paid meanwhile is its state', async () => {
    const order = await newOrder();
    const header = paymentHeader(await submit(order), order.offer);
    await service.query("update authorizations set status = 'released'");
    const paid = "update payment_intents set status = 'processing' where id = $1";
    await service.query(paid, [parseIdentifier('pi', order.id)]);
    expect((await pay(order.secret, header)).status).toBe(200);
  });

  test('to the signature of an undeployed account is given without asking a node', async () => {
    const order = await newOrder();
    const signed = await sign(order.account, order.offer);
    const wrapped = { ...signed, signature: concatHex([signed.signature, `0x${'6492'.repeat(16)}`]) };
    const asked = node.requests.length;
    expect(await pay(order.secret, paymentHeader(wrapped, order.offer))).toMatchObject({
      status: 402,
      settled: { errorReason: 'invalid_exact_evm_payload_undeployed_smart_wallet' },
    });
    expect(node.requests.length).toBe(asked);
  });

  test('of more than 64 KiB from a facilitator is ignored', async () => {
    const claimed = `0x${'ab'.repeat(32)}`;
    const order = await newOrder();
    facilitator.behaviour = {
      '/settle': (_, response) => {
        response.end(
          JSON.stringify({ success: true, transaction: claimed, network: '', pad: 'x'.repeat(70_000) }),
        );
      },
    };
    const signed = await sign(order.account, order.offer);
    expect((await pay(order.secret, paymentHeader(signed, order.offer))).status).toBe(202);
    const { json } = await service.call('getCheckout', {}, { apiKey: order.secret });
    const { authorization } = json;
    expect(authorization).toMatchObject({ status: 'submitted' });
    expect(JSON.stringify(authorization)).not.toContain(claimed);
  });
});

describe('a node', () => {
  test('that returns an error has not refused for the token: the payment can be sent again', async () => {
    let isGone = false;
    const first = await nodeThat(() => (isGone ? new Error('header not found') : undefined));
    const both = await start(`${first},${chain.url}`, { beside: service });
    const single = await start(first, { beside: service });
    onTestFinished(() => Promise.all([both.close(), single.close()]).then(() => {}));
    const order = await newOrder();
    facilitator.behaviour = holdsBack;
    const header = paymentHeader(await sign(order.account, order.offer), order.offer);
    isGone = true;
    // Its error is not the token's refusal: nothing is stored, and the same signature can be sent again.
    expect((await pay(order.secret, header, single)).status).toBe(503);
    expect(await statusesOf(order.id)).toEqual([]);
    expect((await pay(order.secret, header, both)).status).toBe(202);
  });

  test('that cannot be reached is replaced by the next one', async () => {
    const gone = await start(`http://127.0.0.1:9,${chain.url}`, { beside: service });
    onTestFinished(gone.close);
    const order = await newOrder();
    facilitator.behaviour = holdsBack;
    expect(
      (await pay(order.secret, paymentHeader(await sign(order.account, order.offer), order.offer), gone))
        .status,
    ).toBe(202);
  });

  test.each<[string, [string, string], Rewrite]>([
    [
      'of two, if it alone reports the nonce as used,',
      [chain.url, node.url],
      ({ method, params }) =>
        method === 'eth_call' && JSON.stringify(params).includes(authorizationState)
          ? { result: numberToHex(1, { size: 32 }) }
          : undefined,
    ],
    [
      'of two, if it alone reports no block at the end,',
      [chain.url, node.url],
      ({ method }, { result }) =>
        method === 'eth_getBlockByNumber' ? { result: { ...Object(result), timestamp: '0x1' } } : undefined,
    ],
    [
      'of a public chain, where 20 s of blocks can be reorged,',
      [node.url, chain.url],
      ({ method }) => (method === 'web3_clientVersion' ? { result: 'Geth/v1.15.11' } : undefined),
    ],
  ])('%s keeps an authorization from being released', async (_, urls, rewrite) => {
    const order = await newOrder();
    const head = Math.max(Number((await chain.client.getBlock()).timestamp), Math.floor(Date.now() / 1_000));
    const signed = await submit(order, { validBefore: BigInt(head + 20) });
    node.rewrite(rewrite);
    onTestFinished(() => node.rewrite(undefined));
    await watcher.release();
    const two = createTestWatcher(service, { urls });
    await chain.mine(1, { timestamp: Number(signed.validBefore) });
    await two.catchUp(chain.mine(chain.network.confirmationsRequired + 1));
    await two.release();
    expect(await statusesOf(order.id)).toEqual(['submitted']);
    const one = createTestWatcher(service, { urls: [chain.url, chain.url] });
    await one.catchUp(chain.mine());
    await one.release();
    expect(await statusesOf(order.id)).toEqual(['released']);
    await watcher.catchUp();
  });
});

describe('a transfer', () => {
  const approve = (by: Address) =>
    encodeFunctionData({ abi: erc20Abi, functionName: 'approve', args: [by, maxUint256] });
  const transferFrom = (from: Address, to: Address) =>
    encodeFunctionData({ abi: erc20Abi, functionName: 'transferFrom', args: [from, to, BigInt(amount)] });
  const walletOf = ({ offer }: Order) => offer.payTo as Address;

  test('after the same event of another contract uses no authorization', async () => {
    const order = await newOrder();
    const signed = await submit(order);
    const { address } = order.account;
    await chain.fund(address);
    await chain.send(address, { to: chain.usdc, data: approve(chain.multicall3Address) });
    await readBlock();
    // Emits a log whose topics are its calldata (log3).
    const forger = privateKeyToAccount(generatePrivateKey()).address;
    await chain.client.setCode({ address: forger, bytecode: '0x60403560203560003560006000a300' });
    const forged = concatHex([authorizationUsedTopic, pad(address, { size: 32 }), signed.nonce]);
    await chain.multicall([
      { to: forger, data: forged },
      { to: chain.usdc, data: transferFrom(address, walletOf(order)) },
    ]);
    await readBlock();
    expect(await statusesOf(order.id)).toEqual(['submitted']);
  });

  test('after an approval by its sender uses no authorization', async () => {
    const order = await newOrder();
    const spender = privateKeyToAccount(generatePrivateKey()).address;
    // An approval has its spender in the third topic, where an authorization has its nonce.
    await submit(order, { nonce: pad(spender, { size: 32 }) });
    await chain.fund(order.account.address);
    await chain.batch7702(order.account, [
      { to: chain.usdc, data: approve(spender) },
      chain.transferCall({ to: walletOf(order), amountUnits: BigInt(amount) }),
    ]);
    await readBlock();
    expect(await statusesOf(order.id)).toEqual(['submitted']);
  });

  test('whose authorization is in the code of a contract is found without calldata', async () => {
    const order = await newOrder();
    const signed = await submit(order, { nonce: randomNonce() });
    const data = callOf(signed);
    const length = numberToHex(size(data), { size: 2 });
    // Copies the call that follows the code, and makes it: codecopy, call.
    const program = concatHex([
      '0x61',
      length,
      '0x602b600039',
      '0x60006000',
      '0x61',
      length,
      '0x6000600073',
      chain.usdc,
      '0x5af100',
      data,
    ]);
    const address = privateKeyToAccount(generatePrivateKey()).address;
    await chain.client.setCode({ address, bytecode: program });
    await chain.send(chain.accounts[1].address, { to: address, data: '0x' }, 300_000n);
    await readBlock();
    expect(await statusesOf(order.id)).toEqual(['landed']);
    expect(await statusOf(order.id)).toBe('processing');
  });

  test('that the database refuses as a payment keeps its authorization until it is attributed by hand', async () => {
    const order = await newOrder();
    const signed = await submit(order);
    await service.query(`
      create function refuse() returns trigger language plpgsql as $$ begin raise exception 'refused'; end $$;
      create trigger refuse before insert on transfers for each row when (new.payment_intent is not null)
      execute function refuse()`);
    await facilitator.send(signed);
    await readBlock();
    expect(await statusesOf(order.id)).toEqual(['submitted']);
    const { json } = await service.call('listTransfers', { from_address: order.account.address });
    const [{ id } = { id: '' }] = json.transfers;
    const attribute = (payment_intent: string) => service.call('attributeTransfer', { id, payment_intent });
    // The money is still there after the detach: a release that was due before the block has no effect.
    expect((await attribute(order.id)).code).toBe('ok');
    expect((await service.call('detachTransfer', { id })).code).toBe('ok');
    const [due] = await service.query<{ id: string; lease: string }>(
      'select a.id, lease_number as lease from authorizations a, watched_chains where payment_intent = $1 and chain_id = $2',
      [parseIdentifier('pi', order.id), chain.network.chainId],
    );
    const read = { id: due?.id ?? '', isDoubtful: false };
    await watcher.ledger.releaseAuthorizations(BigInt(due?.lease ?? 0), [read]);
    expect(await statusesOf(order.id)).toEqual(['submitted']);
    // Everything is read twice, and the nonce is used: without a transfer, this looks like a cancel.
    await service.query(`update authorizations set created_at = created_at - interval '1 minute'`);
    await readBlock(chain.network.confirmationsRequired);
    await watcher.readAllAgain();
    const look = async () => {
      await watcher.release();
      const next = createTestWatcher(service, { urls: [chain.url] });
      await next.catchUp(chain.mine());
      await next.release();
      return statusesOf(order.id);
    };
    expect(await look()).toEqual(['submitted']);
    await service.query('drop function refuse cascade');
    // Attributed to an order other than the signed one: the money is there, so the payer must not sign again.
    const { id: dearer } = await newOrder({ amount_units: 2 * amount });
    expect((await attribute(dearer)).code).toBe('ok');
    expect(await look()).toEqual(['submitted']);
    expect((await service.call('detachTransfer', { id })).code).toBe('ok');
    expect((await attribute(order.id)).code).toBe('ok');
    expect([await statusOf(order.id), await statusesOf(order.id)]).toEqual(['succeeded', ['landed']]);
    await watcher.catchUp();
  });

  test('to another wallet is attributed as if it did not have the nonce of an intent', async () => {
    const first = await newOrder();
    const signed = await submit(first);
    const wallet_address = privateKeyToAccount(generatePrivateKey()).address;
    const second = await newOrder({ wallet_address });
    await facilitator.send(await sign(first.account, second.offer, { nonce: signed.nonce }));
    await readBlock();
    expect([await statusOf(first.id), await statusOf(second.id)]).toEqual(['requires_payment', 'processing']);
  });

  test('whose authorization two merchants of one wallet received pays an intent of each', async () => {
    const wallet_address = privateKeyToAccount(generatePrivateKey()).address;
    const rival = { apiKey: (await service.newMerchant()).keys.testnet.apiKey };
    const orders = [await newOrder({ wallet_address }), await newOrder({ wallet_address }, rival)] as const;
    const [own, theirs] = orders;
    const signed = await submit(own, { nonce: randomNonce() });
    expect((await pay(theirs.secret, paymentHeader(signed, theirs.offer))).status).toBe(202);
    await facilitator.send(signed);
    await readBlock();
    expect([await statusOf(own.id), await statusOf(theirs.id, rival)]).toEqual(['processing', 'processing']);
  });
});

// Last: the chain's clock stays ahead.
test('a signature must be valid by both clocks, that of the chain and that of the service', async () => {
  const order = await newOrder();
  const head =
    Math.max(Math.floor(Date.now() / 1_000), Number((await chain.client.getBlock()).timestamp)) + 600;
  await watcher.catchUp(chain.mine(1, { timestamp: head }));
  // The token would still accept it.
  const signed = await sign(order.account, order.offer, { validBefore: BigInt(head + 10), validAfter: 0n });
  expect(await pay(order.secret, paymentHeader(signed, order.offer))).toMatchObject({
    status: 402,
    settled: { errorReason: 'invalid_exact_evm_payload_authorization_valid_before' },
  });
});
