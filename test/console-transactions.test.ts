// The console asks the node of a chain why a merchant has no transfer of a transaction.

import { pad, stringToHex } from 'viem';
import { afterAll, describe, expect, test, vi } from 'vitest';
import { transferTopic } from '../src/settlement/node-answers.ts';
import { startChain } from './support/chain.ts';
import { consoleOf, reasonOf } from './support/console.ts';
import { startService } from './support/service.ts';
import { createTestWatcher } from './support/settlement.ts';

const chain = await startChain();
const service = await startService({
  CONSOLE_PORT: '0',
  ROLES: 'api',
  RPC_URL_BASE_SEPOLIA: chain.url,
  // Nothing listens there.
  RPC_URL_POLYGON_AMOY: 'http://127.0.0.1:1',
});
const watcher = createTestWatcher(service, { urls: [chain.url] });
await watcher.catchUp();
afterAll(async () => {
  await service.close();
  await chain.stop();
});
const { merchant, open } = consoleOf(service);
const wallet = service.merchant.wallets.testnet.base as `0x${string}`;
const stranger = '0x00000000000000000000000000000000000057a4';
const payer = chain.accounts[0].address;
const { call } = await open({ merchant });
const find = async (transactionHash: string) =>
  (await call('ConsoleService/FindTransaction', { transactionHash })).json;
const [baseId, polygonId] = ['84532', '80002'];

async function inBlock(hash: Promise<string>, isRead = true): Promise<string> {
  const found = await hash;
  await chain.mine();
  if (isRead) await watcher.catchUp();
  return found;
}

const pay = async (to: `0x${string}`, amountUnits = 5_000n, token = chain.usdc) => {
  await chain.mint(payer, amountUnits, token);
  return chain.transfer({ from: payer, to, amountUnits, token });
};

/** Calls a contract that logs a transfer of its own token to the wallet. */
async function otherToken(): Promise<string> {
  const address = '0x000000000000000000000000000000000000c0de';
  const [to, from] = [wallet, stranger].map((each) => pad(each as `0x${string}`).slice(2));
  // PUSH32 to, PUSH32 from, PUSH32 topic, PUSH1 0, PUSH1 0, LOG3
  const code = `0x7f${to}7f${from}7f${transferTopic.slice(2)}60006000a3` as const;
  await chain.client.setCode({ address, bytecode: code });
  return chain.send(payer, { to: address, data: '0x' });
}

describe('a transaction without a transfer of the merchant', () => {
  test.each<[string, string, () => Promise<string>]>([
    ['NO_TRANSFER', 'moved no token', () => inBlock(chain.send(payer, { to: stranger, data: '0x' }))],
    ['OTHER_WALLET', 'went elsewhere', () => inBlock(pay(stranger))],
    ['OTHER_TOKEN', 'brought another token', () => inBlock(otherToken())],
    ['TOO_LITTLE', 'is worth less than is kept', () => inBlock(pay(wallet, 9_999n))],
    ['NOT_READ', 'is in a block that is not read yet', () => inBlock(pay(wallet, 1_000_000n), false)],
  ])('is %s if it %s', async (finding, _, send) => {
    const hash = await send();
    const found = await find(hash.toUpperCase().replace('0X', '0x'));
    expect(found).toMatchObject({
      finding: `TRANSACTION_FINDING_${finding}`,
      chainId: baseId,
      blockNumber: expect.stringMatching(/^\d+$/),
      askedChainIds: [baseId],
      silentChainIds: [polygonId],
    });
    await watcher.catchUp();
  });

  test('is OUTGOING if the money left a wallet of the merchant', async () => {
    await chain.mint(wallet, 20_000n);
    const hash = await inBlock(chain.transfer({ from: wallet, to: stranger, amountUnits: 20_000n }));
    expect((await find(hash)).finding).toBe('TRANSACTION_FINDING_OUTGOING');
  });

  test('is OTHER_MODE for a session of the other mode', async () => {
    const hash = await inBlock(pay(wallet, 1_000_000n));
    const live = await open({ merchant: { ...merchant, mode: 'mainnet' } });
    const { json } = await live.call('ConsoleService/FindTransaction', { transactionHash: hash });
    expect(json.finding).toBe('TRANSACTION_FINDING_OTHER_MODE');
  });

  test('is NOT_FOUND if no node that answers has it, and the chains of silent nodes are named', async () => {
    expect(await find(`0x${'ab'.repeat(32)}`)).toEqual({
      finding: 'TRANSACTION_FINDING_NOT_FOUND',
      askedChainIds: [baseId],
      silentChainIds: [polygonId],
    });
  });

  test('can be searched ten times a minute by each session', async () => {
    const { call } = await open({ merchant });
    const ask = () => call('ConsoleService/FindTransaction', { transactionHash: `0x${'cd'.repeat(32)}` });
    for (let i = 0; i < 10; i++) expect((await ask()).status).toBe(200);
    const refused = await ask();
    expect([refused.status, reasonOf(refused)]).toEqual([429, 'rate_limited']);
  });

  test.each(['', '0x', 'ab'.repeat(32), `0x${'zz'.repeat(32)}`])(
    'is refused if its hash is "%s"',
    async (text) => {
      expect(await call('ConsoleService/FindTransaction', { transactionHash: text })).toMatchObject({
        status: 400,
      });
    },
  );
});

test('a transfer like a refund, but without its id, is found by it and leads to its payment', async () => {
  const [, { address: destination }] = chain.accounts;
  const intent = (await service.call('createPaymentIntent', { amount_units: 30_000 })).json;
  await chain.mint(payer, 30_000n);
  const suffix = stringToHex(intent.id as string);
  await inBlock(chain.transfer({ from: payer, to: wallet, amountUnits: 30_000n, suffix }));
  await watcher.catchUp(chain.mine(10));
  const asked = { payment_intent: intent.id, destination, amount_units: 30_000 };
  let refund = (await service.call('createRefund', asked)).json.id;
  const sentFor = async () => (await call('ConsoleService/FindRefundTransfers', { refund })).json;
  expect(await sentFor()).toEqual({});
  // A transfer of another amount is not one.
  await chain.mint(wallet, 10_000n);
  await inBlock(chain.transfer({ from: wallet, to: destination, amountUnits: 10_000n }));
  expect(await sentFor()).toEqual({});
  const hash = await inBlock(chain.transfer({ from: wallet, to: destination, amountUnits: 30_000n }));
  // As if recorded by a watcher whose clock is behind.
  await service.query(`update transfers set created_at = created_at - interval '1 minute'`);
  expect(await sentFor()).toEqual({ transactionHashes: [hash] });
  const leading = { finding: 'TRANSACTION_FINDING_OUTGOING', paymentIntent: intent.id };
  expect(await find(hash)).toEqual(leading);
  // The refund is canceled after the transfer was sent, and created again.
  await service.call('cancelRefund', { id: refund });
  refund = (await service.call('createRefund', asked)).json.id;
  expect([await sentFor(), await find(hash)]).toEqual([{ transactionHashes: [hash] }, leading]);
  await service.call('confirmRefund', { id: refund, transaction_hash: hash });
  expect(await sentFor()).toEqual({});
  expect(await find(hash)).toEqual(leading);
});

describe('a chain whose payments nobody sees', () => {
  const chainsOf = async (call: Awaited<ReturnType<typeof open>>['call'], mode: string) => {
    const headers = { 'x-merchant': merchant.id, 'x-mode': mode };
    const { json } = await call('ConsoleService/ListAttention', {}, headers);
    return (json.items ?? [])
      .filter(({ kind }: { kind: string }) => kind === 'ATTENTION_KIND_CHAIN')
      .map((item: { chainId: string; chainState: string }) => [item.chainId, item.chainState]);
  };

  test('is shown to operators until it is watched again', async () => {
    const { call } = await open();
    await service.query('update watched_chains set lease_until = null');
    expect(await chainsOf(call, 'testnet')).toEqual([[baseId, 'CHAIN_STATE_IDLE']]);
    await service.query(
      `update watched_chains set lease_until = now() + interval '2 minutes', seen_at = now() - interval '2 minutes'`,
    );
    vi.spyOn(Date, 'now').mockReturnValue(Date.now() + 180_000);
    const states = chainsOf(call, 'testnet').finally(() => vi.restoreAllMocks());
    expect(await states).toEqual([[baseId, 'CHAIN_STATE_SILENT']]);
    await service.query('update watched_chains set seen_at = now(), head_number = cursor_number + 1001');
    expect(await chainsOf(call, 'testnet')).toEqual([[baseId, 'CHAIN_STATE_BEHIND']]);
    await service.query('update watched_chains set head_number = cursor_number + 1000');
    expect(await chainsOf(call, 'testnet')).toEqual([]);
    expect(await chainsOf(call, 'mainnet')).toEqual([
      ['8453', 'CHAIN_STATE_UNWATCHED'],
      ['137', 'CHAIN_STATE_UNWATCHED'],
    ]);
  });
});
