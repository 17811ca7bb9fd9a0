import type { ApiResource } from './api-resource.ts';
import type { EventType, Mode, Unknown, WebhookDeliveryStatus } from './enums.ts';

/** An address of your backend that events are sent to. */
export interface WebhookEndpoint extends ApiResource {
  /** Identifier of the endpoint, such as `we_01m7z0c2h4f6k8m0p2r4t6v8xa`. */
  id: string;
  /** Where events are sent, by POST. */
  url: string;
  /** The types of events that are sent; `*` is every type, later ones included. */
  eventTypes: EventType[];
  /** False: nothing is sent. */
  enabled: boolean;
  /** Why the service disabled the endpoint, if it did. */
  disabledReason: string | undefined;
  /** Your own note. */
  description: string | undefined;
  /** Test money or real money, as the API key decides. A value newer than this client is an {@link Unknown}. */
  mode: Mode | Unknown;
  /** The moment the endpoint was created. */
  createdAt: Date;
}

/** A webhook endpoint with its secret, which only its creation and a rotation return. */
export interface WebhookEndpointWithSecret extends WebhookEndpoint {
  /** Verifies what is sent: see `verifyWebhook`. Store it with your other secrets; it cannot be retrieved. */
  secret: string;
  /** True if an earlier call with the same idempotency key made this secret, and this call only found it. */
  replayed: boolean;
}

/** A webhook endpoint to create. Only `url` is required. */
export interface CreateWebhookEndpoint {
  /** Where events are sent: https, with a name that resolves to public addresses. */
  url: string;
  /** The types of events to send. Default: `['*']`, every type, later ones included. */
  eventTypes?: readonly EventType[] | undefined;
  /** False to create the endpoint without sending anything yet. Default: true. */
  enabled?: boolean | undefined;
  /** A note of your own, at most 200 characters. */
  description?: string | undefined;
}

/** What to change of a webhook endpoint. A field that is left out or `undefined` stays as it is. */
export interface UpdateWebhookEndpoint {
  /** The new address. */
  url?: string | undefined;
  /** The new types. */
  eventTypes?: readonly EventType[] | undefined;
  /** `true` enables the endpoint and forgets why it was disabled. `false` gives up what was still to be delivered. */
  enabled?: boolean | undefined;
  /** The new note; an empty one removes it. */
  description?: string | undefined;
}

/** How to replace the secret of a webhook endpoint. */
export interface RotateWebhookSecret {
  /** Hours that the old secret signs besides the new one, 0 to 168. Default: 24. */
  overlapHours?: number | undefined;
}

/** Which webhook endpoints to list. */
export interface ListWebhookEndpoints {
  /** Endpoints in one answer, 1 to 100. Default: 20. */
  pageSize?: number | undefined;
}

/** Which deliveries of an endpoint to list. Without a filter: all that are kept. */
export interface ListWebhookDeliveries {
  /** Only deliveries with this status. */
  status?: WebhookDeliveryStatus | undefined;
  /** Deliveries in one answer, 1 to 100. Default: 20. */
  pageSize?: number | undefined;
}

/** Which deliveries of an endpoint to make due. Without a filter: all that have failed. */
export interface RedeliverWebhookEndpoint {
  /** `failed` for what was given up, `pending` for what waits for its next attempt. Default: `failed`. */
  status?: 'failed' | 'pending' | undefined;
  /** Only deliveries made at this moment or later. */
  createdFrom?: Date | undefined;
  /** Only deliveries made before this moment. */
  createdBefore?: Date | undefined;
}

/** Where to deliver an event again. */
export interface RedeliverEvent {
  /** Id of the endpoint to deliver it to. Default: every enabled endpoint that wants its type. */
  webhookEndpoint?: string | undefined;
}

/** One event for one endpoint. */
export interface WebhookDelivery extends ApiResource {
  /** Identifier of the delivery, such as `del_01m7z1n4rt5v7x9z1b3d5f7h9k`. */
  id: string;
  /** Id of the event. */
  event: string;
  /** The type of the event. */
  eventType: EventType;
  /** Id of the intent that the event is about. `undefined` if it is about something else. */
  paymentIntent: string | undefined;
  /** Id of the endpoint. */
  webhookEndpoint: string;
  /** Where the delivery stands. A value newer than this client is an {@link Unknown}. */
  status: WebhookDeliveryStatus | Unknown;
  /** The newest 20 attempts, oldest first. */
  attempts: WebhookAttempt[];
  /** The moment of the next attempt, while there is one. */
  nextAttemptAt: Date | undefined;
  /** The moment the delivery was made. */
  createdAt: Date;
}

/** One attempt to deliver. */
export interface WebhookAttempt extends ApiResource {
  /** The moment it began. */
  at: Date;
  /** HTTP status of your answer, if there was one. */
  statusCode: number | undefined;
  /** How long it took, in milliseconds. */
  durationMs: number;
  /** What went wrong, if something did. */
  error: string | undefined;
  /** The first 1,024 bytes of your answer. */
  response: string | undefined;
}
