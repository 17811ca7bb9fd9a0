import { defineEntity, type InferEntity, p } from '@mikro-orm/core';
import { addressColumn, hexColumn, modeColumn } from './column-types.ts';

/**
 * A watched chain: its progress and its lease. The first watcher creates the row, and only the command line
 * removes it. While it exists, intents of this chain expire by the chain's clock. Triggers notify of new and
 * removed rows, but not of updates, which the watcher makes every two seconds.
 */
export const WatchedChainEntity = defineEntity({
  name: 'WatchedChain',
  tableName: 'watched_chains',
  properties: {
    /** EIP-155. */
    chainId: p.integer().primary().autoincrement(false),
    mode: modeColumn(),
    chain: p.text(),
    /** Hash of block 0. Another one means another chain. */
    genesisHash: hexColumn(),
    /** Everything up to this block has been read. */
    cursorNumber: p.bigint(),
    cursorHash: hexColumn(),
    cursorTime: p.datetime(3),
    /** Everything up to this block is final and was verified. */
    verifiedNumber: p.bigint().fieldName('second_number'),
    /** The node's newest block when it was last asked. */
    headNumber: p.bigint(),
    /** The node's newest final block when it was last asked. */
    finalizedNumber: p.bigint(),
    /** When the node last answered, by the database's clock. */
    seenAt: p.datetime(3),
    /** Counts the holders of the lease. Writers name the number they acquired. */
    leaseNumber: p.bigint(),
    leaseHolder: p.uuid().nullable(),
    leaseUntil: p.datetime(3).nullable(),
    createdAt: p.datetime(3),
  },
});

export type WatchedChainRow = InferEntity<typeof WatchedChainEntity>;

const stateNames = ['pending', 'confirmed', 'reorged'] as const;

/**
 * A transfer to a merchant's wallet. If two merchants have the wallet, each has a row. A transfer moved to
 * another block keeps its row: its transaction, token, sender, recipient, amount and ordinal identify it.
 *
 * Indexes: `payment_intent` and `refund`, their transfers in chain order; `time`, a merchant's by time;
 * `pending`, to confirm; `reorged`, to look for; `block`, to revert; `plain_refund`, a refund's without its
 * id.
 */
export const TransferEntity = defineEntity({
  name: 'Transfer',
  tableName: 'transfers',
  properties: {
    id: p.uuid().primary(),
    merchantId: p.uuid(),
    mode: modeColumn(),
    chainId: p.integer(),
    transactionHash: hexColumn(),
    logIndex: p.integer(),
    blockNumber: p.bigint(),
    blockHash: hexColumn(),
    blockTime: p.datetime(3),
    fromAddress: addressColumn(),
    toAddress: addressColumn(),
    tokenAddress: addressColumn(),
    amountUnits: p.bigint(),
    /** Numbers the equal transfers of a transaction, from 0. */
    ordinal: p.integer(),
    state: p.enum(stateNames).nativeEnumName('transfer_state'),
    /** Null while it is unattributed, and for a transfer of a refund. */
    paymentIntent: p.uuid().nullable(),
    attributedByHand: p.boolean().default(false),
    /** It was attributed by hand and then detached: now only its id or a manual attribution counts. */
    isDetached: p.boolean().default(false),
    /**
     * It goes to the destination of a refund, and is never a payment of this merchant. Without `refund`, its
     * wallets and its amount fit a refund, but it has no id.
     */
    isRefund: p.boolean().default(false),
    refund: p.uuid().nullable(),
    /** The signed authorization that it has used. */
    authorizedBy: p.uuid().nullable(),
    /** It is part of its intent's sum, or the one transfer of its refund, unless it is reorged. */
    counts: p.boolean().default(false),
    labels: p.array().$type<string[]>().nullable(),
    createdAt: p.datetime(3),
  },
});

export type TransferRow = InferEntity<typeof TransferEntity>;
