import type { KeyRing } from '../config/key-ring.ts';
import { networkFor } from '../contract/chains.ts';
import type { PaymentIntent } from '../contract/gen/payments/v1/payment_intent_pb.ts';
import type { CreatePaymentIntentRequest } from '../contract/gen/payments/v1/payment_intent_service_pb.ts';
import type { NewPaymentIntentRow } from '../database/entities/payment-intent.ts';
import { newUuid } from '../database/identifiers.ts';
import { invalidBody } from '../requests/errors.ts';
import { parseIdempotencyKey } from '../requests/idempotency-key.ts';
import type { Method } from '../requests/method.ts';
import { type Identity, identityOf, requestContextOf } from '../requests/request-context.ts';
import {
  fingerprintOf,
  type NewPaymentIntent,
  parseCreatePaymentIntentRequest,
} from './create-payment-intent-request.ts';
import { createdPaymentIntent } from './payment-intent.ts';
import type { PaymentIntentStore } from './store.ts';
import { chainUnwatched, type WatchedChains } from './watched-chains.ts';

/** Marks an answer that returns the intent of an earlier call with the same idempotency key. */
const replayedHeader = 'Idempotent-Replayed';

/**
 * `CreatePaymentIntent`: stores a new intent, or returns the existing one for its idempotency key. Throws `chain_unwatched`
 * instead of storing one on a chain that is not allowed.
 */
export function createPaymentIntent(
  store: PaymentIntentStore,
  clientSecretKeys: KeyRing,
  watchedChains: Pick<WatchedChains, 'allows'>,
): Method<CreatePaymentIntentRequest, PaymentIntent> {
  return {
    ratePolicy: 'creates',
    violations(request, values) {
      const parsed = parseCreatePaymentIntentRequest(request, identityOf(values));
      return 'violations' in parsed ? parsed.violations : [];
    },
    async run(request, context) {
      const identity = identityOf(context.values);
      const idempotencyKey = parseIdempotencyKey(context.requestHeader.get('idempotency-key'));
      const parsed = parseCreatePaymentIntentRequest(request, identity);
      if ('violations' in parsed) throw invalidBody(parsed.violations);

      const row = buildPaymentIntent(parsed.value, identity, idempotencyKey, clientSecretKeys.newestVersion);
      const requestContext = requestContextOf(context.values);
      const { chain } = parsed.value;
      const stored = watchedChains.allows(identity.mode, chain)
        ? await store.create(row, { trace: requestContext.trace, signal: context.signal })
        : await store.findReplay(row, { signal: context.signal });
      if (stored === undefined) throw chainUnwatched(identity.mode, chain);
      const { intent, replayed } = stored;
      if (replayed) {
        requestContext.replayed = true;
        context.responseHeader.set(replayedHeader, 'true');
      }
      const created = createdPaymentIntent(intent, clientSecretKeys);
      requestContext.paymentIntent = created.id;
      return created;
    },
  };
}

function buildPaymentIntent(
  intent: NewPaymentIntent,
  identity: Identity,
  idempotencyKey: string | undefined,
  clientSecretVersion: number,
): NewPaymentIntentRow {
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
