import type { Event, ListEvents } from './event.ts';
import type { List } from './list.ts';
import type { CallOptions, CreateOptions } from './options.ts';
import type {
  CreatePaymentIntent,
  ListPaymentIntents,
  PaymentIntent,
  PaymentIntentState,
  RetrievedPaymentIntent,
} from './payment-intent.ts';
import type { AttributeTransfer, ListTransfers, Transfer } from './transfer.ts';
import type { WatchEvents, WatchedEvent } from './watch-events.ts';
import type {
  CreateWebhookEndpoint,
  ListWebhookDeliveries,
  ListWebhookEndpoints,
  RedeliverEvent,
  RedeliverWebhookEndpoint,
  RotateWebhookSecret,
  UpdateWebhookEndpoint,
  WebhookDelivery,
  WebhookEndpoint,
  WebhookEndpointWithSecret,
} from './webhook-endpoint.ts';

/**
 * Every call is tried again after a failure that may pass (`rate_limited`, `unavailable`, `internal`, a broken
 * connection), with the same idempotency key if it has one, after the server's Retry-After or a growing pause.
 *
 * It throws PaymentIntentsError for anything else, when the tries or the time are used up, and if the server asks to
 * wait for more than a minute. It throws the reason of `signal` once that is aborted, and a TypeError for an option that
 * does not exist. A field that does not exist is refused as `invalid_body` before anything is sent.
 */
export interface PaymentIntentsClient {
  /** Creates an intent and returns it once it is durable. */
  createPaymentIntent<Metadata extends object>(
    create: CreatePaymentIntent<Metadata>,
    options?: CreateOptions,
  ): Promise<PaymentIntent>;

  /** Returns an intent in its present state, with its client secret. */
  retrievePaymentIntent(id: string, options?: CallOptions): Promise<RetrievedPaymentIntent>;

  /** Lists intents, newest first, without their client secrets. */
  listPaymentIntents(filters?: ListPaymentIntents, options?: CallOptions): List<PaymentIntentState>;

  /**
   * Cancels an intent that still requires payment, for good, and returns it. Canceling it again changes nothing. An
   * intent that is being paid, or has ended another way, is refused as `invalid_state`.
   */
  cancelPaymentIntent(id: string, options?: CallOptions): Promise<RetrievedPaymentIntent>;

  /** Returns an event. */
  retrieveEvent(id: string, options?: CallOptions): Promise<Event>;

  /**
   * Lists events, oldest first. To follow, ask with `after`, the id of the last event that you have handled. Refused as
   * `cursor_expired` once that is so old that events after it may be gone.
   */
  listEvents(filters?: ListEvents, options?: CallOptions): List<Event>;

  /** Creates a webhook endpoint. Only this and a rotation return its `secret`. */
  createWebhookEndpoint(
    create: CreateWebhookEndpoint,
    options?: CreateOptions,
  ): Promise<WebhookEndpointWithSecret>;

  /** Returns a webhook endpoint, without its secret. */
  retrieveWebhookEndpoint(id: string, options?: CallOptions): Promise<WebhookEndpoint>;

  /** Lists the webhook endpoints, newest first, without their secrets. */
  listWebhookEndpoints(filters?: ListWebhookEndpoints, options?: CallOptions): List<WebhookEndpoint>;

  /** Changes a webhook endpoint. A field that is left out stays as it is. */
  updateWebhookEndpoint(
    id: string,
    change: UpdateWebhookEndpoint,
    options?: CallOptions,
  ): Promise<WebhookEndpoint>;

  /** Deletes a webhook endpoint. What was still to be delivered to it has failed. Deleting it again changes nothing. */
  deleteWebhookEndpoint(id: string, options?: CallOptions): Promise<void>;

  /** Gives a webhook endpoint a new secret and returns it. The old one signs too until the overlap ends. */
  rotateWebhookSecret(
    id: string,
    rotate?: RotateWebhookSecret,
    options?: CreateOptions,
  ): Promise<WebhookEndpointWithSecret>;

  /** Sends an event of the type `webhook_endpoint.ping` to this endpoint alone, and returns the event. */
  pingWebhookEndpoint(id: string, options?: CallOptions): Promise<Event>;

  /** Lists what was and is to be delivered to a webhook endpoint, newest event first. */
  listWebhookDeliveries(
    id: string,
    filters?: ListWebhookDeliveries,
    options?: CallOptions,
  ): List<WebhookDelivery>;

  /**
   * Makes up to 10,000 deliveries to a webhook endpoint due now, oldest first, and returns how many: those that have
   * failed, or those that wait for their next attempt. What is due already or being attempted is not counted; to reach
   * more, call it again until it returns 0. A disabled endpoint is refused as `invalid_state`.
   *
   * It counts as one request of the rate limit for each 20 deliveries, which is paid back over time.
   */
  redeliverWebhookEndpoint(
    id: string,
    redeliver?: RedeliverWebhookEndpoint,
    options?: CallOptions,
  ): Promise<number>;

  /**
   * Delivers an event again, to one webhook endpoint or to every enabled one that wants its type, and returns the
   * deliveries. One that waits for its next attempt is due now; one that is being attempted stays as it is.
   */
  redeliverEvent(id: string, redeliver?: RedeliverEvent, options?: CallOptions): Promise<WebhookDelivery[]>;

  /** Lists transfers to your wallets, newest first. */
  listTransfers(filters?: ListTransfers, options?: CallOptions): List<Transfer>;

  /**
   * Makes an unattributed transfer the payment of an intent, and returns the transfer. Attributing it to the same intent
   * again changes nothing. One that belongs to another intent is refused as `invalid_state`, and an intent of another
   * chain or wallet as `invalid_body`. An intent that has ended, or has its amount, is refused as `invalid_state` unless
   * `allowEnded` is true.
   */
  attributeTransfer(id: string, attribute: AttributeTransfer, options?: CallOptions): Promise<Transfer>;

  /**
   * Takes back an attribution by hand, and returns the transfer, which is unattributed again. The intent is what it would
   * be without it. Refused as `invalid_state` for a payment that was attributed by itself, and for one that has made its
   * intent succeed. Detaching an unattributed transfer changes nothing.
   */
  detachTransfer(id: string, options?: CallOptions): Promise<Transfer>;

  /** Only over gRPC: see {@link GrpcPaymentIntentsClient}. Over JSON it does not compile, and throws a TypeError. */
  watchEvents(
    this: "Events are watched over gRPC: create the client with protocol 'grpc'",
    options?: WatchEvents,
  ): AsyncIterable<WatchedEvent>;
}

/** A client over gRPC, which has a stream of events besides. */
export interface GrpcPaymentIntentsClient extends PaymentIntentsClient {
  /**
   * Watches events, in the order that every reader sees, without losing or repeating one. Whenever the stream is lost it
   * is opened again behind the last message, after a growing pause, for as long as it takes.
   *
   * Throws PaymentIntentsError for a refusal that stays, such as `cursor_expired` and `api_key_invalid`, and the reason
   * of `signal` once that is aborted.
   */
  watchEvents(options?: WatchEvents): AsyncIterable<WatchedEvent>;
}
