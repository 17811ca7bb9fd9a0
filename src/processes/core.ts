// The services, and what the doors do before one of their methods runs.

import type { EntityManager } from '@mikro-orm/postgresql';
import type { Gasless } from '../authorizations/gasless.ts';
import { createPayCheckout } from '../authorizations/pay-checkout.ts';
import { createCheckout } from '../checkout/get-checkout.ts';
import type { ChainNodes, Config } from '../config/config.ts';
import type { KeyRing } from '../config/key-ring.ts';
import { auditedService, createAudit } from '../console/audit.ts';
import { createOpenExport } from '../console/export-payments.ts';
import { createConsoleService } from '../console/service.ts';
import { createSessions } from '../console/sessions.ts';
import { CheckoutSchema } from '../contract/gen/payments/v1/checkout_pb.ts';
import { EventService } from '../contract/gen/payments/v1/event_service_pb.ts';
import { PaymentIntentService } from '../contract/gen/payments/v1/payment_intent_service_pb.ts';
import { RefundService } from '../contract/gen/payments/v1/refund_service_pb.ts';
import { TransferService } from '../contract/gen/payments/v1/transfer_service_pb.ts';
import { WebhookEndpointService } from '../contract/gen/payments/v1/webhook_endpoint_service_pb.ts';
import { createJsonCodec } from '../contract/json/json-codec.ts';
import type { OutageLog } from '../database/outage-log.ts';
import { createDatabaseProbe } from '../database/writability.ts';
import { authenticateByKey, authenticateBySecret } from '../doors/authentication.ts';
import { admit } from '../doors/call.ts';
import { createReadiness } from '../doors/operations/readiness.ts';
import { createRateLimit } from '../doors/rate-limit.ts';
import type { EventFeed } from '../events/event-feed.ts';
import { getEvent, listEvents, watchEvents } from '../events/event-methods.ts';
import { createEventCursors, createEventReader } from '../events/read-events.ts';
import { createApiKeys, createFindMerchant } from '../merchants/api-keys.ts';
import { createPaymentIntentStore, type PaymentIntentStore } from '../payment-intents/insert-or-replay.ts';
import { intentOpenedBy } from '../payment-intents/payment-intent.ts';
import { createPaymentIntentMethods } from '../payment-intents/payment-intent-methods.ts';
import type { WatchedChains } from '../payment-intents/watched-chains.ts';
import { createRefund } from '../refunds/create-refund.ts';
import { cancelRefund, confirmRefund, getRefund, listRefunds } from '../refunds/refund-methods.ts';
import { authenticated, type ImplementedService, implementService } from '../requests/method.ts';
import { createMinuteLimit } from '../requests/minute-limit.ts';
import type { Identity, RequestContext } from '../requests/request-context.ts';
import type { RequestHeader } from '../requests/request-header.ts';
import { attributeTransfer, detachTransfer } from '../settlement/change-transfer.ts';
import { getTransfer, listTransfers } from '../settlement/read-transfers.ts';
import type { AddressPolicy } from '../webhooks/address-policy.ts';
import { createDeliveryMethods } from '../webhooks/deliveries.ts';
import { createEndpointMethods } from '../webhooks/endpoints.ts';
import type { Background } from './background.ts';
import type { Database } from './open-database.ts';
import type { Telemetry } from './start-telemetry.ts';

const checkoutCodec = createJsonCodec(CheckoutSchema);

/** A failover takes some seconds. */
const minToleratedMs = 5_000;

export type Core = ReturnType<typeof createCore>;

interface Work {
  feed: EventFeed;
  background: Background;
  /** Its keys are `WEBHOOK_SECRET_KEYS`. */
  webhooks: { keys: KeyRing; policy: AddressPolicy };
  watchedChains: WatchedChains;
  gasless: Gasless;
  /** The nodes of this process; local chains are added when they have started. */
  chainNodes: readonly ChainNodes[];
  outages: OutageLog;
  /** Aborts when the service stops. */
  stopping: AbortSignal;
}

/** The services, and the limit of their callers, that the doors share. */
export function createCore(config: Config, database: Database, { metrics }: Telemetry, work: Work) {
  const { gasless, chainNodes, stopping } = work;
  const { logger, onWorked } = work.outages;
  const { em } = database.orm;
  const peppers = database.keyRing('API_KEY_PEPPERS');
  const apiKeys = createApiKeys(em, peppers, {
    maxWaitMs: config.queue.maxWaitMs,
    onLookup: metrics.keyLookup,
  });
  const { probe, ...writes } = createDatabaseProbe(em, {
    onCommit: onWorked,
    onRefusal(reason) {
      if (reason === undefined) logger.info('the database can be used again');
      else logger.warn({ reason }, 'not ready: the database cannot be used');
    },
  });
  const store = createPaymentIntentStore(em, config.queue, { onBatch: metrics.batch, ...writes });
  const clientSecretKeys = database.keyRing('CLIENT_SECRET_KEYS');
  const merchantServices = createServices(em, store, clientSecretKeys, work);
  const isGasless = (network: number) => gasless.on(network) !== undefined;
  const { readCheckout, checkoutService } = createCheckout(em, isGasless);
  const { unattributedMinUnits } = config;
  const consoleService = createConsoleService(em, chainNodes, gasless, peppers, unattributedMinUnits);
  const takeFromLimit = createRateLimit(config.rateLimits);
  const byKey = authenticateByKey(apiKeys);
  const chargeCheckout = (context: RequestContext) => takeFromLimit(context, 'checkout');
  const bySecret = authenticateBySecret((secret) => intentOpenedBy(clientSecretKeys, secret), chargeCheckout);
  const audit = createAudit(em, (reason, requestId) =>
    logger.warn({ err: reason, request_id: requestId }, 'the outcome of a change could not be written'),
  );
  const services = [
    ...merchantServices.map((service) => authenticated(auditedService(service, audit), byKey)),
    authenticated(checkoutService, bySecret),
  ];
  const sessions = createSessions(em, peppers);
  return {
    apiKeys,
    /** What the console's door needs, except its address and pages. */
    forConsole: {
      services: merchantServices,
      consoleService,
      sessions,
      audit,
      findMerchant: createFindMerchant(em),
      openExport: createOpenExport(em, peppers),
    },
    store,
    services,
    takeFromLimit,
    payCheckout: createPayCheckout(em, {
      gasless,
      toleranceUnits: unattributedMinUnits,
      checkoutText: async (opened) => checkoutCodec.encode(await readCheckout(opened)),
      stopping,
      takeFromPayerLimit: createMinuteLimit('Too many signed payments within a minute.'),
      metrics: metrics.pay,
      logger,
    }),
    /** The gate of the checkout page's requests that are not RPCs. */
    admitPayer: (context: RequestContext, header: RequestHeader) =>
      admit(bySecret, 'checkout', takeFromLimit, context, header),
    readiness: createReadiness(probe, Math.max(minToleratedMs, config.queue.maxWaitMs)),
  };
}

/** The services that take an API key. */
function createServices(
  em: EntityManager,
  store: PaymentIntentStore,
  clientSecretKeys: KeyRing,
  { feed, background: { onEvent, onDeliveries }, webhooks, watchedChains }: Work,
): ImplementedService<Identity>[] {
  const events = createEventReader(em);
  const cursors = createEventCursors(em);
  return [
    implementService(
      PaymentIntentService,
      createPaymentIntentMethods(em, store, clientSecretKeys, watchedChains, onEvent),
    ),
    implementService(EventService, {
      getEvent: getEvent(events),
      listEvents: listEvents(events, cursors),
      watchEvents: watchEvents(events, cursors, feed),
    }),
    implementService(WebhookEndpointService, {
      ...createEndpointMethods(em, webhooks.keys, webhooks.policy, onEvent),
      ...createDeliveryMethods(em, onDeliveries),
    }),
    implementService(TransferService, {
      getTransfer: getTransfer(em),
      listTransfers: listTransfers(em),
      attributeTransfer: attributeTransfer(em, onEvent),
      detachTransfer: detachTransfer(em, onEvent),
    }),
    implementService(RefundService, {
      createRefund: createRefund(em, watchedChains),
      getRefund: getRefund(em),
      listRefunds: listRefunds(em),
      cancelRefund: cancelRefund(em, onEvent),
      confirmRefund: confirmRefund(em, onEvent),
    }),
  ];
}
