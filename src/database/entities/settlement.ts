import { defineEntity, type InferEntity, p } from '@mikro-orm/core';
import { modeNames } from '../../contract/chains.ts';
import { AddressType, HexType } from './column-types.ts';
import { modeType } from './network.ts';

/** The channel on which PostgreSQL notifies every process that a chain is watched, or no longer is. */
export const watchedChainsChangedChannel = 'watched_chains_changed';

/**
 * A chain that is watched: how far, and by whom. Its first watcher creates the row, and only the command line removes it:
 * as long as it is there, intents of this chain expire by the chain's clock.
 */
export const WatchedChainEntity = defineEntity({
  name: 'WatchedChain',
  tableName: 'watched_chains',
  properties: {
    /** EIP-155. */
    chainId: p.integer().primary().autoincrement(false),
    mode: p.enum(modeNames).nativeEnumName(modeType),
    chain: p.text(),
    /** Hash of block 0: another one is another chain. */
    genesisHash: p.type(HexType).$type<string>(),
    /** Everything up to this block has been read. */
    cursorNumber: p.bigint(),
    cursorHash: p.type(HexType).$type<string>(),
    cursorTime: p.datetime(3).columnType('timestamptz(3)'),
    /** Everything up to this block is final and was verified. */
    verifiedNumber: p.bigint().fieldName('second_number'),
    /** The node's newest block, when it was last asked. */
    headNumber: p.bigint(),
    /** The node's newest final block, when it was last asked. */
    finalizedNumber: p.bigint(),
    /** When the node was last asked with success, by the database's clock. */
    seenAt: p.datetime(3).columnType('timestamptz(3)'),
    /** Counts the holders of the lease: whoever writes names the number it was given. */
    leaseNumber: p.bigint(),
    leaseHolder: p.uuid().nullable(),
    leaseUntil: p.datetime(3).columnType('timestamptz(3)').nullable(),
    createdAt: p.datetime(3).columnType('timestamptz(3)'),
  },
  triggers: [
    {
      name: 'watched_chains_changed',
      timing: 'after',
      // Not updates: the watcher makes one every two seconds.
      events: ['insert', 'delete'],
      forEach: 'statement',
      body: `perform pg_notify('${watchedChainsChangedChannel}', ''); return null`,
    },
  ],
});

export type WatchedChainRow = InferEntity<typeof WatchedChainEntity>;

/** The header of a block that is on the chain as far as we know: the newest ones, and one a day of the older ones. */
export const BlockHeaderEntity = defineEntity({
  name: 'BlockHeader',
  tableName: 'block_headers',
  properties: {
    chainId: p.integer().primary().autoincrement(false),
    number: p.bigint().primary().autoincrement(false),
    hash: p.type(HexType).$type<string>(),
    time: p.datetime(3).columnType('timestamptz(3)'),
    /** The node said five times that the block has no transfers, although its bloom filter says that it may. */
    isDoubtful: p.boolean().default(false),
    /** Kept when the others of its day are removed. */
    isCheckpoint: p.boolean().default(false),
  },
  indexes: [
    { name: 'block_headers_doubtful_index', properties: ['chainId', 'number'], where: 'is_doubtful' },
  ],
});

const stateNames = ['pending', 'confirmed', 'reorged'] as const;
export type TransferState = (typeof stateNames)[number];

/**
 * A transfer to a wallet of a merchant, as this merchant sees it; where two merchants have the wallet, each has a row.
 * A transfer that a reorganisation moves to another block stays the same: it is known by its transaction, token, sender,
 * recipient, amount, and its place among equals.
 */
export const TransferEntity = defineEntity({
  name: 'Transfer',
  tableName: 'transfers',
  properties: {
    id: p.uuid().primary(),
    merchantId: p.uuid(),
    mode: p.enum(modeNames).nativeEnumName(modeType),
    chainId: p.integer(),
    transactionHash: p.type(HexType).$type<string>(),
    logIndex: p.integer(),
    blockNumber: p.bigint(),
    blockHash: p.type(HexType).$type<string>(),
    blockTime: p.datetime(3).columnType('timestamptz(3)'),
    fromAddress: p.type(AddressType).$type<string>(),
    toAddress: p.type(AddressType).$type<string>(),
    tokenAddress: p.type(AddressType).$type<string>(),
    amountUnits: p.bigint(),
    /** Its place among the transfers of its transaction that are equal in everything else, from 0. */
    ordinal: p.integer(),
    state: p.enum(stateNames).nativeEnumName('transfer_state'),
    /** Undefined as long as it is unattributed. */
    paymentIntent: p.uuid().nullable(),
    attributedByHand: p.boolean().default(false),
    /** It was attributed by hand and taken away again: only its id, or somebody, attributes it any more. */
    isDetached: p.boolean().default(false),
    /** It is part of the sum of its intent unless it is reorganised away. */
    counts: p.boolean().default(false),
    labels: p.array().$type<string[]>().nullable(),
    createdAt: p.datetime(3).columnType('timestamptz(3)'),
  },
  indexes: [
    // The payments of an intent, in their order on the chain.
    {
      name: 'transfers_payment_intent_index',
      properties: ['paymentIntent', 'blockNumber', 'logIndex'],
      where: { paymentIntent: { $ne: null } },
    },
    { name: 'transfers_merchant_index', properties: ['merchantId', 'mode', 'id'] },
    // What a merchant has to attribute.
    {
      name: 'transfers_unattributed_index',
      properties: ['merchantId', 'mode', 'id'],
      where: { paymentIntent: null },
    },
    // What has to be confirmed.
    {
      name: 'transfers_pending_index',
      properties: ['chainId', 'blockNumber'],
      where: "state = 'pending'",
    },
    // What was reverted, and is looked for again.
    {
      name: 'transfers_reorged_index',
      properties: ['chainId', 'createdAt'],
      where: "state = 'reorged'",
    },
    // What a reorganisation reverts.
    { name: 'transfers_block_index', properties: ['chainId', 'blockNumber'] },
  ],
  uniques: [
    {
      name: 'transfers_identity_unique',
      properties: [
        'transactionHash',
        'merchantId',
        'chainId',
        'tokenAddress',
        'fromAddress',
        'toAddress',
        'amountUnits',
        'ordinal',
      ],
    },
  ],
});

export type TransferRow = InferEntity<typeof TransferEntity>;
