// Implements `admin chain …` and `admin test-pay`.

import { loadConfig } from '../config/config.ts';
import { chainNamed, chains, networkOf } from '../contract/chains.ts';
import type { ChainName, ModeName } from '../contract/words.ts';
import { PaymentIntentEntity } from '../database/entities/payment-intent.ts';
import { WatchedChainEntity } from '../database/entities/settlement.ts';
import { payIntent, TransferRefused } from '../embedded/pay-intent.ts';
import { AdministrationError } from '../merchants/administration-error.ts';
import { intentUuidOf } from '../merchants/operator-ids.ts';
import type { Output } from './admin-program.ts';
import { chainsHealth } from './chain-health.ts';
import type { Database } from './open-database.ts';

type Environment = Readonly<Record<string, string | undefined>>;

export async function chainStatus(database: Database, env: Environment): Promise<Output> {
  const health = await chainsHealth(database, loadConfig(env, []));
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
      watcher: row === undefined ? 'not watched' : isHeld ? 'running' : 'none',
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
    await tx.execute('delete from block_headers where chain_id = ?', [chainId]);
    return tx.nativeDelete(WatchedChainEntity, { chainId });
  });
  if (removed === 0) throw new AdministrationError(`${mode} ${chain} is not watched`);
  const unwatched = { mode, chain, watched: 'no' };
  return { json: unwatched, rows: [unwatched] };
}

/** Pays an intent on a local chain. Throws AdministrationError if there is none. */
export async function testPay(
  { orm, embedded }: Database,
  env: Environment,
  { intent: publicId, amountUnits, withoutId }: { intent: string; amountUnits?: bigint; withoutId?: boolean },
): Promise<Output> {
  if (!embedded) {
    throw new AdministrationError('test-pay needs a local chain, which only the embedded mode has');
  }
  const row = await orm.em.fork().findOne(PaymentIntentEntity, { id: intentUuidOf(publicId) });
  if (row === null)
    throw new AdministrationError(`there is no payment intent ${publicId}: "intent list" shows them`);
  const network = networkOf(row.network);
  if (network === undefined || network.mode !== 'testnet') {
    throw new AdministrationError(`${publicId} is a mainnet intent: it cannot be paid with test money`);
  }
  const missing = BigInt(row.amountUnits) - BigInt(row.amountReceivedUnits);
  const amount = amountUnits ?? (missing > 0n ? missing : BigInt(row.amountUnits));
  const hash = await payIntent(loadConfig(env, []).dataDir, {
    chain: network.chain,
    wallet: row.expectedWallet,
    amountUnits: amount,
    id: withoutId === true ? undefined : publicId,
  }).catch((cause) => {
    if (!(cause instanceof TransferRefused)) throw cause;
    throw new AdministrationError(`the token refused the transfer: ${cause.message}`, { cause });
  });
  if (hash === undefined) {
    throw new AdministrationError(
      `there is no local chain for ${network.chain}: "npm start" starts one, unless ${chainNamed(network.mode, network.chain).rpcVariable} is set`,
    );
  }
  const paid = {
    payment_intent: publicId,
    chain: network.chain,
    amount_units: Number(amount),
    to: row.expectedWallet,
    transaction_hash: hash,
  };
  return { json: paid, rows: [paid] };
}
