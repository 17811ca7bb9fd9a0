// Finds the merchants that transfers concern, by the wallet or as one of their refunds. Strangers decide how
// many transfers there are, and merchants how many refunds: these cost two index look-ups per transfer.

import { checksum } from 'ox/Address';
import type { Address, Hash } from 'viem';
import { type ChainSettings, isRightToken } from '../../contract/chains.ts';
import { maxExpiryMinutes } from '../../database/entities/payment-intent.ts';
import { lowestUuid, parseIdentifier } from '../../database/identifiers.ts';
import { preparedStatement, type RunPrepared } from '../../database/prepared.ts';
import { mapInSlices } from '../../scheduling/slices.ts';
import type { TransferLog } from '../node-answers.ts';
import type { FoundTransfer, WalletOwner } from './known-transfers.ts';
import { bytes, hashOf, inChunks } from './values.ts';

/** Merchants are notified of transfers to wallets that their intents expected within this time. */
const reportDays = 30;

export function createOwners(run: RunPrepared, { mode, chain, networks, networkIds }: ChainSettings) {
  return {
    /** All merchants' wallets and refund destinations, in lower case; undefined if there are too many. */
    async wallets(max: number): Promise<Address[] | undefined> {
      const { rows } = await run(findWallets, [mode, chain, max + 1, networkIds]);
      return rows.length > max || rows[0]?.is_cut ? undefined : rows.map(({ wallet }) => hashOf(wallet));
    },
    /** The merchants that transfers to these addresses (in lower case) concern. */
    async ownersOf(wallets: readonly Address[]): Promise<Map<Address, WalletOwner[]>> {
      const owners = new Map<Address, WalletOwner[]>();
      for (const some of inChunks(wallets)) {
        const { rows } = await run(findOwners, [
          some.map(bytes),
          await mapInSlices(some, checksum),
          mode,
          chain,
          networkIds,
          // An intent expires at most `maxExpiryMinutes` after its creation.
          lowestUuid(Date.now() - reportDays * 86_400_000 - maxExpiryMinutes * 60_000),
        ]);
        for (const row of rows) {
          const wallet = hashOf(row.wallet);
          const own = owners.get(wallet) ?? [];
          own.push({
            merchantId: row.merchant_id,
            isPayoutWallet: row.is_payout_wallet,
            isExpected: row.is_expected,
            sinceMs: Number(row.since_ms),
            watchedSinceMs: Number(row.watched_since_ms),
          });
          owners.set(wallet, own);
        }
      }
      return owners;
    },
    /**
     * The transfers that may be refunds, each with the merchants of a refund that matches in all but the id:
     * from the wallet that was paid, to the destination, of the same amount.
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
    /** Returns the transfers with the owners of the refunds that they name. */
    async proveRefunds(found: readonly FoundTransfer[]): Promise<FoundTransfer[]> {
      const named = found.filter(({ mayBeRefund }) => mayBeRefund);
      const ids = new Set(named.flatMap((transfer) => refundIdOf(transfer.named) ?? []));
      const refunds = new Map<string, Record<string, unknown>>();
      for (const some of inChunks([...ids])) {
        const { rows } = await run(findNamedRefunds, [some, networkIds]);
        for (const row of rows) refunds.set(row.id, row);
      }
      return mapInSlices(found, (transfer): FoundTransfer => {
        const id = transfer.mayBeRefund ? refundIdOf(transfer.named) : undefined;
        const refund = id === undefined ? undefined : refunds.get(id);
        if (id === undefined || refund === undefined) return transfer;
        if (transfer.log.from !== hashOf(refund.wallet as Buffer)) {
          // `takeSeen` marks entries of this list as taken, which also affects the following transfers.
          const seen = refund.seen as string[];
          if (!isAskedFor(refund, transfer) || !takeSeen(seen, transfer.log.transactionHash)) return transfer;
        }
        const merchantId = refund.merchant_id as string;
        const others = transfer.owners.filter((owner) => owner.merchantId !== merchantId);
        const isElsewhere = transfer.log.to !== hashOf(refund.destination as Buffer);
        return {
          ...transfer,
          owners: [
            ...others,
            { merchantId, isPayoutWallet: false, isExpected: false, refund: { id, isElsewhere } },
          ],
        };
      });
    },
  };
}

/** The most refunds whose destinations are looked for each time blocks are read. */
const maxWatched = 10_000;

/** Every wallet that an intent ever named, the payout wallets, and the destinations of refunds. */
const findWallets = preparedStatement(
  'find_wallets',
  `with recursive named as (
     (select expected_wallet as wallet from payment_intents order by expected_wallet limit 1)
     union all
     select (select i.expected_wallet from payment_intents i where i.expected_wallet > n.wallet
              order by i.expected_wallet limit 1)
       from named n where n.wallet is not null
   ), watched as materialized (
     select destination from refunds where network = any ($4::smallint[]) and watched_until > now()
      limit ${maxWatched + 1}
   )
   select wallet, (select count(*) > ${maxWatched} from watched) as is_cut from (
     (select wallet from named where wallet is not null limit $3)
     union
     select decode(substr(address, 3), 'hex') from payout_wallets where mode = $1 and chain = $2
     union
     select destination from watched
   ) as wallets limit $3`,
);

/** A wallet named by more of a merchant's intents always counts as theirs: a check would read all of them. */
const exactUpTo = 100;

/** Payout wallets, and the wallets of open and recently ended intents. */
const findOwners = preparedStatement(
  'find_wallet_owners',
  `with recursive wanted as (
     select * from unnest($1::bytea[], $2::text[]) as w (wallet, address)
   ), naming as (
     select w.wallet, (select i.merchant_id from payment_intents i where i.expected_wallet = w.wallet
                        order by i.merchant_id limit 1) as merchant_id
       from wanted w
     union all
     select n.wallet, (select i.merchant_id from payment_intents i
                        where i.expected_wallet = n.wallet and i.merchant_id > n.merchant_id
                        order by i.merchant_id limit 1)
       from naming n where n.merchant_id is not null
   ), owners as (
     select n.wallet, n.merchant_id, false as is_payout_wallet, i.is_expected, i.since, i.watched_since
       from naming n
      cross join lateral (
        select count(*) > ${exactUpTo}
                 or bool_or(i.network = any ($5::smallint[]) and (i.id >= $6 or i.status = 'requires_payment')) as is_expected,
               case when count(*) <= ${exactUpTo} then min(created_at) end as since,
               case when count(*) <= ${exactUpTo} then min(created_at) filter (
                 where i.network = any ($5::smallint[]) and (i.id >= $6 or i.status = 'requires_payment')) end as watched_since
          from (select network, id, status, created_at from payment_intents
                 where expected_wallet = n.wallet and merchant_id = n.merchant_id
                 order by expected_wallet, merchant_id, amount_units, id limit ${exactUpTo + 1}) i
      ) i
      where n.merchant_id is not null
     union all
     select w.wallet, p.merchant_id, true, false, p.updated_at, p.updated_at
       from wanted w join payout_wallets p on p.address = w.address and p.mode = $3 and p.chain = $4
   )
   select wallet, merchant_id, bool_or(is_payout_wallet) as is_payout_wallet, bool_or(is_expected) as is_expected,
          extract(epoch from min(coalesce(since, 'epoch'))) * 1000 as since_ms,
          extract(epoch from min(coalesce(watched_since, 'epoch')) filter (where is_payout_wallet or is_expected)) * 1000 as watched_since_ms
     from owners group by wallet, merchant_id having bool_or(is_payout_wallet or is_expected)`,
);

/** The most equal refunds whose merchants are looked up. */
const maxEqual = 1_000;

/** Watched refunds that a transfer may belong to, in each network. All columns are in an index. */
const refundsWith = (columns: string, condition: string, limit: number) =>
  `from unnest($5::smallint[]) as n (id)
    cross join lateral (
      select ${columns} from refunds r
       where ${condition} and r.network = n.id and r.watched_until > now()
       limit ${limit}) r`;

const equal =
  'r.destination || r.wallet || int8send(r.amount_units) = w.destination || w.wallet || int8send(w.amount)';

const findRefundsAt = preparedStatement(
  'find_refunds_at',
  `select w.place,
          (select array_agg(distinct r.merchant_id)
             ${refundsWith('r.merchant_id', equal, maxEqual)}) as merchants
     from unnest($1::int[], $2::bytea[], $3::bytea[], $4::bigint[]) as w (place, destination, wallet, amount)
    where exists (select ${refundsWith('', 'r.destination = w.destination and r.amount_units = w.amount', 1)})
       or exists (select ${refundsWith('', 'r.destination = w.destination and r.wallet = w.wallet', 1)})`,
);

/** Anybody can copy an id from the chain: from another wallet, the destination and amount must be right. */
function isAskedFor(
  { destination, amount_units }: Readonly<Record<string, unknown>>,
  { log: { to, amountUnits } }: FoundTransfer,
): boolean {
  return to === hashOf(destination as Buffer) && amountUnits === BigInt(amount_units as string);
}

/** One, and one by mistake: money sent in circles from other wallets must not use up what can be returned. */
const maxFromOtherWallets = 2;

/** True if `seen` has this transaction, or room for another one. Marks its entry, or a new one, as taken. */
function takeSeen(seen: string[], transactionHash: Hash): boolean {
  const place = seen.indexOf(transactionHash);
  if (place < 0 && seen.length >= maxFromOtherWallets) return false;
  seen[place < 0 ? seen.length : place] = taken;
  return true;
}
const taken = '';

/** The UUID of the refund that a public id names; undefined for an intent's. */
function refundIdOf(named: string | undefined): string | undefined {
  return named?.startsWith('rf_') ? parseIdentifier('rf', named) : undefined;
}

const findNamedRefunds = preparedStatement(
  'find_named_refunds',
  `select id, merchant_id, wallet, destination, amount_units,
          array (select '0x' || encode(t.transaction_hash, 'hex') from transfers t
                  where t.refund = r.id and t.state <> 'reorged' and t.from_address <> r.wallet) as seen
     from refunds r
    where id = any ($1::uuid[]) and network = any ($2::smallint[]) and watched_until > now()`,
);
