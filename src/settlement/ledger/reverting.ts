// Reverts reorged blocks: their transfers, and what these did to intents.

import type { Hash } from 'viem';
import type { PaymentIntentRow } from '../../database/entities/payment-intent.ts';
import type { TransferRow } from '../../database/entities/settlement.ts';
import { preparedStatement, type RunPrepared } from '../../database/prepared.ts';
import { readPaymentSums } from '../../payment-intents/payment-sums.ts';
import { isOpen, revert } from '../judgement.ts';
import type { Change, LedgerContext } from './context.ts';
import { moveCursorBack, type Tip } from './cursor.ts';
import { hashOf, idsOf, inChunks, inGroups } from './values.ts';

/** A transfer to revert, and its intent. */
interface RecordedRow {
  id: string;
  state: TransferRow['state'];
  payment_intent: string | null;
  refund: string | null;
  /** Its intent, or that of its refund. */
  intent: string | null;
}

/** Most payments of one intent per transaction (0.1 s of a statement's 1.5 s): strangers can send many. */
const maxTogether = 2_000;

export function createReverting(context: LedgerContext) {
  const { run, settings } = context;
  const { chainId } = settings;
  /** `last` runs in the transaction of the last chunk. Returns the number of changes. */
  const revert = async (
    lease: bigint,
    rows: readonly RecordedRow[],
    last: (inside: RunPrepared) => Promise<void> = async () => {},
  ): Promise<number> => {
    let changes = 0;
    // Grouped, so that an intent and its refunds are judged once, unless there are more than `maxTogether`.
    // Without rows, one empty chunk runs `last`.
    const groups = inGroups(rows, ({ id, intent }) => intent ?? id);
    const parts = [...groups].flatMap((group) => [...inChunks(group, maxTogether)]);
    const chunks = rows.length === 0 ? [[]] : parts;
    for (const [i, chunk] of chunks.entries()) {
      changes += await context.commit(lease, async (inside) => {
        // Read again: a transfer may have been attributed by hand meanwhile.
        const own = await recordedOf(inside, idsOf(chunk));
        const reverted = await revertRows(inside, context, own);
        if (i === chunks.length - 1) await last(inside);
        return reverted;
      });
    }
    return changes;
  };
  return {
    /** Reverts all above the ancestor, or a restarted local chain. Counts the transfers. Throws LeaseLost. */
    async revertTo(lease: bigint, ancestor: Tip): Promise<number> {
      const { rows } = await run(findAbove, [chainId, ancestor.number]);
      await revert(lease, rows, (inside) => moveCursorBack(inside, chainId, ancestor));
      return rows.length;
    },
    /** Reverts transfers that no node has. Returns the number of changes. Throws LeaseLost. */
    async revertTransfers(lease: bigint, ids: readonly string[]): Promise<number> {
      return ids.length === 0 ? 0 : revert(lease, await recordedOf(run, ids));
    },
    /** True if a payment above this block was confirmed: both nodes had it. */
    async hasConfirmedAbove(number: number): Promise<boolean> {
      return (await run(findConfirmedAbove, [chainId, number])).rows[0]?.found === true;
    },
    /** The transactions of reverted transfers recorded in the last day, newest first. */
    async reverted(limit: number): Promise<Hash[]> {
      const { rows } = await run(findReverted, [chainId, limit]);
      return rows.map((row) => hashOf(row.transaction_hash));
    },
  };
}

/** The transfers with these ids that are not reorged. */
export async function recordedOf(run: RunPrepared, ids: readonly string[]): Promise<RecordedRow[]> {
  return ids.length === 0 ? [] : (await run(findByIds, [ids])).rows;
}

/**
 * Throws if a changed transfer was attributed since `before`, by a request from when the chain was not watched:
 * there was no row for `holdChain` to lock. The next pass does the work.
 */
export function assertUnchanged(changed: readonly Owned[], before: readonly Owned[]): void {
  const ownerOf = ({ id, payment_intent, refund }: Owned) => `${id} ${payment_intent} ${refund}`;
  const known = new Set(before.map(ownerOf));
  if (!changed.every((row) => known.has(ownerOf(row))))
    throw new Error('a transfer was attributed meanwhile');
}

type Owned = Pick<RecordedRow, 'id' | 'payment_intent' | 'refund'>;

/** Reverts transfers and recalculates their intents. */
export async function revertRows(
  inside: RunPrepared,
  { steps: { lock, apply }, refunding }: LedgerContext,
  rows: readonly RecordedRow[],
): Promise<Change[]> {
  if (rows.length === 0) return [];
  const refundIds = rows.flatMap(({ refund }) => refund ?? []);
  const paid = new Set(rows.flatMap(({ payment_intent }) => payment_intent ?? []));
  const locked = await lock(inside, paid, refundIds);
  const at = new Date();
  const affected = new Map([...locked].filter(([id]) => paid.has(id)));
  const open = [...affected.values()].filter(isOpen);
  assertUnchanged((await inside(markReorged, [idsOf(rows), idsOf(open)])).rows, rows);
  const confirmed = new Set(
    rows.flatMap(({ state, payment_intent }) => (state === 'confirmed' ? payment_intent : [])),
  );
  const refunds = await refunding.revert(inside, refundIds, { intents: locked, confirmed }, at);
  const remaining = await readPaymentSums(inside, [...affected.keys()]);
  const stepsOf = (intent: PaymentIntentRow) =>
    revert(intent, { ...remaining(intent.id), wasConfirmed: confirmed.has(intent.id) });
  const steps = new Map([...affected.values()].map((intent) => [intent, stepsOf(intent)]));
  return [...(await apply(inside, steps, at)), ...(await refunding.apply(inside, refunds, at))];
}

const findReverted = preparedStatement(
  'find_reverted_transfers',
  `select transaction_hash from transfers
    where chain_id = $1 and state = 'reorged' and created_at > now() - interval '1 day' order by created_at desc limit $2`,
);

const selectRecorded = `select t.id, t.payment_intent, t.refund, t.state, coalesce(t.payment_intent, r.payment_intent) as intent
                          from transfers t left join refunds r on r.id = t.refund`;

const findAbove = preparedStatement(
  'find_transfers_above',
  `${selectRecorded} where t.chain_id = $1 and t.block_number > $2 and t.state <> 'reorged'`,
);

const findConfirmedAbove = preparedStatement(
  'find_confirmed_transfer_above',
  `select exists (select from transfers where chain_id = $1 and block_number > $2 and state = 'confirmed') as found`,
);

const findByIds = preparedStatement(
  'find_transfers_by_ids',
  `${selectRecorded} where t.id = any ($1::uuid[]) and t.state <> 'reorged'`,
);

/** If they return, payments of open intents and refunds are judged anew. Authorizations can be used again. */
const markReorged = preparedStatement(
  'mark_transfers_reorged',
  `with reverted as (
     update transfers
        set state = 'reorged',
            counts = counts and not is_refund and payment_intent <> all ($2::uuid[]),
            labels = case when is_refund or payment_intent = any ($2::uuid[]) then null else labels end
      where id = any ($1::uuid[]) returning id, payment_intent, refund, authorized_by
   ), released as (
     update authorizations a set status = 'submitted' from reverted
      where a.id = reverted.authorized_by
        and not exists (
          select from transfers t
           where t.authorized_by = a.id and t.state <> 'reorged' and t.id <> all ($1::uuid[]))
   )
   select id, payment_intent, refund from reverted`,
);
