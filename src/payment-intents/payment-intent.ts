import { create } from '@bufbuild/protobuf';
import { timestampFromDate } from '@bufbuild/protobuf/wkt';
import type { KeyRing } from '../config/key-ring.ts';
import { chainOf, modeOf, networkOf, usdcDecimals, usdcSymbol } from '../contract/chains.ts';
import {
  Lane,
  type PaymentIntent,
  PaymentIntentSchema,
  PaymentIntentStatus,
} from '../contract/gen/payments/v1/payment_intent_pb.ts';
import type { LaneName, PaymentIntentRow, StatusName } from '../database/entities/payment-intent.ts';
import { formatIdentifier } from '../database/identifiers.ts';
import { clientSecret } from './client-secret.ts';

const statusOf = {
  requires_payment: PaymentIntentStatus.REQUIRES_PAYMENT,
} as const satisfies Partial<Record<StatusName, PaymentIntentStatus>>;

const laneOf = { sdk: Lane.SDK, manual: Lane.MANUAL } as const satisfies Record<LaneName, Lane>;

/** Converts a row to the contract's payment intent. Throws if the row has a value that only a newer version knows. */
export function toPaymentIntent(row: PaymentIntentRow, clientSecretKeys: KeyRing): PaymentIntent {
  const id = formatIdentifier('pi', row.id);
  const network = networkOf(row.network) ?? isNewer(`network ${row.network}`);
  return create(PaymentIntentSchema, {
    id,
    status: numberOf(statusOf, row.status),
    clientSecret: clientSecret(clientSecretKeys, row.clientSecretVersion, id),
    mode: numberOf(modeOf, row.mode),
    chain: numberOf(chainOf, network.chain),
    chainId: BigInt(network.chainId),
    confirmationsRequired: network.confirmationsRequired,
    amountUnits: BigInt(row.amountUnits),
    decimals: usdcDecimals,
    tokenSymbol: usdcSymbol,
    tokenAddress: network.usdcAddress,
    expectedWallet: row.expectedWallet,
    expiresAt: timestampFromDate(row.expiresAt),
    expiresInMinutes: (row.expiresAt.getTime() - row.createdAt.getTime()) / 60_000,
    lane: numberOf(laneOf, row.lane),
    metadata: row.metadata,
  });
}

/**
 * The contract's number for a value in the database. Throws for an unknown value, written by a newer process, because
 * it must not be returned as another.
 */
function numberOf<Word extends string, Value>(
  values: Readonly<Partial<Record<Word, Value>>>,
  word: Word,
): Value {
  return values[word] ?? isNewer(word);
}

function isNewer(what: string): never {
  throw new Error(`the database holds ${what}, which is newer than this process`);
}
