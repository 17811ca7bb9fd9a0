// Whose payment each transfer of a block is, as far as the database knows. Asked before anything of the block is recorded:
// what one of its transfers does to an intent says nothing of the others.

import type { Address, Hash } from 'viem';
import { maxExpiryMinutes } from '../../database/entities/payment-intent.ts';
import { inHalves } from '../../database/halves.ts';
import { lowestUuid, parseIdentifier } from '../../database/identifiers.ts';
import { preparedStatement, type RunPrepared } from '../../database/prepared.ts';
import { mapInSlices, turn } from '../../scheduling/slices.ts';
import { onlyCandidate } from '../attribution.ts';
import { bytes, hashOf, inChunks } from './values.ts';

/** An intent that ended without being paid may still be paid by a transfer without an id so long. */
const candidateHours = 24;

/** A transfer for which an intent is looked for, within one merchant. */
export interface Arriving {
  merchantId: string;
  wallet: Address;
  amountUnits: bigint;
  /** The public id of the intent that the owner of the money named. */
  named: string | undefined;
  /** Only its id tells: without one it stays what it is. */
  isOnlyNamed: boolean;
}

/** What is known of the intent that a transfer belongs to. */
export interface Attribution {
  /** Undefined: it is nobody's. */
  intentId: string | undefined;
  /** Intents may be meant, but which one is not certain, or could not be found out. */
  isDoubtful: boolean;
}

export interface CandidatesOptions {
  networkIds: readonly number[];
  /** Called with an error of a statement that failed for one question alone. What it asked for counts as nobody's. */
  onFailedAlone: (reason: unknown) => void;
  isNobodys: (reason: unknown) => boolean;
}

/** Returns a function that finds the intent of each transfer of a block with that time, in their order. */
export function createAttribution(
  run: RunPrepared,
  { networkIds, onFailedAlone, isNobodys }: CandidatesOptions,
): (blockTime: Date, transfers: readonly Arriving[]) => Promise<Attribution[]> {
  /** Asks bit by bit, and less at once if that fails. Returns the questions that failed alone. */
  const ask = async <T>(questions: readonly T[], work: (some: readonly T[]) => Promise<void>) => {
    const failed = new Set<T>();
    const alone = async (question: T, reason: unknown) => {
      failed.add(question);
      onFailedAlone(reason);
    };
    for (const some of inChunks(questions)) await inHalves(some, { work, alone, run, isNobodys });
    return failed;
  };

  /** The named intents that there are, by their public id; undefined for one that could not be looked up. */
  const findNamed = async (transfers: readonly Arriving[]) => {
    const named = new Map<string, { id: string; merchantId: string; wallet: Hash } | undefined>();
    const publicIds = new Map<string, string>();
    for (const { named: publicId } of transfers) {
      const id = publicId && parseIdentifier('pi', publicId);
      if (publicId && id) publicIds.set(id, publicId);
    }
    const failed = await ask([...publicIds.keys()], async (ids) => {
      const { rows } = await run(findIntents, [ids, networkIds]);
      for (const { id, merchant_id: merchantId, expected_wallet: wallet } of rows) {
        named.set(publicIds.get(id) ?? '', { id, merchantId, wallet: hashOf(wallet) });
      }
    });
    for (const id of failed) named.set(publicIds.get(id) ?? '', undefined);
    return named;
  };

  /** The lowest id that an intent may have which a transfer at that time can be for: a bound for the search. */
  const oldestCandidate = async (timeMs: number): Promise<string> => {
    const { rows } = await run(findOldestOpen, [networkIds]);
    const oldestOpenMs = rows[0]?.expires_at == null ? timeMs : new Date(rows[0].expires_at).getTime();
    const longestMs = maxExpiryMinutes * 60_000;
    return lowestUuid(Math.min(oldestOpenMs, timeMs - candidateHours * 3_600_000 - longestMs) - longestMs);
  };

  /** What equal transfers have in common is asked once. */
  const findCandidates = async (blockTime: Date, transfers: ReadonlyMap<string, Arriving>) => {
    const timeMs = blockTime.getTime();
    const found = new Map<string, Attribution>();
    if (transfers.size === 0) return found;
    const oldest = await oldestCandidate(timeMs);
    await ask([...transfers], async (some) => {
      const { rows } = await run(findCandidatesOf, [
        some.map((_, place) => place),
        some.map(([, { wallet }]) => bytes(wallet)),
        some.map(([, { merchantId }]) => merchantId),
        some.map(([, { amountUnits }]) => String(amountUnits)),
        networkIds,
        // Created no later than the block, in whole seconds.
        new Date(timeMs + 1_000).toISOString(),
        new Date(timeMs - candidateHours * 3_600_000).toISOString(),
        oldest,
      ]);
      for (const { place, expecting, named_count: count, named_id: payable } of rows) {
        const intentId = onlyCandidate(expecting ?? [], { count, payable: payable ?? undefined });
        const isDoubtful = intentId === undefined && (expecting ?? []).length > 0;
        found.set(some[place]?.[0] ?? '', { intentId, isDoubtful });
      }
    });
    return found;
  };

  return async (blockTime, transfers) => {
    const named = await findNamed(transfers);
    const provenOf = ({ named: publicId = '', wallet }: Arriving) => {
      const intent = named.get(publicId);
      return intent?.wallet === wallet ? intent : undefined;
    };
    const isUnknown = ({ named: publicId = '' }: Arriving) => named.has(publicId) && !named.get(publicId);
    const keyOf = ({ merchantId, wallet, amountUnits }: Arriving) => `${merchantId} ${wallet} ${amountUnits}`;
    const questions = new Map<string, Arriving>();
    for (const transfer of transfers) {
      await turn();
      if (transfer.isOnlyNamed || isUnknown(transfer) || provenOf(transfer) !== undefined) continue;
      questions.set(keyOf(transfer), transfer);
    }
    const candidates = await findCandidates(blockTime, questions);
    return mapInSlices(transfers, (transfer) => {
      const proven = provenOf(transfer);
      if (proven !== undefined) {
        const isOwn = proven.merchantId === transfer.merchantId;
        return { intentId: isOwn ? proven.id : undefined, isDoubtful: false };
      }
      // What was answered of an equal transfer is not meant for it.
      if (transfer.isOnlyNamed || isUnknown(transfer)) return { intentId: undefined, isDoubtful: true };
      // Without an answer its statement has failed.
      return candidates.get(keyOf(transfer)) ?? { intentId: undefined, isDoubtful: true };
    });
  };
}

const findIntents = preparedStatement(
  'find_named_payment_intents',
  `select id, merchant_id, expected_wallet from payment_intents
    where id = any ($1::uuid[]) and network = any ($2::smallint[])`,
);
/**
 * For each question, the intents that expect its amount, two at most; and, if only one intent of the merchant ever named
 * the wallet, that one, if it is of this chain and older than the block.
 *
 * A wallet has thousands of intents, and a block thousands of transfers: each question is answered by an index that begins
 * with the wallet. The column's `n_distinct` is set, so that the planner takes it whatever it has sampled.
 */
export const findCandidatesOf = preparedStatement(
  'find_candidates',
  `select t.place,
          (select array_agg(distinct e.id) from (
             (select i.id from payment_intents i
               where i.expected_wallet = t.wallet and i.merchant_id = t.merchant_id and i.amount_units = t.amount
                 and i.id >= $8 and i.network = any ($5::smallint[]) and i.created_at < $6
                 and (i.status = 'requires_payment'
                      or i.status in ('expired', 'canceled') and coalesce(i.canceled_at, i.expired_at) > $7)
               limit 2)
             union all
             (select i.id from payment_intents i
               where i.expected_wallet = t.wallet and i.merchant_id = t.merchant_id
                 and i.status in ('requires_payment', 'expired', 'canceled')
                 and i.amount_received_units > 0 and i.amount_units - i.amount_received_units = t.amount
                 and i.id >= $8 and i.network = any ($5::smallint[]) and i.created_at < $6
                 and (i.status = 'requires_payment' or coalesce(i.canceled_at, i.expired_at) > $7)
               limit 2)) e) as expecting,
          named.count as named_count, named.id as named_id
     from unnest($1::int[], $2::bytea[], $3::uuid[], $4::bigint[]) as t (place, wallet, merchant_id, amount)
    cross join lateral (
      select count(*)::int as count, (array_agg(n.id) filter (where n.network = any ($5::smallint[]) and n.created_at < $6))[1] as id
        from (select i.id, i.network, i.created_at from payment_intents i
               where i.expected_wallet = t.wallet and i.merchant_id = t.merchant_id limit 2) n
    ) named`,
);
const findOldestOpen = preparedStatement(
  'find_oldest_open_payment_intent',
  `select min(o.expires_at) as expires_at from unnest($1::smallint[]) as n (network)
    cross join lateral (
      select i.expires_at from payment_intents i where i.network = n.network and i.status = 'requires_payment'
       order by i.expires_at limit 1) o`,
);
