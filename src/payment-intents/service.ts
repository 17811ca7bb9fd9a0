import { create } from '@bufbuild/protobuf';
import { timestampFromDate } from '@bufbuild/protobuf/wkt';
import type { ContextValues } from '@connectrpc/connect';
import type { KeyRing } from '../config/key-ring.ts';
import { chainOf, modeOf, networkFor, networkOf, usdcDecimals, usdcSymbol } from '../contract/chains.ts';
import type { FieldViolation } from '../contract/error-catalogue.ts';
import {
  Lane,
  type PaymentIntent,
  PaymentIntentSchema,
  PaymentIntentStatus,
} from '../contract/gen/payments/v1/payment_intent_pb.ts';
import type { CreatePaymentIntentRequest } from '../contract/gen/payments/v1/payment_intent_service_pb.ts';
import type { LaneName, PaymentIntentRow, StatusName } from '../database/entities/payment-intent.ts';
import { formatIdentifier, newUuid } from '../database/identifiers.ts';
import { invalidBody } from '../requests/errors.ts';
import { parseIdempotencyKey } from '../requests/idempotency-key.ts';
import { type Identity, identityOf, requestContextOf } from '../requests/request-context.ts';
import { clientSecret } from './client-secret.ts';
import {
  fingerprintOf,
  type NewPaymentIntent,
  parseCreatePaymentIntentRequest,
} from './create-payment-intent-request.ts';
import type { PaymentIntentStore } from './store.ts';

/** The part of a Connect HandlerContext that the methods use, so that every door can offer it. */
export interface CallContext {
  readonly values: ContextValues;
  readonly requestHeader: Headers;
  readonly responseHeader: Headers;
  /** Aborts when nobody waits for the answer any more: what has not begun then need not begin. */
  readonly signal: AbortSignal;
}

/** The methods of `payments.v1.PaymentIntentService`, the same for every door. */
export interface PaymentIntentServiceImpl {
  createPaymentIntent(request: CreatePaymentIntentRequest, context: CallContext): Promise<PaymentIntent>;
}

const statusOf = {
  requires_payment: PaymentIntentStatus.REQUIRES_PAYMENT,
} as const satisfies Partial<Record<StatusName, PaymentIntentStatus>>;

const laneOf = { sdk: Lane.SDK, manual: Lane.MANUAL } as const satisfies Record<LaneName, Lane>;

/** Says that the answer is the intent of an earlier call with the same idempotency key. */
const replayedHeader = 'Idempotent-Replayed';

export function createPaymentIntentService(
  store: PaymentIntentStore,
  clientSecretKeys: KeyRing,
): PaymentIntentServiceImpl {
  return {
    async createPaymentIntent(request, context) {
      const identity = identityOf(context.values);
      const idempotencyKey = parseIdempotencyKey(context.requestHeader.get('idempotency-key'));
      const parsed = parseCreatePaymentIntentRequest(request, identity);
      if ('violations' in parsed) throw invalidBody(parsed.violations);

      const row = buildPaymentIntent(parsed.value, identity, idempotencyKey, clientSecretKeys.newestVersion);
      const requestContext = requestContextOf(context.values);
      const { intent, replayed } = await store.create(row, {
        trace: requestContext.trace,
        signal: context.signal,
      });
      if (replayed) {
        requestContext.replayed = true;
        context.responseHeader.set(replayedHeader, 'true');
      }
      return toPaymentIntent(intent, clientSecretKeys);
    },
  };
}

/** What is wrong with a create request, for a door that found faults of shape and wants to name all faults at once. */
export function createPaymentIntentViolations(
  request: CreatePaymentIntentRequest,
  values: ContextValues,
): FieldViolation[] {
  const parsed = parseCreatePaymentIntentRequest(request, identityOf(values));
  return 'violations' in parsed ? parsed.violations : [];
}

function buildPaymentIntent(
  intent: NewPaymentIntent,
  identity: Identity,
  idempotencyKey: string | undefined,
  clientSecretVersion: number,
): PaymentIntentRow {
  const createdAtMs = Date.now();
  return {
    id: newUuid(createdAtMs),
    merchantId: identity.merchantId,
    mode: identity.mode,
    status: 'requires_payment',
    network: networkFor(identity.mode, intent.chain).id,
    amountUnits: intent.amountUnits,
    expectedWallet: intent.expectedWallet,
    lane: intent.lane,
    metadata: intent.metadata,
    createdAt: new Date(createdAtMs),
    expiresAt: new Date(createdAtMs + intent.expiresInMinutes * 60_000),
    clientSecretVersion,
    idempotencyKey: idempotencyKey ?? null,
    requestFingerprint: idempotencyKey === undefined ? null : fingerprintOf(intent),
  };
}

function toPaymentIntent(row: PaymentIntentRow, clientSecretKeys: KeyRing): PaymentIntent {
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
 * The contract's number for a word of the database. Throws for one that a newer process has written: this process has
 * no word for it, and must not answer it as another.
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
