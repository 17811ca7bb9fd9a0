// The signed authorizations that a chain's transfers use, and their release. The lock order is the ledger's.

import type { Hash, Hex } from 'viem';
import type { ChainSettings } from '../../contract/chains.ts';
import { isRightToken } from '../../contract/chains.ts';
import type { TransferRow } from '../../database/entities/settlement.ts';
import { preparedStatement, type RunPrepared } from '../../database/prepared.ts';
import type { TransferLog } from '../node-answers.ts';
import type { LedgerContext } from './context.ts';
import type { FoundTransfer, KnownTransfer } from './known-transfers.ts';
import { bytes, hashOf, idsOf, inChunks } from './values.ts';

/** A submitted authorization whose `validBefore` has passed, or that has been submitted for a minute. */
export interface DueAuthorization {
  id: string;
  token: Hex;
  from: Hex;
  nonce: Hash;
  validBefore: Date;
  /** It may have been used by a transfer whose receipt no node serves. */
  isDoubtful: boolean;
}

/** An authorization that a transfer has used. */
export interface Claim {
  /** Undefined if it was shown to another merchant. */
  id: string | undefined;
  /** The UUID of its intent. */
  intent: string;
}

/** The most authorizations that are looked at in one pass. */
const maxDue = 100;

export function createAuthorizations({ lease, settings: { networks, networkIds } }: LedgerContext) {
  const { runLimited: run, holding } = lease;
  const tokenOf = new Map(networks.map(({ id, tokenAddress }) => [id, tokenAddress.toLowerCase() as Hex]));
  return {
    /** The transfers whose sender has signed an authorization for the wallet that is paid. */
    async authorizedAt(logs: readonly TransferLog[]): Promise<ReadonlySet<TransferLog>> {
      const found = new Set<TransferLog>();
      const own = logs.filter(({ token }) => networks.some((network) => isRightToken(network, token)));
      for (const some of inChunks(own)) {
        const { rows } = await run(findAuthorized, [
          some.map((_, place) => place),
          some.map(({ from }) => bytes(from)),
          some.map(({ to }) => bytes(to)),
          networkIds,
        ]);
        for (const { place } of rows) found.add(some[place] as TransferLog);
      }
      return found;
    },
    /**
     * Submitted authorizations that end at or before this time or are a minute old, ordered by their end.
     * Leaves out those in `without` and those whose transfers are on the chain. Doubtful ones come last.
     */
    async dueAuthorizations(before: Date, without: readonly string[]): Promise<DueAuthorization[]> {
      const { rows } = await run(findDue, [networkIds, before.toISOString(), maxDue, without]);
      return rows.map((row) => ({
        id: row.id,
        token: tokenOf.get(row.network) as Hex,
        from: hashOf(row.from_address),
        nonce: hashOf(row.nonce),
        validBefore: new Date(row.valid_before),
        isDoubtful: row.is_doubtful,
      }));
    },
    /** Releases authorizations, except those marked as doubtful since they were read. Throws LeaseLost. */
    async releaseAuthorizations(
      lease: bigint,
      due: readonly Pick<DueAuthorization, 'id' | 'isDoubtful'>[],
    ): Promise<void> {
      await holding(lease, (inside) =>
        inside(release, [idsOf(due), idsOf(due.filter(({ isDoubtful }) => isDoubtful))]),
      );
    },
  };
}

/** Returns the authorizations that these transfers have used: their merchant's, or else another's. */
export async function findClaims(
  run: RunPrepared,
  { networkIds }: Pick<ChainSettings, 'networkIds'>,
  transfers: readonly KnownTransfer[],
): Promise<Map<KnownTransfer, Claim>> {
  const claims = new Map<KnownTransfer, Claim>();
  const using = transfers.filter(({ transfer }) => transfer.nonce !== undefined);
  for (const some of inChunks(using)) {
    const { rows } = await run(findUsed, [
      some.map((_, place) => place),
      some.map(({ transfer }) => bytes(transfer.log.from)),
      some.map(({ transfer }) => bytes(transfer.nonce ?? '')),
      some.map(({ merchantId }) => merchantId),
      some.map(({ transfer }) => bytes(transfer.log.to)),
      networkIds,
    ]);
    for (const { place, id, payment_intent: intent } of rows) {
      claims.set(some[place] as KnownTransfer, { id: id ?? undefined, intent });
    }
  }
  return claims;
}

/**
 * Marks authorizations as doubtful if transfers whose receipts no node serves may have used them: that
 * none was seen to use them proves nothing any more. Returns the UUIDs of their intents.
 */
export async function noteDoubtful(
  run: RunPrepared,
  { networkIds }: Pick<ChainSettings, 'networkIds'>,
  unread: readonly FoundTransfer[],
): Promise<string[]> {
  const intents: string[] = [];
  for (const some of inChunks(unread)) {
    const { rows } = await run(doubt, [
      some.map(({ log }) => bytes(log.from)),
      some.map(({ log }) => bytes(log.to)),
      networkIds,
    ]);
    for (const { payment_intent: intent } of rows) intents.push(intent);
  }
  return intents;
}

/**
 * Notes the authorizations that these transfers have used, in the transaction that records them. One whose
 * transfer is not a payment of its intent stays submitted: a payer who signed again would pay twice.
 */
export async function noteLanded(
  inside: RunPrepared,
  transfers: readonly Pick<TransferRow, 'authorizedBy' | 'paymentIntent'>[],
): Promise<void> {
  const used = transfers.filter(({ authorizedBy }) => authorizedBy != null);
  if (used.length === 0) return;
  await inside(land, [
    used.map(({ authorizedBy }) => authorizedBy),
    used.map(({ paymentIntent }) => paymentIntent),
  ]);
}

const findAuthorized = preparedStatement(
  'find_authorized_transfers',
  `select w.place from unnest($1::int[], $2::bytea[], $3::bytea[]) as w (place, from_address, wallet)
    cross join lateral (
      select from authorizations a
       where a.from_address = w.from_address and a.wallet = w.wallet and a.network = any ($4::smallint[]) limit 1) a`,
);
const findUsed = preparedStatement(
  'find_used_authorizations',
  `select w.place, a.payment_intent, case when a.merchant_id = w.merchant_id then a.id end as id
     from unnest($1::int[], $2::bytea[], $3::bytea[], $4::uuid[], $5::bytea[])
            as w (place, from_address, nonce, merchant_id, wallet)
    cross join lateral
          (select * from authorizations a
            where a.from_address = w.from_address and a.nonce = w.nonce and a.network = any ($6::smallint[])
              and a.wallet = w.wallet
            order by a.merchant_id = w.merchant_id desc, a.id limit 1) a`,
);
const doubt = preparedStatement(
  'doubt_authorizations',
  `update authorizations a set is_doubtful = true from unnest($1::bytea[], $2::bytea[]) as w (from_address, wallet)
    where a.from_address = w.from_address and a.wallet = w.wallet and a.network = any ($3::smallint[])
      and a.status = 'submitted' and not a.is_doubtful
   returning a.payment_intent`,
);
const isUnused = `not exists (select from transfers t where t.authorized_by = a.id and t.state <> 'reorged')`;
const findDue = preparedStatement(
  'find_due_authorizations',
  `select a.id, a.network, a.from_address, a.nonce, a.valid_before, a.is_doubtful from authorizations a
    where a.status = 'submitted' and a.network = any ($1::smallint[])
      and (a.valid_before <= $2 or a.created_at < now() - interval '1 minute') and a.id <> all ($4::uuid[])
      and ${isUnused}
    order by a.is_doubtful, a.valid_before limit $3`,
);
const release = preparedStatement(
  'release_authorizations',
  `update authorizations a set status = 'released', is_doubtful = false
    where a.id = any ($1::uuid[]) and (not a.is_doubtful or a.id = any ($2::uuid[])) and a.status = 'submitted' and ${isUnused}`,
);
const land = preparedStatement(
  'land_authorizations',
  `update authorizations a set status = 'landed' from unnest($1::uuid[], $2::uuid[]) as used (id, intent)
    where a.id = used.id and a.payment_intent = used.intent`,
);
