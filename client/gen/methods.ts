// Generated from the contract by src/contract/typescript: change proto/ and run `npm run generate`.

import type { List } from '../list.ts';
import type { CallOptions, CreateOptions } from '../options.ts';
import type { Method } from '../protocol.ts';
import * as fields from './fields.ts';
import type * as requests from './requests.ts';
import type * as resources from './resources.ts';

/** The methods that a merchant's key calls. */
export interface Methods {
  /** Returns an event. */
  retrieveEvent(id: string, options?: CallOptions): Promise<resources.Event>;

  /**
   * Lists events, oldest first.
   *
   * To follow events, send the id of the last one that you have handled as `after`, whenever you like: the
   * answer has the events since then.
   */
  listEvents(filters?: requests.ListEvents, options?: CallOptions): List<resources.Event>;

  /**
   * Creates a payment intent: what has to be paid, to which wallet, on which chain, until when.
   *
   * A retry returns the first call's answer, whatever has happened to the intent since; retrieve the intent
   * for its present state. A key lives as long as its intent. Once the intent has expired or been canceled,
   * the key still returns it, although it can no longer be paid. Use a new key for the order's next attempt,
   * such as `order-1001/2`.
   *
   * On a chain whose payments the service cannot see at the moment, a new intent is refused with
   * `chain_unwatched`.
   */
  createPaymentIntent<Metadata extends object>(create: requests.CreatePaymentIntent<Metadata>, options?: CreateOptions): Promise<resources.PaymentIntent>;

  /**
   * Returns an intent in its present state. It counts as one request of the rate limit for each 20 payments
   * shown, at least one.
   */
  retrievePaymentIntent(id: string, options?: CallOptions): Promise<resources.RetrievedPaymentIntent>;

  /** Lists intents, newest first. */
  listPaymentIntents(filters?: requests.ListPaymentIntents, options?: CallOptions): List<resources.PaymentIntentState>;

  /**
   * Cancels an intent that still requires payment, for good.
   *
   * Canceling a canceled intent again returns its present state. An intent that is being paid, for which a
   * signed payment is on its way, or that has ended another way is refused with `invalid_state`. Money that
   * arrives after the cancellation is reported by an event, and is yours to return.
   */
  cancelPaymentIntent(id: string, options?: CallOptions): Promise<resources.RetrievedPaymentIntent>;

  /**
   * Creates a refund. Its maximum is the sum of the intent's confirmed USDC payments, whether or not they
   * count, minus what its refunds have returned or are still to return. An intent can have 100 refunds.
   */
  createRefund<Metadata extends object>(create: requests.CreateRefund<Metadata>, options?: CreateOptions): Promise<resources.Refund & { replayed: boolean }>;

  /** Returns a refund in its present state. */
  retrieveRefund(id: string, options?: CallOptions): Promise<resources.Refund>;

  /**
   * Lists refunds, newest first. With a status, a page may hold fewer refunds than `pageSize`, even none, and
   * still have a next page: a page looks through at most 10,000 refunds for those with the status.
   */
  listRefunds(filters?: requests.ListRefunds, options?: CallOptions): List<resources.Refund>;

  /**
   * Cancels a refund whose transfer has not been seen, for good.
   *
   * Canceling a canceled refund again returns its present state. A transaction that is signed already can
   * still land: its transfer is then recorded, counted, and labeled `after_cancel`.
   */
  cancelRefund(id: string, options?: CallOptions): Promise<resources.Refund>;

  /**
   * Links a refund to the transaction that returned its money, if the wallet could not send the id: a plain
   * transfer of the refund's amount, from the wallet that the intent was paid to, to the refund's
   * destination, after the first such refund was created. A transfer can confirm only one refund. Confirming
   * the same transaction again changes nothing.
   */
  confirmRefund(id: string, confirm: requests.ConfirmRefund, options?: CallOptions): Promise<resources.Refund>;

  /** Returns a transfer. An unattributed one has the intents that it may be for as its `candidates`. */
  retrieveTransfer(id: string, options?: CallOptions): Promise<resources.Transfer>;

  /**
   * Lists transfers, newest first. With filters, a page may hold fewer transfers than `pageSize`, even none,
   * and still have a next page: a page looks through at most 10,000 transfers for those that match.
   */
  listTransfers(filters?: requests.ListTransfers, options?: CallOptions): List<resources.Transfer>;

  /**
   * Attributes a transfer to an intent of the same mode, chain and wallet. It counts if it came in time and
   * the intent has not expired or been canceled; otherwise it is recorded with its label. Attributing it to
   * the same intent again changes nothing. An intent that has ended, or has its amount already, is refused
   * without `allowEnded`.
   */
  attributeTransfer(id: string, attribute: requests.AttributeTransfer, options?: CallOptions): Promise<resources.Transfer>;

  /**
   * Undoes a manual attribution: the intent's sum, labels and status become what they would be without the
   * transfer, which is unattributed again. Refused for a payment that was attributed automatically, for one
   * that has made its intent succeed, and for one that open refunds need. Detaching a transfer that is
   * unattributed changes nothing.
   */
  detachTransfer(id: string, options?: CallOptions): Promise<resources.Transfer>;

  /**
   * Creates an endpoint. Its answer, and that of a retry with the same idempotency key, has the `secret`. A
   * retry returns the first secret and the other fields as they are now, also after a rotation or a deletion.
   * If the operator has since removed the key it was derived with, the retry is refused with `invalid_state`.
   * To have another endpoint, use a new idempotency key.
   */
  createWebhookEndpoint(create: requests.CreateWebhookEndpoint, options?: CreateOptions): Promise<resources.WebhookEndpointWithSecret>;

  /** Returns an endpoint, without its secret. */
  retrieveWebhookEndpoint(id: string, options?: CallOptions): Promise<resources.WebhookEndpoint>;

  /** Lists the endpoints, newest first. */
  listWebhookEndpoints(filters?: requests.ListWebhookEndpoints, options?: CallOptions): List<resources.WebhookEndpoint>;

  /** Changes an endpoint. A field that is left out stays as it is. */
  updateWebhookEndpoint(id: string, change: requests.UpdateWebhookEndpoint, options?: CallOptions): Promise<resources.WebhookEndpoint>;

  /** Deletes an endpoint. Its pending deliveries fail. */
  deleteWebhookEndpoint(id: string, options?: CallOptions): Promise<void>;

  /**
   * Replaces an endpoint's secret and returns the new one. Until the overlap ends, the old one signs too. A
   * retry is refused with `invalid_state` if the operator has since removed the key that the secret was
   * derived with.
   */
  rotateWebhookSecret(id: string, rotate?: requests.RotateWebhookSecret, options?: CreateOptions): Promise<resources.WebhookEndpointWithSecret>;

  /** Sends an event of the type `webhook_endpoint.ping` to this endpoint alone, and returns the event. */
  pingWebhookEndpoint(id: string, options?: CallOptions): Promise<resources.Event>;

  /**
   * Lists what was and is to be delivered to an endpoint, newest event first. With a status, a page may hold
   * fewer deliveries than `pageSize`, even none, and still have a next page: a page looks through at most
   * 10,000 deliveries for those that match. A page counts as one request of the rate limit for each 20
   * deliveries, or for each 20 attempts if those are more.
   */
  listWebhookDeliveries(id: string, filters?: requests.ListWebhookDeliveries, options?: CallOptions): List<resources.WebhookDelivery>;

  /**
   * Makes up to 10,000 deliveries to an endpoint due now, oldest first: those that have failed, or those that
   * wait for their next attempt. Each gets the whole schedule of attempts again. What is due already, or is
   * being attempted at this moment, stays as it is and is not counted; so to reach more than 10,000, call it
   * again until it returns 0.
   *
   * A disabled endpoint is refused as `invalid_state`: enable it first. Disabling an endpoint fails what was
   * pending, so after enabling it again, redelivering what has failed sends that, too.
   *
   * It counts as one request of the rate limit for each 20 deliveries. If that exceeds the remaining
   * allowance, the key's requests are refused until the allowance has recovered.
   */
  redeliverWebhookEndpoint(id: string, redeliver?: requests.RedeliverWebhookEndpoint, options?: CallOptions): Promise<number>;

  /**
   * Delivers an event again, with the whole schedule of attempts. A delivery that waits for its next attempt
   * is due now; one that is being attempted at this moment stays as it is. It counts as one request of the
   * rate limit for each 20 deliveries.
   */
  redeliverEvent(id: string, redeliver?: requests.RedeliverEvent, options?: CallOptions): Promise<resources.WebhookDelivery[]>;
}

export const methods: Readonly<Record<keyof Methods, Method>> = {
  retrieveEvent: {
    rpc: 'getEvent',
    http: 'GET /v1/events/{id}',
    status: 200,
    takesId: true,
    takesKey: false,
    answer: fields.eventFields,
  },
  listEvents: {
    rpc: 'listEvents',
    http: 'GET /v1/events',
    status: 200,
    takesId: false,
    takesKey: false,
    request: fields.listEventsFields,
    isRequestOptional: true,
    answer: fields.listEventsResponseFields,
    lists: 'events',
  },
  createPaymentIntent: {
    rpc: 'createPaymentIntent',
    http: 'POST /v1/payment_intents',
    status: 201,
    takesId: false,
    takesKey: true,
    request: fields.createPaymentIntentFields,
    isRequestOptional: false,
    answer: fields.paymentIntentFields,
  },
  retrievePaymentIntent: {
    rpc: 'getPaymentIntent',
    http: 'GET /v1/payment_intents/{id}',
    status: 200,
    takesId: true,
    takesKey: false,
    answer: fields.retrievedPaymentIntentFields,
  },
  listPaymentIntents: {
    rpc: 'listPaymentIntents',
    http: 'GET /v1/payment_intents',
    status: 200,
    takesId: false,
    takesKey: false,
    request: fields.listPaymentIntentsFields,
    isRequestOptional: true,
    answer: fields.listPaymentIntentsResponseFields,
    lists: 'paymentIntents',
  },
  cancelPaymentIntent: {
    rpc: 'cancelPaymentIntent',
    http: 'POST /v1/payment_intents/{id}/cancel',
    status: 200,
    takesId: true,
    takesKey: false,
    answer: fields.retrievedPaymentIntentFields,
  },
  createRefund: {
    rpc: 'createRefund',
    http: 'POST /v1/refunds',
    status: 201,
    takesId: false,
    takesKey: true,
    request: fields.createRefundFields,
    isRequestOptional: false,
    answer: fields.refundFields,
  },
  retrieveRefund: {
    rpc: 'getRefund',
    http: 'GET /v1/refunds/{id}',
    status: 200,
    takesId: true,
    takesKey: false,
    answer: fields.refundFields,
  },
  listRefunds: {
    rpc: 'listRefunds',
    http: 'GET /v1/refunds',
    status: 200,
    takesId: false,
    takesKey: false,
    request: fields.listRefundsFields,
    isRequestOptional: true,
    answer: fields.listRefundsResponseFields,
    lists: 'refunds',
  },
  cancelRefund: {
    rpc: 'cancelRefund',
    http: 'POST /v1/refunds/{id}/cancel',
    status: 200,
    takesId: true,
    takesKey: false,
    answer: fields.refundFields,
  },
  confirmRefund: {
    rpc: 'confirmRefund',
    http: 'POST /v1/refunds/{id}/confirm',
    status: 200,
    takesId: true,
    takesKey: false,
    request: fields.confirmRefundFields,
    isRequestOptional: false,
    answer: fields.refundFields,
  },
  retrieveTransfer: {
    rpc: 'getTransfer',
    http: 'GET /v1/transfers/{id}',
    status: 200,
    takesId: true,
    takesKey: false,
    answer: fields.transferFields,
  },
  listTransfers: {
    rpc: 'listTransfers',
    http: 'GET /v1/transfers',
    status: 200,
    takesId: false,
    takesKey: false,
    request: fields.listTransfersFields,
    isRequestOptional: true,
    answer: fields.listTransfersResponseFields,
    lists: 'transfers',
  },
  attributeTransfer: {
    rpc: 'attributeTransfer',
    http: 'POST /v1/transfers/{id}/attribute',
    status: 200,
    takesId: true,
    takesKey: false,
    request: fields.attributeTransferFields,
    isRequestOptional: false,
    answer: fields.transferFields,
  },
  detachTransfer: {
    rpc: 'detachTransfer',
    http: 'POST /v1/transfers/{id}/detach',
    status: 200,
    takesId: true,
    takesKey: false,
    answer: fields.transferFields,
  },
  createWebhookEndpoint: {
    rpc: 'createWebhookEndpoint',
    http: 'POST /v1/webhook_endpoints',
    status: 201,
    takesId: false,
    takesKey: true,
    request: fields.createWebhookEndpointFields,
    isRequestOptional: false,
    answer: fields.webhookEndpointWithSecretFields,
  },
  retrieveWebhookEndpoint: {
    rpc: 'getWebhookEndpoint',
    http: 'GET /v1/webhook_endpoints/{id}',
    status: 200,
    takesId: true,
    takesKey: false,
    answer: fields.webhookEndpointFields,
  },
  listWebhookEndpoints: {
    rpc: 'listWebhookEndpoints',
    http: 'GET /v1/webhook_endpoints',
    status: 200,
    takesId: false,
    takesKey: false,
    request: fields.listWebhookEndpointsFields,
    isRequestOptional: true,
    answer: fields.listWebhookEndpointsResponseFields,
    lists: 'webhookEndpoints',
  },
  updateWebhookEndpoint: {
    rpc: 'updateWebhookEndpoint',
    http: 'PATCH /v1/webhook_endpoints/{id}',
    status: 200,
    takesId: true,
    takesKey: false,
    request: fields.updateWebhookEndpointFields,
    isRequestOptional: false,
    answer: fields.webhookEndpointFields,
  },
  deleteWebhookEndpoint: {
    rpc: 'deleteWebhookEndpoint',
    http: 'DELETE /v1/webhook_endpoints/{id}',
    status: 200,
    takesId: true,
    takesKey: false,
    answer: fields.deleteWebhookEndpointResponseFields,
    returns: null,
  },
  rotateWebhookSecret: {
    rpc: 'rotateWebhookSecret',
    http: 'POST /v1/webhook_endpoints/{id}/rotate_secret',
    status: 200,
    takesId: true,
    takesKey: true,
    request: fields.rotateWebhookSecretFields,
    isRequestOptional: true,
    answer: fields.webhookEndpointWithSecretFields,
  },
  pingWebhookEndpoint: {
    rpc: 'pingWebhookEndpoint',
    http: 'POST /v1/webhook_endpoints/{id}/ping',
    status: 200,
    takesId: true,
    takesKey: false,
    answer: fields.eventFields,
  },
  listWebhookDeliveries: {
    rpc: 'listWebhookDeliveries',
    http: 'GET /v1/webhook_endpoints/{id}/deliveries',
    status: 200,
    takesId: true,
    takesKey: false,
    request: fields.listWebhookDeliveriesFields,
    isRequestOptional: true,
    answer: fields.listWebhookDeliveriesResponseFields,
    lists: 'webhookDeliveries',
  },
  redeliverWebhookEndpoint: {
    rpc: 'redeliverWebhookEndpoint',
    http: 'POST /v1/webhook_endpoints/{id}/redeliver',
    status: 200,
    takesId: true,
    takesKey: false,
    request: fields.redeliverWebhookEndpointFields,
    isRequestOptional: true,
    answer: fields.redeliverWebhookEndpointResponseFields,
    returns: 'deliveriesCount',
  },
  redeliverEvent: {
    rpc: 'redeliverEvent',
    http: 'POST /v1/events/{id}/redeliver',
    status: 200,
    takesId: true,
    takesKey: false,
    request: fields.redeliverEventFields,
    isRequestOptional: true,
    answer: fields.redeliverEventResponseFields,
    returns: 'webhookDeliveries',
  },
};

