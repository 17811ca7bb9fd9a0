// Reverts reorged blocks: their transfers, and what these did to intents.

import type { Hash } from 'viem';
import type { PaymentIntentRow } from '../../database/entities/payment-intent.ts';
import type { TransferState } from '../../database/entities/settlement.ts';
import { preparedStatement, type RunPrepared } from '../../database/prepared.ts';
import type { ChangeStep } from '../../payment-intents/change-payment-intents.ts';
import { isOpen, revert } from '../judgement.ts';
import { moveCursorBack, restartCursor, type Tip } from './cursor.ts';
import type { Change, IntentChanges } from './intent-changes.ts';
import type { Lease } from './lease.ts';
import { hashOf, maxAtOnce } from './values.ts';

/** A transfer with its intent. */
export interface TakenTransfer {
  id: string;
  state: TransferState;
  payment_intent: string | null;
}

export interface Reverting {
  /** Forgets every block: the chain of this machine has begun anew. Its transfers are reverted. Throws LeaseLost. */
  beginAnew(lease: bigint, genesis: Tip): Promise<void>;
  /** Reverts every block above the ancestor. Returns the transfers that were reverted. Throws LeaseLost. */
  revertTo(lease: bigint, ancestor: Tip): Promise<number>;
  /** Reverts transfers that the chain turned out not to have. Throws LeaseLost. */
  revertTransfers(lease: bigint, ids: readonly string[]): Promise<Change[]>;
  /** Transactions of transfers that were found in the last day and reverted, newest first. */
  reverted(limit: number): Promise<Hash[]>;
}

/** `durable` is called with what has changed as soon as it is durable. */
export function createReverting(
  run: RunPrepared,
  { holding }: Pick<Lease, 'holding'>,
  changes: IntentChanges,
  chainId: number,
  durable: (changes: readonly Change[]) => void,
): Reverting {
  /** `last` is done in the transaction that takes the last of them back. */
  const revert = async (
    lease: bigint,
    rows: readonly TakenTransfer[],
    last: (inside: RunPrepared) => Promise<void> = async () => {},
  ): Promise<Change[]> => {
    const all: Change[] = [];
    const chunks = byIntent(rows);
    for (const [i, chunk] of chunks.entries()) {
      const taken = await holding(lease, async (inside) => {
        // Read again: somebody may have attributed one by hand meanwhile.
        const own = await findTransfersById(
          inside,
          chunk.map(({ id }) => id),
        );
        const taken = await revertRows(inside, changes, own, new Date());
        if (i === chunks.length - 1) await last(inside);
        return taken;
      });
      durable(taken);
      for (const change of taken) all.push(change);
    }
    return all;
  };
  return {
    async beginAnew(lease, genesis) {
      const { rows } = await run(findAbove, [chainId, -1]);
      await revert(lease, rows, (inside) => restartCursor(inside, chainId, genesis));
    },
    async revertTo(lease, ancestor) {
      const { rows } = await run(findAbove, [chainId, ancestor.number]);
      await revert(lease, rows, (inside) => moveCursorBack(inside, chainId, ancestor));
      return rows.length;
    },
    async revertTransfers(lease, ids) {
      return ids.length === 0 ? [] : revert(lease, await findTransfersById(run, ids));
    },
    async reverted(limit) {
      const { rows } = await run(findReverted, [chainId, limit]);
      return rows.map((row) => hashOf(row.transaction_hash));
    },
  };
}

/** Some at a time, but all of an intent at once: it hears of a reorganisation once. At least one chunk, perhaps empty. */
function byIntent(rows: readonly TakenTransfer[]): TakenTransfer[][] {
  const chunks: TakenTransfer[][] = [];
  let chunk: TakenTransfer[] = [];
  for (const own of Map.groupBy(rows, ({ id, payment_intent }) => payment_intent ?? id).values()) {
    if (chunk.length > 0 && chunk.length + own.length > maxAtOnce) {
      chunks.push(chunk);
      chunk = [];
    }
    for (const row of own) chunk.push(row);
  }
  return [...chunks, chunk];
}

/** Those of these transfers that are on the chain as far as we know. */
export async function findTransfersById(run: RunPrepared, ids: readonly string[]): Promise<TakenTransfer[]> {
  const { rows } = await run(findByIds, [ids]);
  return rows;
}

/** Reverts transfers, and what they did to intents. */
export async function revertRows(
  inside: RunPrepared,
  { lock, store }: IntentChanges,
  rows: readonly TakenTransfer[],
  at: Date,
): Promise<Change[]> {
  if (rows.length === 0) return [];
  const affected = await lock(
    inside,
    rows.flatMap(({ payment_intent }) => payment_intent ?? []),
  );
  const open = [...affected.values()].filter(isOpen);
  await inside(markReorged, [rows.map(({ id }) => id), open.map(({ id }) => id)]);
  const confirmed = new Set(
    rows.flatMap(({ state, payment_intent }) => (state === 'confirmed' ? payment_intent : [])),
  );
  const remaining = await readRemaining(inside, [...affected.keys()]);
  const steps = new Map<PaymentIntentRow, ChangeStep[]>();
  for (const [id, intent] of affected) {
    steps.set(intent, revert(intent, { ...remaining(id), wasConfirmed: confirmed.has(id) }));
  }
  return store(inside, steps, at);
}

/** Returns a function that tells what is left of an intent's payments. */
export async function readRemaining(
  inside: RunPrepared,
  intentIds: readonly string[],
): Promise<(intentId: string) => { receivedUnits: bigint; labels: readonly string[] }> {
  const { rows } = intentIds.length === 0 ? { rows: [] } : await inside(sumPayments, [intentIds]);
  const sums = new Map(rows.map((row) => [row.payment_intent as string, row]));
  return (id) => {
    const row = sums.get(id);
    return { receivedUnits: BigInt(row?.received ?? 0), labels: row?.labels ?? [] };
  };
}

const findReverted = preparedStatement(
  'find_reverted_transfers',
  `select transaction_hash from transfers
    where chain_id = $1 and state = 'reorged' and created_at > now() - interval '1 day' order by created_at desc limit $2`,
);

const sumPayments = preparedStatement(
  'sum_payments',
  `select t.payment_intent, coalesce(sum(t.amount_units) filter (where t.counts), 0) as received,
          (select array_agg(distinct label) from transfers o, unnest(o.labels) as label
            where o.payment_intent = t.payment_intent and o.state <> 'reorged') as labels
     from transfers t where t.payment_intent = any ($1::uuid[]) and t.state <> 'reorged' group by t.payment_intent`,
);

const findAbove = preparedStatement(
  'find_transfers_above',
  `select id, payment_intent, state from transfers where chain_id = $1 and block_number > $2 and state <> 'reorged'`,
);

const findByIds = preparedStatement(
  'find_transfers_by_ids',
  `select id, payment_intent, state from transfers where id = any ($1::uuid[]) and state <> 'reorged'`,
);

/** A payment of an open intent is judged anew if it returns: what it was is forgotten. */
const markReorged = preparedStatement(
  'mark_transfers_reorged',
  `update transfers
      set state = 'reorged',
          counts = counts and payment_intent <> all ($2::uuid[]),
          labels = case when payment_intent = any ($2::uuid[]) then null else labels end
    where id = any ($1::uuid[])`,
);
