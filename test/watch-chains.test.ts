// The chains of a running service: nodes, log, metrics, `doctor` and `chain status`.

import type { Address } from 'viem';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { chainNamed, networkFor } from '../src/contract/chains.ts';
import { formatIdentifier, newUuid } from '../src/database/identifiers.ts';
import { createPreparedStatements } from '../src/database/prepared.ts';
import { measureUnattributed } from '../src/settlement/measures.ts';
import { runAdmin } from './support/admin.ts';
import { sessionsWaiting } from './support/blocker.ts';
import { type ChainOptions, startChain, type TestChain } from './support/chain.ts';
import { type LyingNode, startLyingNode } from './support/lying-node.ts';
import { metric, untilMetric } from './support/metrics.ts';
import { openClient } from './support/open-client.ts';
import { startService, type TestService } from './support/service.ts';
import { createMerchantCalls, idBytes } from './support/settlement.ts';
import { anyPorts, bareEnvironment, databaseUrl, newSecrets } from './support/test-environment.ts';
import { insertTransfers } from './support/transfer-rows.ts';
import { useChain } from './support/use-service.ts';

/** A chain that stands for Base Sepolia. */
const chain = await useChain();

/** Closed after each test, the last one first. */
let opened: (() => Promise<void>)[] = [];

afterEach(async () => {
  for (const close of opened.reverse()) await close();
  opened = [];
});

async function openService(env: Record<string, string> = {}): Promise<TestService> {
  const service = await startService(env);
  opened.push(() => service.close());
  return service;
}

async function openChain(options: ChainOptions): Promise<TestChain> {
  const another = await startChain(options);
  opened.push(() => another.stop());
  return another;
}

async function openNode(): Promise<LyingNode> {
  const node = await startLyingNode(chain.url);
  opened.push(() => node.close());
  return node;
}

/** Makes a service watch Base Sepolia, and look for a new block twenty times a second. */
const watch = ({ server }: TestService, ...urls: [string, ...string[]]) =>
  server.watch([{ ...chainNamed('testnet', 'base'), urls }], 50);

const ofBase = (name: string) => `payment_intents_chain_${name}{mode="testnet",chain="base"}`;

describe('a node on another chain', () => {
  test.each([
    ['first', (wrong: string, right: string) => [wrong, right]],
    ['second', (wrong: string, right: string) => [right, wrong]],
  ])('prevents the start as %s node, and the message names the variable', async (_, order) => {
    const polygon = await openChain({ network: networkFor('testnet', 'polygon') });
    const urls = order(polygon.url, chain.url).join();
    await expect(startService({ RPC_URL_BASE_SEPOLIA: urls })).rejects.toThrow(
      `RPC_URL_BASE_SEPOLIA is not usable: ${new URL(polygon.url).host} is on chain 80002 instead of 84532`,
    );
  });
});

test('a node that is down at the start is read once it answers', async () => {
  const node = await openNode();
  node.lie('rate limit error');
  const service = await openService({ RPC_URL_BASE_SEPOLIA: node.url });
  const warning = await service.loggedLine(({ variable }) => variable === 'RPC_URL_BASE_SEPOLIA');
  expect(warning).toMatchObject({ level: 'warn', message: expect.stringMatching(/it is asked again$/) });
  // The alert for a chain that is not seen compares this metric with the time.
  expect(await metric(service, ofBase('seen_timestamp_seconds'))).toBe(0);
  node.lie(undefined);
  await untilMetric(service, ofBase('seen_timestamp_seconds'), (seen) => seen > 0);
  await service.loggedLine(({ message }) => message === 'watching the chain');
});

test('a chain without a node is reported in the log and by a metric, and intents can still be created', async () => {
  const service = await openService({ RPC_URL_BASE_SEPOLIA: chain.url });
  expect(service.log.find(({ variables }) => variables !== undefined)).toMatchObject({
    level: 'info',
    chains: ['mainnet base', 'mainnet polygon', 'testnet polygon'],
    variables: ['RPC_URL_BASE', 'RPC_URL_POLYGON', 'RPC_URL_POLYGON_AMOY'],
  });
  expect(await metric(service, ofBase('watched'))).toBe(1);
  expect(await metric(service, 'payment_intents_chain_watched{mode="mainnet",chain="base"}')).toBe(0);
  const created = await createMerchantCalls(service).createIntent({ chain: 'polygon' });
  expect(created.status).toBe('requires_payment');
});

test('the age of payments that have enough confirmations but are not confirmed is measured', async () => {
  const node = await openNode();
  const service = await openService();
  await watch(service, chain.url, node.url);
  await service.loggedLine(({ message }) => message === 'watching the chain');
  await untilMetric(service, ofBase('unconfirmed_oldest_seconds'), (oldest) => oldest === 0);
  const intent = await createMerchantCalls(service).createIntent();
  const { address: from } = chain.accounts[0] as { address: Address };
  const payment = { to: intent.expected_wallet, amountUnits: 12_500_000n, suffix: idBytes(intent.id) };
  await chain.mint(from, 2n * payment.amountUnits - 1n);
  node.lie('null receipts');
  // A transfer that no node proves and that may belong to either intent is nobody's payment.
  await createMerchantCalls(service).createIntent();
  await chain.transfer({ from, to: intent.expected_wallet, amountUnits: payment.amountUnits - 1n });
  await chain.mine(12);
  await service.loggedLine(({ message }) => String(message).startsWith('transfers are due for confirmation'));
  expect(await metric(service, ofBase('unconfirmed_oldest_seconds'))).toBe(0);
  await chain.transfer({ from, ...payment });
  await chain.mine(12);
  await untilMetric(service, ofBase('unconfirmed_oldest_seconds'), (oldest) => oldest > 0);
  expect((await createMerchantCalls(service).getIntent(intent.id)).status).toBe('processing');
  node.lie(undefined);
  await untilMetric(service, ofBase('unconfirmed_oldest_seconds'), (oldest) => oldest === 0);
  expect((await createMerchantCalls(service).getIntent(intent.id)).status).toBe('succeeded');
});

test('an intent whose payments are found late is reported once', async () => {
  const service = await openService();
  await watch(service, chain.url);
  const intent = await createMerchantCalls(service).createIntent();
  await service.query(`update payment_intents set status = 'expired', expired_at = now()`, []);
  const { address: from } = chain.accounts[0] as { address: Address };
  await chain.mint(from, 2n);
  for (const count of [1, 2]) {
    await chain.transfer({ from, to: intent.expected_wallet, amountUnits: 1n, suffix: idBytes(intent.id) });
    await chain.mine(1);
    await untilMetric(
      service,
      ofBase('events_total').replace('}', ',type="payment_intent.late_payment"}'),
      (late) => late === count,
    );
  }
  expect(await metric(service, ofBase('found_late_total'))).toBe(1);
  const reports = service.log.filter(({ event }) => event === 'payment_intent.late_payment');
  expect(reports).toMatchObject([{ level: 'error' }, { level: 'info' }]);
});

test('only the lease holder exports chain metrics', async () => {
  const service = await openService();
  await watch(service, chain.url);
  const late = 'payment_intents_expiry_lag_seconds{clock="testnet base"}';
  await untilMetric(service, late, (lag) => lag === 0);
  // Simulates another process that has taken the lease.
  await service.query(
    `update watched_chains set lease_number = lease_number + 1, lease_holder = uuidv7(), lease_until = now() + $1`,
    ['1 minute'],
  );
  await service.loggedLine(
    ({ message }) => message === 'another process watches this chain now, or none does',
  );
  expect(await metric(service, late)).toBeUndefined();
  expect(await metric(service, ofBase('unconfirmed_oldest_seconds'))).toBeUndefined();
  expect(await metric(service, ofBase('head_block'))).toBeUndefined();
  expect(await metric(service, 'payment_intents_expiry_lag_seconds{clock="service"}')).toBe(0);
});

test('the log names the largest unattributed transfer of a block', async () => {
  const service = await openService();
  await watch(service, chain.url);
  await service.loggedLine(({ message }) => message === 'watching the chain');
  const { address: from } = chain.accounts[0] as { address: Address };
  const to = service.merchant.wallets.testnet.base;
  await chain.mint(from, 10_000_000n);
  const hashes = [
    await chain.transfer({ from, to, amountUnits: 3_000_000n }),
    await chain.transfer({ from, to, amountUnits: 5_000_000n }),
  ];
  await chain.mine();
  const { event, ...line } = await service.loggedLine(({ event }) => event === 'transfer.unattributed');
  const { transfers } = (await service.call('listTransfers', {})).json;
  const largest = transfers.find(({ transaction_hash }) => transaction_hash === hashes[1]);
  expect(line).toEqual({
    level: 'info',
    time: expect.any(String),
    mode: 'testnet',
    chain: 'base',
    merchant_id: service.merchant.merchantId,
    transfer: largest?.id,
    transaction_hash: hashes[1],
    amount_units: 5_000_000,
    transfers: 2,
    message: 'a block has unattributed transfers; this is the largest',
  });
});

test('the age of unattributed transfers is that of the oldest one of seven days, of any merchant', async () => {
  const service = await openService({ ROLES: 'api' });
  const { run } = createPreparedStatements(service.database.orm.em);
  const measure = () => measureUnattributed(run);
  expect(await measure()).toEqual({ count: 0, oldestMs: 0 });
  const hoursAgo = (hours: number) => new Date(Date.now() - hours * 3_600_000);
  const other = await service.newMerchant();
  await insertTransfers(service, service.merchant, [
    { createdAt: hoursAgo(24 * 8) },
    { createdAt: hoursAgo(5) },
    { createdAt: hoursAgo(50), state: 'reorged' },
    { createdAt: hoursAgo(3), mode: 'mainnet' },
  ]);
  await insertTransfers(service, other, [{ createdAt: hoursAgo(30) }, { createdAt: hoursAgo(20) }]);
  const { count, oldestMs } = await measure();
  expect(count).toBe(5);
  expect(Math.round(oldestMs / 3_600_000)).toBe(30);
  // Somebody has seen to the oldest, as it was then.
  await service.query(
    `insert into resolved_attention (merchant_id, mode, item, note, resolved_at)
     select merchant_id, mode, 'unattributed:' || id || ':', '', now() from transfers where created_at < now() - interval '29 hours'`,
  );
  const hours = async () => Math.round((await measure()).oldestMs / 3_600_000);
  expect(await hours()).toBe(20);
  await service.query(
    "update transfers set is_detached = true where created_at < now() - interval '29 hours'",
  );
  expect(await hours()).toBe(30);
});

test('the metric of units received today sums the confirmed payments that count, by mode and chain', async () => {
  const service = await openService({ ROLES: 'api' });
  const paymentIntent = formatIdentifier('pi', newUuid());
  const today = { paymentIntent, state: 'confirmed' } as const;
  const midnight = new Date().setUTCHours(0, 0, 0, 0);
  await insertTransfers(service, service.merchant, [
    { ...today, amountUnits: 1_000_000, createdAt: new Date(midnight) },
    { ...today, amountUnits: 2_500_000 },
    { ...today, amountUnits: 10, createdAt: new Date(midnight - 1) },
    { ...today, amountUnits: 20, state: 'pending' },
    { ...today, amountUnits: 30, state: 'reorged' },
    { ...today, amountUnits: 40, labels: ['late'] },
    { state: 'confirmed', amountUnits: 50 },
    { ...today, amountUnits: 7, mode: 'mainnet', chain: 'polygon' },
  ]);
  await watch(service, chain.url);
  const received = (labels: string) => `payment_intents_received_today_units{${labels},token="USDC"}`;
  await untilMetric(service, received('mode="testnet",chain="base"'), (units) => units === 3_500_000);
  expect(await metric(service, received('mode="mainnet",chain="polygon"'))).toBe(7);
  expect(await metric(service, received('mode="mainnet",chain="base"'))).toBe(0);
});

describe('the command line', () => {
  let service: TestService;

  function admin(env: Record<string, string>, ...args: string[]) {
    const DATABASE_URL = databaseUrl(service.location);
    return runAdmin(args, { ...bareEnvironment(), ...newSecrets(), ...anyPorts, DATABASE_URL, ...env });
  }

  async function doctor(url = chain.url): Promise<{ ok: boolean; message: string }> {
    const { stdout } = await admin({ RPC_URL_BASE_SEPOLIA: url }, 'doctor', '--json');
    return JSON.parse(stdout).find(({ check }: { check: string }) => check === 'chains');
  }

  beforeEach(async () => {
    service = await openService();
  });

  /** Watches the chain until everything is read. */
  async function watched(): Promise<void> {
    await watch(service, chain.url);
    await service.loggedLine(({ message }) => message === 'watching the chain');
    const head = Number((await chain.client.getBlock()).number);
    await untilMetric(service, ofBase('read_block'), (block) => block === head);
  }

  test('chain status has a line for each chain, with its nodes', async () => {
    await watched();
    const other = await openNode();
    other.lie('rate limit error');
    const urls = `${chain.url},${other.url}/secret-path`;
    const { stdout } = await admin({ RPC_URL_BASE_SEPOLIA: urls }, 'chain', 'status', '--json');
    const head = Number((await chain.client.getBlock()).number);
    const rows = JSON.parse(stdout);
    expect(rows.map((row: { mode: string; chain: string }) => `${row.mode} ${row.chain}`).sort()).toEqual([
      'mainnet base',
      'mainnet polygon',
      'testnet base',
      'testnet polygon',
    ]);
    const base = rows.find((row: { chain_id: number }) => row.chain_id === 84532);
    expect(base).toMatchObject({
      watched: true,
      head,
      read: head,
      watcher: expect.stringMatching(/^[0-9a-f-]{36}$/),
      nodes: [
        { name: new URL(chain.url).host, head, problem: null },
        { name: new URL(other.url).host, head: null, problem: expect.stringMatching(/rate limit exceeded/) },
      ],
    });
    expect(rows.find((row: { chain_id: number }) => row.chain_id === 8453)).toEqual({
      mode: 'mainnet',
      chain: 'base',
      chain_id: 8453,
      watched: false,
      nodes: [],
    });
    const { stdout: table } = await admin({ RPC_URL_BASE_SEPOLIA: urls }, 'chain', 'status');
    expect(table).toMatch(/watcher +│ running/);
    expect(table).toContain(`${new URL(chain.url).host} at ${head}`);
    expect(table).not.toContain('secret-path');
  });

  test('doctor finds a mainnet key whose chain is not watched, and names the variable', async () => {
    await watched();
    const message = (chain: string, variables: string) =>
      `mainnet${chain} is not watched, but a mainnet key exists: set ${variables} on a process with the role watcher, or revoke the key`;
    const [ofBase, ofPolygon] = [message(' base', 'RPC_URL_BASE'), message(' polygon', 'RPC_URL_POLYGON')];
    expect(await doctor()).toEqual({ check: 'chains', ok: false, message: `${ofBase}; ${ofPolygon}` });
    await service.query(`delete from payout_wallets where mode = 'mainnet' and chain = 'polygon'`);
    expect(await doctor()).toMatchObject({ ok: false, message: ofBase });
    await service.query(`delete from payout_wallets where mode = 'mainnet'`);
    expect(await doctor()).toMatchObject({
      ok: false,
      message: message('', 'RPC_URL_BASE or RPC_URL_POLYGON'),
    });
  });

  test.each([
    ['revoked', 'revoked_at'],
    ['expired', 'expires_at'],
  ])('doctor finds no problem if a chain is read and every mainnet key is %s', async (_, column) => {
    await watched();
    await service.query(`update api_keys set ${column} = now() where mode = 'mainnet'`);
    expect(await doctor()).toEqual({
      check: 'chains',
      ok: true,
      message: expect.stringMatching(
        /^testnet base \(newest block \d+ s old\) watched; .*mainnet base.* not watched: payments there are not seen/,
      ),
    });
  });

  test('doctor finds a chain that is no longer watched', async () => {
    await watched();
    await service.server.close();
    expect(await doctor()).toMatchObject({
      ok: false,
      message: expect.stringContaining('testnet base: no process watches it, so its payments are not seen'),
    });
  });

  test('doctor blames only the nodes if none answers', async () => {
    await watched();
    await service.server.close();
    const { message } = await doctor('http://127.0.0.1:1');
    expect(message).toContain('testnet base: its payments are not seen: its watcher waits for a node');
    expect(message).not.toContain('unwatch');
  });

  test('doctor says that a chain with a node will be watched when a process starts', async () => {
    await service.query(`delete from watched_chains`);
    await service.query(`update api_keys set revoked_at = now() where mode = 'mainnet'`);
    expect((await doctor()).message).toMatch(
      /testnet base watched from the start of a process .*mainnet base/,
    );
  });

  test('doctor finds a node on another chain', async () => {
    const polygon = await openChain({ network: networkFor('testnet', 'polygon') });
    expect(await doctor(polygon.url)).toMatchObject({
      ok: false,
      message: expect.stringContaining('is on chain 80002 instead of 84532'),
    });
  });

  test.each([
    [
      'a chain that has stopped',
      -125,
      /the newest block of .* is \d+ s old: the chain or the node has stopped/,
    ],
    ['a clock that is wrong', 60, /the newest block of .* is \d+ s ahead of this machine's clock/],
  ])('doctor finds %s', async (_, seconds, message) => {
    const { url } = await openChain({ genesisTimestamp: Math.floor(Date.now() / 1000) + seconds });
    expect(await doctor(url)).toMatchObject({ ok: false, message: expect.stringMatching(message) });
  });

  test('doctor reports a chain that is read too late', async () => {
    await watched();
    await chain.mine(100);
    await untilMetric(service, ofBase('read_block'), (block) => block > 100);
    // A running watcher would overwrite these columns.
    await service.server.close();
    await service.query(
      `update watched_chains set head_number = cursor_number + 601, finalized_number = second_number + 4501,
                                 cursor_time = now() - interval '1 hour', lease_until = now() + interval '1 minute'`,
    );
    const late = /testnet base: 601 blocks behind its node; testnet base: 4501 final blocks are not verified/;
    expect(await doctor()).toMatchObject({ ok: false, message: expect.stringMatching(late) });
    // Also without a configured node.
    const stopped = /testnet base: the last block that was read is 36\d\d s old/;
    expect(await doctor('')).toMatchObject({ ok: false, message: expect.stringMatching(stopped) });
  });

  test('chain unwatch leaves no header of a block that is being recorded', async () => {
    await watched();
    await service.server.close();
    const recording = await openClient(service.location);
    await recording.query('begin; update watched_chains set lease_number = lease_number + 1');
    const unwatched = admin({}, 'chain', 'unwatch', '--mode', 'testnet', '--chain', 'base', '--yes');
    await sessionsWaiting(service, 1);
    await recording.query(`
      insert into block_headers select chain_id, 1 + max(number), '\\x01'::bytea, now()
        from block_headers group by chain_id;
      commit`);
    await recording.end();
    expect(await unwatched).toMatchObject({ code: 0 });
    expect(await service.query('select from block_headers')).toEqual([]);
  });

  test('chain unwatch removes the chain and keeps its transfers', async () => {
    await watched();
    await service.server.close();
    const [id] = await insertTransfers(service, service.merchant, [{}]);
    const unwatch = () =>
      admin({}, 'chain', 'unwatch', '--mode', 'testnet', '--chain', 'base', '--yes', '--json');
    const { stdout, stderr } = await unwatch();
    expect(JSON.parse(stdout)).toEqual({ mode: 'testnet', chain: 'base', watched: 'no' });
    expect(stderr).toContain('on testnet base that are pending stay so until it is watched again');
    expect(await service.query('select from watched_chains')).toEqual([]);
    expect(await service.query('select from block_headers')).toEqual([]);
    expect(await service.query('select from transfers')).toHaveLength(id === undefined ? 0 : 1);
    expect((await unwatch()).stderr).toContain('testnet base is not watched');
  });
});
