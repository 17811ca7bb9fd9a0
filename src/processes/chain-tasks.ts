// Implements `admin chain …`, `test-pay`, `test-refund` and `demo-month`.

import { type ChainSettings, chainNamed, chains, networkOf } from '../contract/chains.ts';
import type { WalletAddress } from '../contract/wallet-address.ts';
import type { ChainName, ModeName } from '../contract/words.ts';
import { WatchedChainEntity } from '../database/entities/settlement.ts';
import { readClockAheadMs } from '../database/replication.ts';
import { ensureDemo } from '../embedded/demo.ts';
import { hasDemoMonth, writeDemoMonth } from '../embedded/demo-month.ts';
import { findLocalChain, payIntent, TransferRefused } from '../embedded/local-chain.ts';
import { AdministrationError, uuidOf } from '../merchants/operator-ids.ts';
import { Node } from '../settlement/node.ts';
import type { Output } from './admin-program.ts';
import { barOf } from './export-payments.ts';
import { intents, refunds } from './list-tasks.ts';
import type { Database } from './open-database.ts';

export async function chainStatus(database: Database): Promise<Output> {
  const health = await chainsHealth(database);
  const secondsSince = (moment: Date) => Math.round((Date.now() - moment.getTime()) / 1000);
  return {
    json: health.map(({ settings: { mode, chain, chainId }, row, isHeld, nodes }) => ({
      mode,
      chain,
      chain_id: chainId,
      watched: row !== undefined,
      ...(row && {
        head: Number(row.headNumber),
        read: Number(row.cursorNumber),
        finalized: Number(row.finalizedNumber),
        read_twice: Number(row.verifiedNumber),
        read_block_time: row.cursorTime,
        node_seen_at: row.seenAt,
        watcher: isHeld ? row.leaseHolder : null,
      }),
      nodes: nodes.map(({ name, head, tookMs, problem }) => ({
        name,
        head: head?.number ?? null,
        took_ms: tookMs,
        problem: problem ?? null,
      })),
    })),
    rows: health.map(({ settings: { mode, chain }, row, isHeld, nodes }) => ({
      chain: `${mode} ${chain}`,
      head: row && Number(row.headNumber),
      read: row && Number(row.cursorNumber),
      final: row && Number(row.finalizedNumber),
      verified: row && Number(row.verifiedNumber),
      'block age': row && `${secondsSince(row.cursorTime)} s`,
      'node seen': row && `${secondsSince(row.seenAt)} s ago`,
      watcher:
        row === undefined
          ? 'not watched'
          : isHeld
            ? 'running'
            : 'none, or it waits for a node or the database',
      nodes:
        nodes
          .map(({ name, head, tookMs, problem }) => problem ?? `${name} at ${head?.number}, ${tookMs} ms`)
          .join('; ') || undefined,
    })),
  };
}

/** Stops watching a chain. Its transfers are kept. Throws AdministrationError if it is not watched. */
export async function unwatchChain({ orm }: Database, mode: ModeName, chain: ChainName): Promise<Output> {
  const { chainId } = chains.find((one) => one.mode === mode && one.chain === chain) ?? { chainId: 0 };
  const em = orm.em.fork();
  const removed = await em.transactional(async (tx) => {
    // In the order of every watcher: none adds a header later, and none deadlocks.
    const count = await tx.nativeDelete(WatchedChainEntity, { chainId });
    await tx.execute('delete from block_headers where chain_id = ?', [chainId]);
    return count;
  });
  if (removed === 0) throw new AdministrationError(`${mode} ${chain} is not watched`);
  const note = `payments and signatures on ${mode} ${chain} that are pending stay so until it is watched again`;
  return { json: { mode, chain, watched: 'no' }, note };
}

/** Pays an intent on a local chain. Throws AdministrationError if there is none. */
export async function testPay(
  database: Database,
  { intent: publicId, amountUnits, withoutId }: { intent: string; amountUnits?: bigint; withoutId?: boolean },
): Promise<Output> {
  const row = await intents.find(database.orm.em, publicId);
  const missing = BigInt(row.amountUnits) - BigInt(row.amountReceivedUnits);
  const sent = await sendTestMoney(database, row.network, publicId, {
    wallet: row.expectedWallet,
    amountUnits: amountUnits ?? (missing > 0n ? missing : BigInt(row.amountUnits)),
    id: withoutId ? undefined : publicId,
  });
  return { json: { payment_intent: publicId, ...sent } };
}

/** Sends a refund on a local chain. Throws AdministrationError if there is none. */
export async function testRefund(database: Database, { refund }: { refund: string }): Promise<Output> {
  const row = await refunds.find(database.orm.em, refund);
  const payment = { wallet: row.destination, amountUnits: BigInt(row.amountUnits), id: refund };
  return { json: { refund, ...(await sendTestMoney(database, row.network, refund, payment)) } };
}

/** Writes a month of business to an embedded database, once. Throws AdministrationError in other cases. */
export async function demoMonth(
  database: Database,
  { payments: count }: { payments: number },
): Promise<Output> {
  if (!database.embedded) {
    throw new AdministrationError('demo data needs the embedded database: unset DATABASE_URL');
  }
  const { merchant_id, wallet_address } = await ensureDemo(database, database.config.dataDir);
  const { em } = database.orm;
  const merchantId = uuidOf('mer', merchant_id);
  if (await hasDemoMonth(em, merchantId)) {
    throw new AdministrationError(
      `${merchant_id} has its month already, or a part of it: "intent list" shows it; another DATA_DIR begins anew`,
    );
  }
  const isShown = process.stderr.isTTY;
  await writeDemoMonth(em, {
    merchantId,
    wallet: wallet_address as WalletAddress,
    count,
    webhookKeys: database.keyRing('WEBHOOK_SECRET_KEYS'),
    ...(isShown && { onProgress: (done) => void process.stderr.write(`\r${barOf(done / count)}`) }),
  });
  if (isShown) process.stderr.write('\n');
  return { json: { merchant_id, mode: 'testnet', payments: count } };
}

/** Sends test money on the local chain of this network. Throws AdministrationError if there is none. */
async function sendTestMoney(
  { embedded, config }: Database,
  networkId: number,
  publicId: string,
  payment: Omit<Parameters<typeof payIntent>[1], 'chain'>,
) {
  if (!embedded) {
    throw new AdministrationError('there is no local chain: only the embedded mode has one');
  }
  const network = networkOf(networkId);
  if (network === undefined || network.mode !== 'testnet') {
    throw new AdministrationError(`${publicId} is of mainnet: it cannot be paid with test money`);
  }
  const { chain } = network;
  const hash = await payIntent(config.dataDir, { chain, ...payment }).catch((cause) => {
    if (!(cause instanceof TransferRefused)) throw cause;
    throw new AdministrationError(`the token refused the transfer: ${cause.message}`, { cause });
  });
  if (hash === undefined) {
    throw new AdministrationError(
      `there is no local chain for ${chain}: "npm start" starts one, unless ${chainNamed(network.mode, chain).rpcVariable} is set`,
    );
  }
  return { chain, amount_units: Number(payment.amountUnits), to: payment.wallet, transaction_hash: hash };
}

/** Checks all nodes of all chains concurrently. */
export async function chainsHealth(database: Database) {
  const em = database.orm.em.fork();
  const known = await em.find(WatchedChainEntity, {}, { orderBy: { chainId: 'asc' } });
  // By the database's clock, which set the lease's time.
  const nowMs = Date.now() - (await readClockAheadMs(em));
  return Promise.all(
    chains.map(async (settings) => {
      const { chainId, tokens } = settings;
      const row = known.find((one) => one.chainId === chainId);
      const urls = await urlsOf(database, settings);
      return {
        settings,
        /** Undefined if the chain is not watched. */
        row,
        /** True if a process holds the lease. */
        isHeld: row?.leaseUntil != null && row.leaseUntil.getTime() > nowMs,
        nodes: await Promise.all(urls.map((url) => healthOf(new Node({ url, chainId, tokens })))),
      };
    }),
  );
}

/** The configured nodes of a chain, or the one of its local chain. */
async function urlsOf(
  { embedded, config: { chainNodes, dataDir } }: Database,
  { chainId, mode, chain }: ChainSettings,
): Promise<readonly string[]> {
  const configured = chainNodes.find((one) => one.chainId === chainId);
  if (configured !== undefined) return configured.urls;
  const local = embedded && mode === 'testnet' ? await findLocalChain(dataDir, chain) : undefined;
  return local === undefined ? [] : [local.rpcUrl];
}

async function healthOf(node: Node) {
  const startedAtMs = performance.now();
  const found = await node
    .assertChain()
    .then(() => node.header('latest'))
    .then(
      (head) => ({ head, problem: undefined }),
      (reason) => ({ head: undefined, problem: reason instanceof Error ? reason.message : String(reason) }),
    );
  return { name: node.name, ...found, tookMs: Math.round(performance.now() - startedAtMs) };
}
