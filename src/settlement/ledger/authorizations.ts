// The signed authorizations that the transfers of a chain use, and their release. The lock order is that of the ledger:
// intents, refunds, authorizations, transfers.

import type { Hash, Hex } from 'viem';
import type { ChainSettings } from '../../contract/chains.ts';
import { isRightToken } from '../../contract/chains.ts';
import { formatIdentifier } from '../../database/identifiers.ts';
import { preparedStatement, type RunPrepared } from '../../database/prepared.ts';
import type { TransferLog } from '../node-answers.ts';
import type { KnownTransfer } from './known-transfers.ts';
import type { Lease } from './lease.ts';
import { bytes, hashOf, inChunks } from './values.ts';

/** An authorization that no block takes any more, unless one has taken it. */
export interface DueAuthorization {
  id: string;
  token: Hex;
  from: Hex;
  nonce: Hash;
  validBefore: Date;
  createdAt: Date;
}

/** An authorization that a transfer has used. */
export interface Claim {
  id: string;
  /** The public id of its intent. */
  named: string;
}

export interface Authorizations {
  /** The transfers whose sender has signed an authorization for their wallet. */
  authorizedAt(logs: readonly TransferLog[]): Promise<ReadonlySet<TransferLog>>;
  /** Submitted authorizations that end before the time of a block. */
  dueAuthorizations(before: Date): Promise<DueAuthorization[]>;
  /** Releases authorizations that the chain will never take. Throws LeaseLost. */
  releaseAuthorizations(lease: bigint, ids: readonly string[]): Promise<void>;
}

/** Most that are looked at in one pass. */
const maxDue = 100;

export function createAuthorizations(
  run: RunPrepared,
  { holding }: Pick<Lease, 'holding'>,
  { networks }: ChainSettings,
): Authorizations {
  const networkIds = networks.map(({ id }) => id);
  return {
    async authorizedAt(logs) {
      const found = new Set<TransferLog>();
      const own = logs.filter(({ token }) => networks.some((network) => isRightToken(network, token)));
      for (const some of inChunks(own)) {
        const { rows } = await run(findAuthorized, [
          some.map((_, place) => place),
          some.map(({ from }) => bytes(from)),
          some.map(({ to }) => bytes(to)),
        ]);
        for (const { place } of rows) found.add(some[place] as TransferLog);
      }
      return found;
    },
    async dueAuthorizations(before) {
      const { rows } = await run(findDue, [networkIds, before.toISOString(), maxDue]);
      return rows.map((row) => ({
        id: row.id,
        token: hashOf(row.token_address),
        from: hashOf(row.from_address),
        nonce: hashOf(row.nonce),
        validBefore: new Date(row.valid_before),
        createdAt: new Date(row.created_at),
      }));
    },
    releaseAuthorizations: (lease, ids) =>
      holding(lease, async (inside) => {
        await inside(release, [ids]);
      }),
  };
}

/** Returns the authorizations that these transfers have used, each for the merchant that was shown it. */
export async function findClaims(
  run: RunPrepared,
  mode: ChainSettings['mode'],
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
      mode,
    ]);
    for (const { place, id, payment_intent: intent } of rows) {
      claims.set(some[place] as KnownTransfer, { id, named: formatIdentifier('pi', intent) });
    }
  }
  return claims;
}

/** Notes that these have been used, in the transaction that records their transfers. */
export async function noteLanded(inside: RunPrepared, ids: readonly string[]): Promise<void> {
  if (ids.length > 0) await inside(land, [ids]);
}

const findAuthorized = preparedStatement(
  'find_authorized_transfers',
  `select w.place from unnest($1::int[], $2::bytea[], $3::bytea[]) as w (place, from_address, wallet)
    where exists (select from authorizations a where a.from_address = w.from_address and a.wallet = w.wallet)`,
);
const findUsed = preparedStatement(
  'find_used_authorizations',
  `select w.place, a.id, a.payment_intent
     from unnest($1::int[], $2::bytea[], $3::bytea[], $4::uuid[], $5::bytea[])
            as w (place, from_address, nonce, merchant_id, wallet)
    cross join lateral
          (select * from authorizations a
            where a.from_address = w.from_address and a.nonce = w.nonce and a.merchant_id = w.merchant_id and a.mode = $6
              and a.wallet = w.wallet limit 1) a`,
);
const findDue = preparedStatement(
  'find_due_authorizations',
  `select a.id, n.token_address, a.from_address, a.nonce, a.valid_before, a.created_at
     from authorizations a join networks n on n.id = a.network
    where a.status = 'submitted' and a.network = any ($1::smallint[]) and a.valid_before <= $2
    order by a.valid_before desc limit $3`,
);
const release = preparedStatement(
  'release_authorizations',
  `update authorizations set status = 'released' where id = any ($1::uuid[]) and status = 'submitted'`,
);
const land = preparedStatement(
  'land_authorizations',
  `update authorizations set status = 'landed' where id = any ($1::uuid[])`,
);
