import { defineEntity, p } from '@mikro-orm/core';
import { chainNames, modeNames } from '../../contract/words.ts';

/** The channel on which PostgreSQL notifies every process that its cached keys and wallets are out of date. */
export const keysChangedChannel = 'api_keys_changed';
/** Body of the triggers that notify, so that changes by plain SQL notify too. */
export const notifyKeysChanged = `perform pg_notify('${keysChangedChannel}', ''); return null`;

/** Longest name of a merchant, in characters. */
export const maxMerchantNameLength = 200;

/** A merchant, who is paid. */
export const MerchantEntity = defineEntity({
  name: 'Merchant',
  tableName: 'merchants',
  properties: {
    id: p.uuid().primary(),
    name: p.text(),
    createdAt: p.datetime(3).columnType('timestamptz(3)'),
  },
  checks: [
    {
      name: 'merchants_name_check',
      expression: `char_length(name) >= 1 and char_length(name) <= ${maxMerchantNameLength}`,
    },
  ],
  triggers: [
    {
      name: 'merchants_kept',
      timing: 'before',
      // The migration adds one for TRUNCATE, which MikroORM does not see in a schema.
      events: ['delete'],
      forEach: 'statement',
      body: "raise exception 'merchants are not deleted: payment intents refer to them'",
    },
  ],
});

/** Where a merchant is paid: one wallet for each mode and chain. */
export const PayoutWalletEntity = defineEntity({
  name: 'PayoutWallet',
  tableName: 'payout_wallets',
  properties: {
    merchantId: () => p.manyToOne(MerchantEntity).mapToPk().primary().fieldName('merchant_id'),
    mode: p.enum(modeNames).primary(),
    chain: p.enum(chainNames).primary(),
    address: p.text(),
    updatedAt: p.datetime(3).columnType('timestamptz(3)'),
  },
  // Whose wallet an address is.
  indexes: [{ name: 'payout_wallets_address_index', properties: ['address'] }],
  checks: [{ name: 'payout_wallets_address_check', expression: `address ~ '^0x[0-9a-fA-F]{40}$'` }],
  triggers: [
    {
      name: 'payout_wallets_changed',
      timing: 'after',
      events: ['insert', 'update', 'delete'],
      forEach: 'statement',
      body: notifyKeysChanged,
    },
  ],
});

/** The origins of a merchant's own pages: the checkout returns to them and speaks to them, and to no others. */
export const CheckoutSettingsEntity = defineEntity({
  name: 'CheckoutSettings',
  tableName: 'checkout_settings',
  properties: {
    merchantId: () => p.manyToOne(MerchantEntity).mapToPk().primary().fieldName('merchant_id'),
    mode: p.enum(modeNames).primary(),
    allowedOrigins: p.array().columnType('text[]'),
    updatedAt: p.datetime(3).columnType('timestamptz(3)'),
  },
});
