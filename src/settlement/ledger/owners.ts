// Finds the merchants that transfers to a wallet concern.

import { checksum } from 'ox/Address';
import type { Address } from 'viem';
import type { ChainSettings } from '../../contract/chains.ts';
import { maxExpiryMinutes } from '../../database/entities/payment-intent.ts';
import { lowestUuid } from '../../database/identifiers.ts';
import { preparedStatement, type RunPrepared } from '../../database/prepared.ts';
import { mapInSlices } from '../../scheduling/slices.ts';
import { bytes, hashOf, inChunks } from './values.ts';

/** Merchants are notified of transfers to wallets that their intents expected within this time. */
const reportDays = 30;

/** A merchant that transfers to a wallet concern. */
export interface WalletOwner {
  merchantId: string;
  isPayoutWallet: boolean;
  /** An intent of the merchant expected a payment there within the last `reportDays`. */
  isExpected: boolean;
  /** The transfer is one of this merchant's refunds, and no payment. Without an id it is only known to look like one. */
  refund?: { id: string | undefined };
}

export type Owners = ReturnType<typeof createOwners>;

export function createOwners(run: RunPrepared, { mode, chain, networks }: ChainSettings) {
  const networkIds = networks.map(({ id }) => id);
  return {
    /** The wallets of all merchants and the destinations of refunds, in lower case, at most `limit`. */
    async wallets(limit: number): Promise<Address[]> {
      const { rows } = await run(findWallets, [mode, chain, limit, networkIds]);
      return rows.map(({ wallet }) => hashOf(wallet));
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
          });
          owners.set(wallet, own);
        }
      }
      return owners;
    },
  };
}

/** Every wallet that an intent ever named, and the payout wallets. */
const findWallets = preparedStatement(
  'find_wallets',
  `with recursive named as (
     (select expected_wallet as wallet from payment_intents order by expected_wallet limit 1)
     union all
     select (select i.expected_wallet from payment_intents i where i.expected_wallet > n.wallet
              order by i.expected_wallet limit 1)
       from named n where n.wallet is not null
   )
   select wallet from (
     (select wallet from named where wallet is not null limit $3)
     union
     select decode(substr(address, 3), 'hex') from payout_wallets where mode = $1 and chain = $2
     union
     select destination from refunds where network = any ($4::smallint[]) and watched_until > now()
   ) as wallets limit $3`,
);

/** A wallet that a merchant's intents have named more often stays theirs: all of them would have to be looked at. */
const exactUpTo = 100;

/** Payout wallets, and the wallets of open and recently ended intents. */
export const findOwners = preparedStatement(
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
     select n.wallet, n.merchant_id, false as is_payout_wallet,
            (select count(*) > ${exactUpTo}
                    or bool_or(i.network = any ($5::smallint[]) and (i.id >= $6 or i.status = 'requires_payment'))
               from (select network, id, status from payment_intents
                      where expected_wallet = n.wallet and merchant_id = n.merchant_id
                      order by expected_wallet, merchant_id, amount_units, id limit ${exactUpTo + 1}) i) as is_expected
       from naming n where n.merchant_id is not null
     union all
     select w.wallet, p.merchant_id, true, false
       from wanted w join payout_wallets p on p.address = w.address and p.mode = $3 and p.chain = $4
   )
   select wallet, merchant_id, bool_or(is_payout_wallet) as is_payout_wallet, bool_or(is_expected) as is_expected
     from owners group by wallet, merchant_id having bool_or(is_payout_wallet or is_expected)`,
);
