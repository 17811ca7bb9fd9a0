// Decides which intent each transfer of a block pays: the one that the owner of the money names, or else the
// only one that can expect it. All are looked up before any is recorded: they must not influence each other.

import type { Address, Hash } from 'viem';
import { maxExpiryMinutes } from '../../database/entities/payment-intent.ts';
import { inHalves } from '../../database/halves.ts';
import { formatIdentifier, lowestUuid, parseIdentifier } from '../../database/identifiers.ts';
import { preparedStatement, type RunPrepared } from '../../database/prepared.ts';
import { mapInSlices, nextSlice } from '../../scheduling/slices.ts';
import { bytes, hashOf, inChunks } from './values.ts';

/** An ended, unpaid intent can still be paid by a transfer without an id for this long. */
const candidateHours = 24;

/** A transfer to be attributed within one merchant. */
interface TransferToAttribute {
  merchantId: string;
  wallet: Address;
  amountUnits: bigint;
  /** The public id of the intent named by the owner of the money. */
  named: string | undefined;
  /** The transfer can only be attributed by its id, and otherwise stays as it is. */
  requiresId: boolean;
}

export interface Attribution {
  /** Undefined if the transfer is unattributed. */
  intentId: string | undefined;
  /** Some intents may be meant but none is certain, or the lookup failed. */
  isAmbiguous: boolean;
  /** Attributed because just this amount was missing, which another payment of the intent has brought about. */
  isRest?: boolean | undefined;
}

interface CandidatesOptions {
  networkIds: readonly number[];
  /** Called with the error of a statement that failed for a single item. Its transfers stay unattributed. */
  onFailedAlone: (reason: unknown) => void;
  isFatal: (reason: unknown) => boolean;
}

/** Attributes a block's transfers in order. Awaits `beforeRetry` before it halves a failed lookup. */
type AttributeTransfers = (
  blockTime: Date,
  transfers: readonly TransferToAttribute[],
  beforeRetry: () => Promise<void>,
) => Promise<Attribution[]>;

/** Returns the function that attributes the transfers of a chain. */
export function createAttribution(
  run: RunPrepared,
  { networkIds, onFailedAlone, isFatal }: CandidatesOptions,
): AttributeTransfers {
  /** Runs the lookups in chunks, which are halved on failure. Returns the items that failed alone. */
  const ask = async <T>(
    beforeRetry: () => Promise<void>,
    questions: readonly T[],
    work: (some: readonly T[]) => Promise<void>,
  ) => {
    const failed = new Set<T>();
    const alone = async (question: T, reason: unknown) => {
      failed.add(question);
      onFailedAlone(reason);
    };
    for (const some of inChunks(questions)) await inHalves(some, { work, alone, run, isFatal, beforeRetry });
    return failed;
  };

  /** The named intents that exist, by public id; undefined for one that could not be looked up. */
  const findNamed = async (transfers: readonly TransferToAttribute[], beforeRetry: () => Promise<void>) => {
    const named = new Map<string, { id: string; merchantId: string; wallet: Hash } | undefined>();
    const wanted = transfers.flatMap((each) => (each.named && parseIdentifier('pi', each.named)) || []);
    const failed = await ask(beforeRetry, [...new Set(wanted)], async (ids) => {
      const { rows } = await run(findIntents, [ids, networkIds]);
      for (const { id, merchant_id: merchantId, expected_wallet: wallet } of rows) {
        named.set(formatIdentifier('pi', id), { id, merchantId, wallet: hashOf(wallet) });
      }
    });
    for (const id of failed) named.set(formatIdentifier('pi', id), undefined);
    return named;
  };

  /** One lookup for equal transfers. */
  const findCandidates = async (
    blockTime: Date,
    transfers: ReadonlyMap<string, TransferToAttribute>,
    beforeRetry: () => Promise<void>,
  ) => {
    const timeMs = blockTime.getTime();
    const found = new Map<string, Attribution>();
    if (transfers.size === 0) return found;
    const oldest = await oldestCandidate(run, networkIds, timeMs);
    await ask(beforeRetry, [...transfers], async (some) => {
      const { rows } = await run(findCandidatesOf, [
        some.map((_, place) => place),
        some.map(([, { wallet }]) => bytes(wallet)),
        some.map(([, { merchantId }]) => merchantId),
        some.map(([, { amountUnits }]) => String(amountUnits)),
        networkIds,
        // Creation times are compared with the block's time, which is in whole seconds.
        new Date(timeMs + 1_000).toISOString(),
        new Date(timeMs - candidateHours * 3_600_000).toISOString(),
        oldest,
      ]);
      for (const { place, expecting, is_rest: isRest, named_count: count, named_id: payable } of rows) {
        // Any amount pays the only intent that ever named the wallet.
        const candidates = count === 1 ? [payable ?? undefined] : (expecting ?? []);
        const intentId = candidates.length === 1 ? candidates[0] : undefined;
        const isAmbiguous = intentId === undefined && expecting !== null;
        found.set(some[place]?.[0] ?? '', { intentId, isAmbiguous, isRest: count !== 1 && isRest === true });
      }
    });
    return found;
  };

  return async (blockTime, transfers, beforeRetry) => {
    const named = await findNamed(transfers, beforeRetry);
    const provenOf = ({ named: publicId = '', wallet }: TransferToAttribute) => {
      const intent = named.get(publicId);
      return intent?.wallet === wallet ? intent : undefined;
    };
    const isUnknown = ({ named: publicId = '' }: TransferToAttribute) =>
      named.has(publicId) && !named.get(publicId);
    const keyOf = ({ merchantId, wallet, amountUnits }: TransferToAttribute) =>
      `${merchantId} ${wallet} ${amountUnits}`;
    const questions = new Map<string, TransferToAttribute>();
    for (const transfer of transfers) {
      await nextSlice();
      if (transfer.requiresId || isUnknown(transfer) || provenOf(transfer) !== undefined) continue;
      questions.set(keyOf(transfer), transfer);
    }
    const candidates = await findCandidates(blockTime, questions, beforeRetry);
    return mapInSlices(transfers, (transfer) => {
      const proven = provenOf(transfer);
      if (proven !== undefined) {
        const isOwn = proven.merchantId === transfer.merchantId;
        return { intentId: isOwn ? proven.id : undefined, isAmbiguous: false };
      }
      // The lookup was for an equal transfer without this restriction.
      if (transfer.requiresId || isUnknown(transfer)) return { intentId: undefined, isAmbiguous: true };
      // No result: its statement has failed.
      return candidates.get(keyOf(transfer)) ?? { intentId: undefined, isAmbiguous: true };
    });
  };
}

/** The lowest id of an intent that a transfer at this time can be for. Bounds the search. */
async function oldestCandidate(run: RunPrepared, networkIds: readonly number[], timeMs: number) {
  const { rows } = await run(findOldestOpen, [networkIds]);
  const oldestOpenMs = rows[0]?.expires_at == null ? timeMs : new Date(rows[0].expires_at).getTime();
  const longestMs = maxExpiryMinutes * 60_000;
  return lowestUuid(Math.min(oldestOpenMs, timeMs - candidateHours * 3_600_000 - longestMs) - longestMs);
}

const findIntents = preparedStatement(
  'find_named_payment_intents',
  `select id, merchant_id, expected_wallet from payment_intents
    where id = any ($1::uuid[]) and network = any ($2::smallint[])`,
);
/**
 * For each lookup: at most two intents that expect its amount, and whether all of them do so only after other
 * payments; and the only intent that ever named the wallet, if there is exactly one, it is on this chain and
 * older than the block.
 *
 * A wallet has thousands of intents, and a block thousands of transfers, so each lookup must use an index
 * that begins with the wallet. `n_distinct` of the column is set, so that the planner always chooses it.
 */
const findCandidatesOf = preparedStatement(
  'find_candidates',
  `select t.place, expected.ids as expecting, expected.is_rest, named.count as named_count, named.id as named_id
     from unnest($1::int[], $2::bytea[], $3::uuid[], $4::bigint[]) as t (place, wallet, merchant_id, amount)
    cross join lateral (
      select array_agg(distinct e.id) as ids, bool_and(e.is_rest) as is_rest from (
        (select i.id, false as is_rest from payment_intents i
          where i.expected_wallet = t.wallet and i.merchant_id = t.merchant_id and i.amount_units = t.amount
            and i.id >= $8 and i.network = any ($5::smallint[]) and i.created_at < $6
            and (i.status = 'requires_payment'
                 or i.status in ('expired', 'canceled') and coalesce(i.canceled_at, i.expired_at) > $7)
          limit 2)
        union all
        (select i.id, true from payment_intents i
          where i.expected_wallet = t.wallet and i.merchant_id = t.merchant_id
            and i.status in ('requires_payment', 'expired', 'canceled')
            and i.amount_received_units > 0 and i.amount_units - i.amount_received_units = t.amount
            and i.id >= $8 and i.network = any ($5::smallint[]) and i.created_at < $6
            and (i.status = 'requires_payment' or coalesce(i.canceled_at, i.expired_at) > $7)
          limit 2)) e
    ) expected
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
