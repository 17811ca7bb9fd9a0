import { defineEntity, p } from '@mikro-orm/core';
import { chainNames, modeNames } from '../../contract/words.ts';

/** The channel on which PostgreSQL tells every process that its cached keys and wallets are out of date. */
export const keysChangedChannel = 'api_keys_changed';

/** A merchant, who receives payments. */
export const MerchantEntity = defineEntity({
  name: 'Merchant',
  tableName: 'merchants',
  properties: {
    id: p.uuid().primary(),
    name: p.text(),
    createdAt: p.datetime(3),
  },
});

/** Where a merchant is paid: one wallet for each mode and chain. */
export const PayoutWalletEntity = defineEntity({
  name: 'PayoutWallet',
  tableName: 'payout_wallets',
  properties: {
    merchantId: p.uuid().primary(),
    mode: p.enum(modeNames).primary(),
    chain: p.enum(chainNames).primary(),
    address: p.text(),
    updatedAt: p.datetime(3),
  },
});

/** The origins of a merchant's pages. The checkout returns and sends messages only to these. */
export const CheckoutSettingsEntity = defineEntity({
  name: 'CheckoutSettings',
  tableName: 'checkout_settings',
  properties: {
    merchantId: p.uuid().primary(),
    mode: p.enum(modeNames).primary(),
    allowedOrigins: p.array().columnType('text[]'),
    updatedAt: p.datetime(3),
  },
});
