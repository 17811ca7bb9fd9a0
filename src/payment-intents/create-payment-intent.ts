import type { KeyRing } from '../config/key-ring.ts';
import type { PaymentIntentService } from '../contract/gen/payments/v1/payment_intent_service_pb.ts';
import type { NewPaymentIntentRow } from '../database/entities/payment-intent.ts';
import { newUuid } from '../database/identifiers.ts';
import { invalidBody } from '../requests/errors.ts';
import { parseIdempotencyKey } from '../requests/idempotency-key.ts';
import type { MethodsOf } from '../requests/method.ts';
import type { Identity } from '../requests/request-context.ts';
import {
  fingerprintOf,
  type NewPaymentIntent,
  parseCreatePaymentIntentRequest,
} from './create-payment-intent-request.ts';
import type { PaymentIntentStore } from './insert-or-replay.ts';
import { createdPaymentIntent } from './payment-intent.ts';
import { chainUnwatched, type WatchedChains } from './watched-chains.ts';

/**
 * `CreatePaymentIntent`: stores a new intent, or returns the existing one for its idempotency key. Throws `chain_unwatched`
 * instead of storing one on a chain that is not allowed.
 */
export function createPaymentIntent(
  store: PaymentIntentStore,
  clientSecretKeys: KeyRing,
  watchedChains: Pick<WatchedChains, 'allows'>,
): MethodsOf<typeof PaymentIntentService>['createPaymentIntent'] {
  return {
    ratePolicy: 'creates',
    isSelfChecking: true,
    violations(request, identity) {
      const parsed = parseCreatePaymentIntentRequest(request, identity);
      return 'violations' in parsed ? parsed.violations : [];
    },
    async run(request, identity, { context, header, signal }) {
      const idempotencyKey = parseIdempotencyKey(header.get('idempotency-key'));
      const parsed = parseCreatePaymentIntentRequest(request, identity);
      if ('violations' in parsed) throw invalidBody(parsed.violations);

      const row = buildPaymentIntent(parsed.value, identity, idempotencyKey, clientSecretKeys.newestVersion);
      const { chain } = parsed.value;
      const stored = watchedChains.allows(identity.mode, chain)
        ? await store.create(row, { trace: context.trace, signal })
        : await store.findReplay(row);
      if (stored === undefined) throw chainUnwatched(identity.mode, chain);
      const { intent, replayed } = stored;
      if (replayed) context.replayed = true;
      const created = createdPaymentIntent(intent, clientSecretKeys);
      context.paymentIntent = created.id;
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
    network: intent.network.id,
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
