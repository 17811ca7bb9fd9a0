// Finds the merchants of whose refunds a transfer may be one. A stranger decides how many transfers there are, and a
// merchant how many refunds: each transfer costs two look-ups in an index.

import type { ChainSettings } from '../../contract/chains.ts';
import { isRightToken } from '../../contract/chains.ts';
import { parseIdentifier } from '../../database/identifiers.ts';
import { preparedStatement, type RunPrepared } from '../../database/prepared.ts';
import { mapInSlices } from '../../scheduling/slices.ts';
import type { TransferLog } from '../node-answers.ts';
import type { FoundTransfer } from './known-transfers.ts';
import { bytes, hashOf, inChunks } from './values.ts';

export type RefundOwners = ReturnType<typeof createRefundOwners>;

/** Returns the transfers with the owners of the refunds that they name. */
export type ProveRefunds = (found: readonly FoundTransfer[]) => Promise<FoundTransfer[]>;

export function createRefundOwners(run: RunPrepared, { networks }: ChainSettings) {
  const networkIds = networks.map(({ id }) => id);
  return {
    /**
     * The transfers that may be of refunds, each with the merchants whose refund it is but for its id: from the wallet that
     * was paid, to the destination, of the same amount.
     */
    async refundsAt(logs: readonly TransferLog[]): Promise<Map<TransferLog, readonly string[]>> {
      const isUsdc = ({ token }: TransferLog) => networks.some((network) => isRightToken(network, token));
      const byContents = new Map<string, TransferLog[]>();
      await mapInSlices(logs.filter(isUsdc), (log) => {
        const key = `${log.from} ${log.to} ${log.amountUnits}`;
        const equal = byContents.get(key);
        if (equal === undefined) byContents.set(key, [log]);
        else equal.push(log);
      });
      const found = new Map<TransferLog, readonly string[]>();
      for (const some of inChunks([...byContents.values()])) {
        const firsts = some.map(([first]) => first as TransferLog);
        const { rows } = await run(findRefundsAt, [
          firsts.map((_, place) => place),
          firsts.map(({ to }) => bytes(to)),
          firsts.map(({ from }) => bytes(from)),
          firsts.map(({ amountUnits }) => String(amountUnits)),
          networkIds,
        ]);
        for (const { place, merchants } of rows) {
          for (const log of some[place] ?? []) found.set(log, merchants ?? []);
        }
      }
      return found;
    },
  };
}

/** Most equal refunds of which the merchants are looked for. */
const maxEqual = 1_000;

/** Watched refunds that a transfer may be, in each network. Their columns are all in an index. */
const refundsWith = (columns: string, condition: string, limit: number) =>
  `from unnest($5::smallint[]) as n (id)
    cross join lateral (
      select ${columns} from refunds r
       where ${condition} and r.network = n.id and r.watched_until > now()
       limit ${limit}) r`;

const equal =
  'r.destination || r.wallet || int8send(r.amount_units) = w.destination || w.wallet || int8send(w.amount)';

export const findRefundsAt = preparedStatement(
  'find_refunds_at',
  `select w.place,
          (select array_agg(distinct r.merchant_id)
             ${refundsWith('r.merchant_id', equal, maxEqual)}) as merchants
     from unnest($1::int[], $2::bytea[], $3::bytea[], $4::bigint[]) as w (place, destination, wallet, amount)
    where exists (select ${refundsWith('', 'r.destination = w.destination and r.amount_units = w.amount', 1)})
       or exists (select ${refundsWith('', 'r.destination = w.destination and r.wallet = w.wallet', 1)})`,
);

export function createProveRefunds(run: RunPrepared, { networks }: ChainSettings): ProveRefunds {
  const networkIds = networks.map(({ id }) => id);
  return async (found) => {
    const named = found.filter(({ mayBeRefund }) => mayBeRefund);
    const ids = new Set(named.flatMap((transfer) => refundIdOf(transfer.named) ?? []));
    const refunds = new Map<string, Record<string, unknown>>();
    for (const some of inChunks([...ids])) {
      const { rows } = await run(findNamedRefunds, [some, networkIds]);
      for (const row of rows) refunds.set(row.id, row);
    }
    return mapInSlices(found, (transfer) => {
      const id = transfer.mayBeRefund ? refundIdOf(transfer.named) : undefined;
      const refund = id === undefined ? undefined : refunds.get(id);
      if (refund === undefined || !isOwn(refund, transfer)) return transfer;
      const merchantId = refund.merchant_id as string;
      const others = transfer.owners.filter((owner) => owner.merchantId !== merchantId);
      return {
        ...transfer,
        owners: [...others, { merchantId, isPayoutWallet: false, isExpected: false, refund: { id } }],
      };
    });
  };
}

/** Anybody may write an id that the chain has shown: it counts with the wallet that was paid, or with what was asked for. */
function isOwn(
  { wallet, destination, amount_units }: Readonly<Record<string, unknown>>,
  { log: { from, to, amountUnits } }: FoundTransfer,
): boolean {
  if (from === hashOf(wallet as Buffer)) return true;
  return to === hashOf(destination as Buffer) && amountUnits === BigInt(amount_units as string);
}

/** The UUID of the refund that a public id names; undefined for an intent's. */
function refundIdOf(named: string | undefined): string | undefined {
  return named?.startsWith('rf_') ? parseIdentifier('rf', named) : undefined;
}

const findNamedRefunds = preparedStatement(
  'find_named_refunds',
  `select id, merchant_id, wallet, destination, amount_units from refunds
    where id = any ($1::uuid[]) and network = any ($2::smallint[]) and watched_until > now()`,
);
