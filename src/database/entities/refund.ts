import { defineEntity, type InferEntity, p } from '@mikro-orm/core';
import { refundStatusNames } from '../../contract/words.ts';
import { addressColumn, hexColumn, jsonColumn, modeColumn } from './column-types.ts';

/**
 * Money to return to a payer. Its transfers are rows of `transfers`.
 *
 * Indexes `amount`, `wallet` and `equal` find the refund of a transfer to its destination by amount, sender
 * or both: one row, however many there are. `equal` has one value for its three columns: of two indexes that
 * begin with the same one, the planner takes either. `waiting` and `labels`: those that may need a person.
 */
export const RefundEntity = defineEntity({
  name: 'Refund',
  tableName: 'refunds',
  properties: {
    id: p.uuid().primary(),
    merchantId: p.uuid(),
    mode: modeColumn(),
    paymentIntent: p.uuid(),
    /** The network of the intent, which determines the chain and the token. */
    network: p.smallint(),
    amountUnits: p.bigint(),
    destination: addressColumn(),
    /** The wallet that the intent was paid to. */
    wallet: addressColumn(),
    status: p.enum(refundStatusNames).nativeEnumName('refund_status'),
    reason: p.text().nullable(),
    metadata: jsonColumn(),
    createdAt: p.datetime(3),
    expiresAt: p.datetime(3),
    succeededAt: p.datetime(3).nullable(),
    canceledAt: p.datetime(3).nullable(),
    expiredAt: p.datetime(3).nullable(),
    /** Until then transfers may belong to it: 30 days after its end, or for ever while it is open. */
    watchedUntil: p.datetime(3),
    eventCount: p.integer().default(0),
    labels: p.array().$type<string[]>().nullable(),
    idempotencyKey: p.text().nullable(),
    /** SHA-256 of the request; set if the idempotency key is. */
    requestFingerprint: hexColumn().nullable(),
  },
});

export type RefundRow = InferEntity<typeof RefundEntity>;
