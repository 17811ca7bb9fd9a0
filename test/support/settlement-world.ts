// The world of random histories: a real chain, a service with its database, and the watcher between them. One
// world serves many histories. Each begins in the same state.

import {
  type Address,
  encodeFunctionData,
  erc20Abi,
  type Hex,
  keccak256,
  maxUint256,
  multicall3Abi,
  numberToHex,
  parseGwei,
} from 'viem';
import { type PrivateKeyAccount, privateKeyToAccount } from 'viem/accounts';
import { createReportFolding } from '../../src/console/reports.ts';
import { bridgedUsdcAddresses } from '../../src/contract/chains.ts';
import { formatIdentifier, parseIdentifier } from '../../src/database/identifiers.ts';
import { createOrm } from '../../src/database/orm.ts';
import { mintCall } from '../../src/embedded/contracts.ts';
import { isServerGone } from '../../src/requests/unavailable.ts';
import { type Call, startChain } from './chain.ts';
import { issuer } from './chain-contracts.ts';
import { startLyingNode } from './lying-node.ts';
import { startPostgresProxy } from './postgres-proxy.ts';
import { createRefundWorld, destinations } from './refund-world.ts';
import { sumsOfMoney, wrongFigures, wrongSums } from './report-recount.ts';
import { startService } from './service.ts';
import { createMerchantCalls, createTestWatcher, idBytes } from './settlement.ts';
import type { Command, Liar, PayCommand } from './settlement-histories.ts';
import type { ModelBlock, ModelTransfer, TransferWay } from './settlement-model.ts';
import { callOf, gaslessLine, nonceOf, paymentHeader, sign, startTestFacilitator } from './x402.ts';

/** Seconds between two blocks. */
export const blockSeconds = 2;
/** One sender for each transfer that a history can have, so that any transfer can return in any block. */
const senders = Array.from({ length: 42 }, (_, i) =>
  privateKeyToAccount(numberToHex(1_000_000 + i, { size: 32 })),
);
/** Payers take turns, because each may sign only ten times a minute, across all histories. */
const payers = Array.from({ length: 1_000 }, (_, i) =>
  privateKeyToAccount(numberToHex(3_000_000 + i, { size: 32 })),
);
/** As many wallets as a history can have intents. */
const wallets = Array.from({ length: 21 }, (_, i) =>
  privateKeyToAccount(numberToHex(2_000_000 + i, { size: 32 })),
);

export interface WorldIntent {
  id: string;
  clientSecret: string;
  wallet: Address;
  /** The key of the wallet, while it has signed nothing. */
  key: PrivateKeyAccount | undefined;
  token: Address;
  hasOwnWallet: boolean;
  amountUnits: number;
  /** In whole seconds. */
  expiresAt: number;
}

/** A transfer that is signed and can be in any block. */
export interface SignedTransfer extends ModelTransfer {
  hash: Hex;
  raw: Hex;
  /** Blocks from this time on do not include it. */
  validBefore?: number;
}

export interface WorldBlock extends ModelBlock {
  readonly transfers: readonly SignedTransfer[];
}

/** An intent in the database. Labels are in alphabetical order, types of events without `payment_intent.`. */
export interface StoredIntent {
  status: string;
  receivedUnits: number;
  refundedUnits: number;
  paymentsCount: number;
  labels: string[];
  events: string[];
}

export interface StoredEvent {
  type: string;
  sequence: number;
  data: { payment_intent: ReportedIntent };
}

/** An intent in the API and in its events. */
export interface ReportedIntent {
  status: string;
  amount_received_units: number;
  payments_count: number;
  labels?: string[];
  payments?: {
    transaction_hash: Hex;
    amount_units: number;
    status: string;
    confirmations: number;
    labels?: string[];
  }[];
}

export type Watcher = ReturnType<typeof createTestWatcher>;
export type World = Awaited<ReturnType<typeof startWorld>>;

/** One of so many commits of the watchers is done, but its answer is lost with the connection. */
const commitsPerLoss = 13;

/** Starts a world. The caller closes it. `losesCommits`: watchers do not get the answers to some commits. */
export async function startWorld({ losesCommits = false } = {}) {
  const chain = await startChain();
  const facilitator = await startTestFacilitator(chain);
  // It refuses every authorization, whoever sends it.
  facilitator.behaviour = { '/verify': () => ({ isValid: false }) };
  const service = await startService({
    ROLES: 'api',
    RPC_URL_BASE_SEPOLIA: chain.url,
    X402_FACILITATOR_URL_BASE_SEPOLIA: facilitator.url,
    RATE_LIMIT_CHECKOUT: '0',
  });
  await service.loggedLine(({ message }) => message === gaslessLine);
  // Crashes of PostgreSQL are not tested here, so commits need not wait for the disk.
  await service.query(`alter database ${service.location.database} set synchronous_commit = off`);
  const calls = createMerchantCalls(service);
  let commits = 0;
  const { socketFolder, user, database } = service.location;
  const proxy = await startPostgresProxy(`${socketFolder}/.s.PGSQL.5432`, user, () => ({ type, body }) => {
    const isLost = type === 'C' && /^COMMIT/.test(body.toString()) && ++commits % commitsPerLoss === 0;
    return isLost ? 'cut' : 'forward';
  });
  const orm = createOrm({ url: proxy.url.replace(/[^/]*$/, database) }, 4);
  const watched = losesCommits ? { ...service, database: { ...service.database, orm } } : service;
  // Anvil's chain may restart from the beginning, so the node claims to be Geth.
  const node = await startLyingNode(chain.url, { clientVersion: 'Geth/v1.15.11' });
  const { chainId } = chain.network;

  const foldReports = createReportFolding(service.database.orm.em);
  const rpc = (method: string, params: unknown[]) => chain.client.request({ method, params } as never);
  for (const { address } of senders) {
    await chain.fund(address);
    await chain.mint(address, 1_000_000n);
    await chain.mint(address, 1_000_000n, bridgedUsdcAddresses.usdcE);
  }
  const money = payers.map(({ address }) => ({ to: chain.usdc, data: mintCall(address, 1_000_000n) }));
  await chain.sendMany(issuer, money);
  await chain.mint(chain.multicall3Address, 1_000_000_000n);
  const payoutWallet = service.merchant.wallets.testnet.base as Address;
  const approval = { functionName: 'approve', args: [chain.multicall3Address, maxUint256] } as const;
  for (const address of [payoutWallet, ...wallets.map((wallet) => wallet.address)]) {
    await chain.fund(address);
    await chain.mint(address, 1_000_000n);
    await chain.send(address, { to: chain.usdc, data: encodeFunctionData({ abi: erc20Abi, ...approval }) });
  }
  await chain.mine(5);
  await rpc('anvil_setBlockTimestampInterval', [blockSeconds]);
  const revert = await chain.checkpoint();
  const first = createTestWatcher(service, { urls: [chain.url] });
  await first.catchUp();
  await first.release();
  const base = await first.ledger.progress().then((progress) => progress?.cursor);
  if (base === undefined) throw new Error('the chain was not read');
  const [{ cursor_hash: baseHash } = { cursor_hash: undefined }] = await service.query<{
    cursor_hash: Buffer;
  }>('select cursor_hash from watched_chains');
  let sent = 0;
  let walletsUsed = 0;
  let signedBy = 0;
  let forks = 0;

  const urlsOf: Record<Liar, [string, ...string[]]> = {
    nobody: [chain.url],
    'the only node': [node.url],
    'the first of two nodes': [node.url, chain.url],
    'the second of two nodes': [chain.url, node.url],
  };

  const nextSender = (): PrivateKeyAccount => {
    const sender = senders[sent++];
    if (sender === undefined) throw new Error('a history has more transfers than there are senders');
    return sender;
  };

  /** Signs a transaction, which is in no block yet. Each account can sign only one. */
  const signed = async (by: PrivateKeyAccount, call: Call, through?: 'Multicall3') => {
    const raw = await by.signTransaction({
      chainId,
      type: 'eip1559',
      // The wallets' first transaction was the approval of Multicall3.
      nonce: wallets.includes(by) ? 1 : 0,
      gas: 300_000n,
      maxFeePerGas: parseGwei('10'),
      maxPriorityFeePerGas: 1n,
      ...(through ? { to: chain.multicall3Address, data: multicallData(call) } : call),
    });
    return { hash: keccak256(raw), raw };
  };

  const transferOf = async (hash: Hex, condition = 'true'): Promise<string | undefined> => {
    const found = `select id from transfers where transaction_hash = $1 and ${condition}`;
    const [row] = await service.query<{ id: string }>(found, [`\\x${hash.slice(2)}`]);
    return row && formatIdentifier('tr', row.id);
  };

  return {
    node,
    refunds: createRefundWorld(service),
    payoutWallet,

    /** Takes the chain and the database back to the beginning. Returns the time of the newest block, in whole seconds. */
    async begin(): Promise<number> {
      node.lie(undefined);
      await revert();
      await service.query('delete from refunds');
      await service.query('delete from authorizations');
      await service.query('delete from payment_intents');
      await service.query('delete from events');
      await service.query('delete from transfers');
      await service.query('truncate report_changes, report_hours, payment_sums');
      await service.query('delete from block_headers where number > $1', [base.number]);
      await service.query(
        `update watched_chains set cursor_number = $1, cursor_hash = $2, cursor_time = $3, second_number = $1,
                                   head_number = $1, finalized_number = 0, lease_until = null`,
        [base.number, baseHash, base.time],
      );
      sent = 0;
      walletsUsed = 0;
      // Ahead of the service's clock, because only a block that is not older than an intent can pay it.
      const time = Math.ceil(Date.now() / 1000) + 60;
      // Anvil keeps only the state of the newest blocks. This one is new enough to be reorganised back to.
      await rpc('evm_mine', [{ timestamp: time, blocks: 1 }]);
      return time;
    },

    losesCommits,
    watcher: (liar: Liar): Watcher =>
      createTestWatcher(watched, {
        urls: urlsOf[liar],
        ...(losesCommits && { isRepeated: isServerGone }),
      }),
    /** Simulates that the watching process was killed and its lease has expired. */
    endLease: () => service.query(`update watched_chains set lease_until = now() - interval '1 second'`),

    async createIntent(wallet: (Command & { do: 'create' })['wallet']): Promise<WorldIntent> {
      const amountUnits = 100;
      const key = wallet === 'own' ? wallets[walletsUsed++] : undefined;
      const address = wallet === 'destination' ? destinations[0] : key?.address;
      const {
        id,
        client_secret: clientSecret,
        expected_wallet,
        token_address: token,
      } = await calls.createIntent({
        amount_units: amountUnits,
        expires_in_minutes: 5,
        ...(address && { wallet_address: address }),
      });
      // Blocks have whole seconds, so that a block can be at exactly this time.
      const [row] = await service.query<{ expires_at: Date }>(
        `update payment_intents
            set created_at = date_trunc('second', created_at), expires_at = date_trunc('second', expires_at)
          where id = $1 returning expires_at`,
        [parseIdentifier('pi', id)],
      );
      const expiresAt = Number(row?.expires_at) / 1000;
      const hasOwnWallet = wallet !== 'shared';
      // Half of the intents have stored sums, as if they had very many payments.
      if (hasOwnWallet)
        await service.query(`insert into payment_sums values ($1, 'pending', false, '{}', 0, 0)`, [
          parseIdentifier('pi', id),
        ]);
      return { id, clientSecret, wallet: expected_wallet, key, token, hasOwnWallet, amountUnits, expiresAt };
    },
    /** Cancels an intent. Returns false if that is refused. */
    async cancelIntent({ id }: WorldIntent): Promise<boolean> {
      return (await calls.cancelIntent(id)).status === 'canceled';
    },
    getIntent: ({ id }: WorldIntent): Promise<ReportedIntent> => calls.getIntent(id),
    /** Returns figures that differ from a recount. Changes since the last call are not folded yet. */
    async wrongFigures(): Promise<unknown[]> {
      const wrong = [...(await service.query(wrongFigures)), ...(await service.query(wrongSums))];
      await foldReports();
      return wrong;
    },
    sumsOfMoney: () => sumsOfMoney(service),

    /** Signs a transfer, which is in no block yet. */
    async sign(
      place: number,
      { id, wallet: to, hasOwnWallet }: WorldIntent,
      amountUnits: number,
      way: PayCommand['way'],
    ): Promise<SignedTransfer> {
      const isUsdc = way !== 'in USDC.e';
      // A wallet that several intents have does not identify an intent.
      const hasId = way !== 'without the id' || !hasOwnWallet;
      const call = chain.transferCall({
        to,
        amountUnits: BigInt(amountUnits),
        ...(hasId && { suffix: idBytes(id) }),
        ...(!isUsdc && { token: bridgedUsdcAddresses.usdcE }),
      });
      const through = way === 'through Multicall3' ? 'Multicall3' : undefined;
      return { intent: place, amountUnits, isUsdc, ...(await signed(nextSender(), call, through)) };
    },
    /** Signs a transfer that does not name an intent. The sender is another account unless it has a key. */
    async signOther(
      { from, to, named }: Pick<TransferWay, 'named'> & { from: WorldIntent | undefined; to: Address },
      amountUnits: number,
      suffix?: Hex,
    ): Promise<SignedTransfer> {
      const usesKey = from?.key !== undefined && named !== undefined;
      const by = usesKey ? (from.key as PrivateKeyAccount) : nextSender();
      const way = { from: from?.wallet ?? by.address, to, named };
      // A transfer of somebody else's money names nothing.
      const isMoved = from !== undefined && !usesKey;
      const args = [way.from, to, BigInt(amountUnits)] as const;
      const call = isMoved
        ? { to: chain.usdc, data: encodeFunctionData({ abi: erc20Abi, functionName: 'transferFrom', args }) }
        : chain.transferCall({ to, amountUnits: BigInt(amountUnits), suffix });
      if (usesKey) from.key = undefined;
      const made = await signed(by, call, isMoved ? 'Multicall3' : undefined);
      return { intent: undefined, way, amountUnits, isUsdc: true, ...made };
    },

    missingUnits: async ({ id, amountUnits }: WorldIntent): Promise<number> =>
      amountUnits - (await calls.getIntent(id)).amount_received_units,
    /** Signs an authorization and submits it. Anybody can send it, whether the service takes it or not. */
    async authorize(
      place: number,
      { id, clientSecret, wallet, token }: WorldIntent,
      { units, validBefore, nonce }: { units: number; validBefore: number; nonce: string },
    ): Promise<{ isTaken: boolean; transfer: SignedTransfer }> {
      const payer = payers[signedBy++ % payers.length] as PrivateKeyAccount;
      const offer = {
        scheme: 'exact',
        network: `eip155:${chainId}`,
        amount: String(units),
        asset: token,
        payTo: wallet,
        maxTimeoutSeconds: 300,
        extra: { name: 'USDC', version: '2' },
      };
      const signature = await sign(payer, offer, {
        validBefore: BigInt(validBefore),
        ...(nonce === 'random' ? {} : { nonce: nonceOf(id) }),
      });
      const answer = await fetch(`${service.publicUrl}/v1/checkout/pay`, {
        method: 'POST',
        headers: {
          authorization: `Bearer ${clientSecret}`,
          'payment-signature': paymentHeader(signature, offer),
        },
      });
      // 200: the intent is paid, whatever a reorganisation has reverted.
      if (![200, 202, 402, 409].includes(answer.status)) throw new Error(`pay answered ${answer.status}`);
      const isTaken = answer.status === 202;
      const call = { to: chain.usdc, data: callOf(signature) };
      const made = isTaken ? await signed(nextSender(), call) : { hash: '0x' as Hex, raw: '0x' as Hex };
      return { isTaken, transfer: { intent: place, amountUnits: units, isUsdc: true, validBefore, ...made } };
    },
    /** Their statuses, in the order in which they were taken. */
    authorizationStatuses: async (): Promise<string[]> =>
      (await service.query<{ status: string }>('select status from authorizations order by id')).map(
        ({ status }) => status,
      ),

    /** Attributes a transfer to the intent by hand. Returns false if that is refused. */
    async attribute({ hash }: SignedTransfer, { id: payment_intent }: WorldIntent): Promise<boolean> {
      const id = await transferOf(hash);
      if (id === undefined) return false;
      const fields = { id, payment_intent, allow_ended: true };
      return (await service.call('attributeTransfer', fields)).code === 'ok';
    },
    /** Detaches a transfer. Returns false if that is refused, or the transfer is not a payment. */
    async detach({ hash }: SignedTransfer): Promise<boolean> {
      const id = await transferOf(hash, 'payment_intent is not null');
      return id !== undefined && (await service.call('detachTransfer', { id })).code === 'ok';
    },

    /** Mines a block. */
    async mine({ time, transfers }: WorldBlock): Promise<void> {
      for (const { raw } of transfers) await rpc('eth_sendRawTransaction', [raw]);
      await rpc('evm_mine', [{ timestamp: time, blocks: 1 }]);
    },
    /** Mines blocks without transfers, `blockSeconds` apart. Must not directly follow a reorganisation. */
    mineEmpty: (blocks: number) => rpc('anvil_mine', [numberToHex(blocks)]),
    /** The time of the newest block, in whole seconds. */
    headTime: async () => Number((await chain.client.getBlock()).timestamp),
    /** Removes the newest blocks. Their replacements differ, even if they are empty and of the same time. */
    async rollBack(blocks: number): Promise<void> {
      await rpc('anvil_rollback', [blocks]);
      await rpc('anvil_setCoinbase', [numberToHex(++forks, { size: 20 })]);
    },

    /** Returns the stored intents in this order. */
    async stored(intents: readonly WorldIntent[]): Promise<(StoredIntent | undefined)[]> {
      const rows = await service.query(
        `select i.id, i.status, i.amount_received_units::int as "receivedUnits",
                coalesce(i.amount_refunded_units, 0)::int as "refundedUnits", i.payments_count as "paymentsCount",
                array(select unnest(i.labels) order by 1) as labels,
                array(select replace(type, 'payment_intent.', '') from events e
                       where e.payment_intent = i.id order by e.sequence) as events
           from payment_intents i`,
      );
      const byId = new Map(rows.map(({ id, ...row }) => [id, row as StoredIntent]));
      return intents.map(({ id }) => byId.get(parseIdentifier('pi', id)));
    },
    /** Returns the events in the order of their sequence. */
    async eventsOf({ id }: WorldIntent): Promise<StoredEvent[]> {
      const rows = await service.query<{ type: string; sequence: number; data: string }>(
        `select replace(type, 'payment_intent.', '') as type, sequence, data from events where payment_intent = $1
          order by sequence`,
        [parseIdentifier('pi', id)],
      );
      return rows.map((row) => ({ ...row, data: JSON.parse(row.data) }));
    },

    /** How many commits were done without an answer. */
    lostCommits: () => Math.floor(commits / commitsPerLoss),

    async close(): Promise<void> {
      await node.close();
      await orm.close();
      await proxy.close();
      await service.close();
      await facilitator.close();
      await chain.stop();
    },
  };
}

function multicallData({ to, data }: { to: Address; data: Hex }): Hex {
  const calls = [{ target: to, allowFailure: false, callData: data }];
  return encodeFunctionData({ abi: multicall3Abi, functionName: 'aggregate3', args: [calls] });
}
