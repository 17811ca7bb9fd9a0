// Every method of the service: its route, what it takes, what it returns. Both protocols use this table.

import type {
  EventService,
  ListEventsRequest,
  ListEventsResponse,
} from '../src/contract/gen/payments/v1/event_service_pb.ts';
import type {
  CreatePaymentIntentRequest,
  ListPaymentIntentsRequest,
  ListPaymentIntentsResponse,
  PaymentIntentService,
} from '../src/contract/gen/payments/v1/payment_intent_service_pb.ts';
import type {
  AttributeTransferRequest,
  ListTransfersRequest,
  ListTransfersResponse,
  TransferService,
} from '../src/contract/gen/payments/v1/transfer_service_pb.ts';
import type {
  CreateWebhookEndpointRequest,
  ListWebhookDeliveriesRequest,
  ListWebhookDeliveriesResponse,
  ListWebhookEndpointsRequest,
  ListWebhookEndpointsResponse,
  RedeliverEventRequest,
  RedeliverEventResponse,
  RedeliverWebhookEndpointRequest,
  RedeliverWebhookEndpointResponse,
  RotateWebhookSecretRequest,
  UpdateWebhookEndpointRequest,
  WebhookEndpointService,
} from '../src/contract/gen/payments/v1/webhook_endpoint_service_pb.ts';
import { chains, deliveryStatuses, lanes, statuses, tokens, transferStatuses } from './enums.ts';
import type { Event, ListEvents } from './event.ts';
import type { CreatePaymentIntent, ListPaymentIntents, PaymentIntentState } from './payment-intent.ts';
import {
  type AnyRequestFields,
  amount,
  clampedInteger,
  filledText,
  filledTexts,
  flag,
  integerFrom,
  metadata,
  moment,
  type RequestFields,
  requiredId,
  requiredText,
  text,
  word,
} from './request-fields.ts';
import {
  type AnyFields,
  integer,
  list,
  type ResourceFields,
  resource,
  textOrNone,
} from './resource-fields.ts';
import {
  createdIntent,
  delivery,
  endpoint,
  endpointWithSecret,
  event,
  intentState,
  retrievedIntent,
  transfer,
} from './resources.ts';
import type { AttributeTransfer, ListTransfers, Transfer } from './transfer.ts';
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
} from './webhook-endpoint.ts';

export interface Method {
  /** `{id}` is the id that the request names. */
  http: `${'GET' | 'POST' | 'PATCH' | 'DELETE'} /v1/${string}`;
  /** HTTP status of its answer. */
  status: 200 | 201;
  request: AnyRequestFields;
  answer: AnyFields;
}

const createIntent: RequestFields<CreatePaymentIntent, CreatePaymentIntentRequest> = {
  amountUnits: amount,
  chain: word(chains),
  walletAddress: text,
  expiresInMinutes: clampedInteger,
  lane: word(lanes),
  metadata,
  token: word(tokens),
};

const pageSize = integerFrom(1);

const listIntents: RequestFields<ListPaymentIntents, ListPaymentIntentsRequest, 'pageToken'> = {
  status: word(statuses),
  chain: word(chains),
  lane: word(lanes),
  idempotencyKey: filledText,
  createdFrom: moment,
  createdBefore: moment,
  pageSize,
};

const listEvents: RequestFields<ListEvents, ListEventsRequest, 'pageToken'> = {
  after: filledText,
  type: filledText,
  paymentIntent: filledText,
  pageSize,
};

const createEndpoint: RequestFields<CreateWebhookEndpoint, CreateWebhookEndpointRequest> = {
  url: requiredText,
  eventTypes: filledTexts,
  enabled: flag,
  description: text,
};

const updateEndpoint: RequestFields<UpdateWebhookEndpoint, UpdateWebhookEndpointRequest, 'id'> = {
  url: text,
  eventTypes: filledTexts,
  enabled: flag,
  description: text,
};

const rotateSecret: RequestFields<RotateWebhookSecret, RotateWebhookSecretRequest, 'id'> = {
  overlapHours: integerFrom(0),
};

const listEndpoints: RequestFields<ListWebhookEndpoints, ListWebhookEndpointsRequest, 'pageToken'> = {
  pageSize,
};

const listDeliveries: RequestFields<ListWebhookDeliveries, ListWebhookDeliveriesRequest, 'id' | 'pageToken'> =
  { status: word(deliveryStatuses), pageSize };

const { failed, pending } = deliveryStatuses;

const redeliverEndpoint: RequestFields<RedeliverWebhookEndpoint, RedeliverWebhookEndpointRequest, 'id'> = {
  status: word({ failed, pending }),
  createdFrom: moment,
  createdBefore: moment,
};

const redeliver: RequestFields<RedeliverEvent, RedeliverEventRequest, 'id'> = {
  webhookEndpoint: filledText,
};

const listTransfers: RequestFields<ListTransfers, ListTransfersRequest, 'pageToken'> = {
  status: word(transferStatuses),
  pageSize,
};

const attributeTransfer: RequestFields<AttributeTransfer, AttributeTransferRequest, 'id'> = {
  paymentIntent: requiredId,
  allowEnded: flag,
};

/** What a page has besides its items. */
interface Paged {
  nextPageToken: string | undefined;
}

const intentPage: ResourceFields<
  { paymentIntents: PaymentIntentState[] } & Paged,
  ListPaymentIntentsResponse
> = { paymentIntents: list(resource(intentState)), nextPageToken: textOrNone };

const eventPage: ResourceFields<{ events: Event[] } & Paged, ListEventsResponse> = {
  events: list(resource(event)),
  nextPageToken: textOrNone,
};

const endpointPage: ResourceFields<
  { webhookEndpoints: WebhookEndpoint[] } & Paged,
  ListWebhookEndpointsResponse
> = { webhookEndpoints: list(resource(endpoint)), nextPageToken: textOrNone };

const deliveryPage: ResourceFields<
  { webhookDeliveries: WebhookDelivery[] } & Paged,
  ListWebhookDeliveriesResponse
> = { webhookDeliveries: list(resource(delivery)), nextPageToken: textOrNone };

const redelivered: ResourceFields<{ webhookDeliveries: WebhookDelivery[] }, RedeliverEventResponse> = {
  webhookDeliveries: list(resource(delivery)),
};

const redeliveredCount: ResourceFields<{ deliveriesCount: number }, RedeliverWebhookEndpointResponse> = {
  deliveriesCount: integer,
};

const transferPage: ResourceFields<{ transfers: Transfer[] } & Paged, ListTransfersResponse> = {
  transfers: list(resource(transfer)),
  nextPageToken: textOrNone,
};

/** The methods of the contract whose answer is one message. */
type MethodName = Exclude<
  | keyof (typeof PaymentIntentService)['method']
  | keyof (typeof EventService)['method']
  | keyof (typeof WebhookEndpointService)['method']
  | keyof (typeof TransferService)['method'],
  'watchEvents'
>;

/** By the names of the contract. A method of the contract that is not here does not compile. */
export const methods = {
  createPaymentIntent: {
    http: 'POST /v1/payment_intents',
    status: 201,
    request: createIntent,
    answer: createdIntent,
  },
  getPaymentIntent: {
    http: 'GET /v1/payment_intents/{id}',
    status: 200,
    request: {},
    answer: retrievedIntent,
  },
  listPaymentIntents: {
    http: 'GET /v1/payment_intents',
    status: 200,
    request: listIntents,
    answer: intentPage,
  },
  cancelPaymentIntent: {
    http: 'POST /v1/payment_intents/{id}/cancel',
    status: 200,
    request: {},
    answer: retrievedIntent,
  },
  getEvent: { http: 'GET /v1/events/{id}', status: 200, request: {}, answer: event },
  listEvents: { http: 'GET /v1/events', status: 200, request: listEvents, answer: eventPage },
  createWebhookEndpoint: {
    http: 'POST /v1/webhook_endpoints',
    status: 201,
    request: createEndpoint,
    answer: endpointWithSecret,
  },
  getWebhookEndpoint: {
    http: 'GET /v1/webhook_endpoints/{id}',
    status: 200,
    request: {},
    answer: endpoint,
  },
  listWebhookEndpoints: {
    http: 'GET /v1/webhook_endpoints',
    status: 200,
    request: listEndpoints,
    answer: endpointPage,
  },
  updateWebhookEndpoint: {
    http: 'PATCH /v1/webhook_endpoints/{id}',
    status: 200,
    request: updateEndpoint,
    answer: endpoint,
  },
  deleteWebhookEndpoint: {
    http: 'DELETE /v1/webhook_endpoints/{id}',
    status: 200,
    request: {},
    answer: {},
  },
  rotateWebhookSecret: {
    http: 'POST /v1/webhook_endpoints/{id}/rotate_secret',
    status: 200,
    request: rotateSecret,
    answer: endpointWithSecret,
  },
  pingWebhookEndpoint: {
    http: 'POST /v1/webhook_endpoints/{id}/ping',
    status: 200,
    request: {},
    answer: event,
  },
  listWebhookDeliveries: {
    http: 'GET /v1/webhook_endpoints/{id}/deliveries',
    status: 200,
    request: listDeliveries,
    answer: deliveryPage,
  },
  redeliverWebhookEndpoint: {
    http: 'POST /v1/webhook_endpoints/{id}/redeliver',
    status: 200,
    request: redeliverEndpoint,
    answer: redeliveredCount,
  },
  redeliverEvent: {
    http: 'POST /v1/events/{id}/redeliver',
    status: 200,
    request: redeliver,
    answer: redelivered,
  },
  listTransfers: { http: 'GET /v1/transfers', status: 200, request: listTransfers, answer: transferPage },
  attributeTransfer: {
    http: 'POST /v1/transfers/{id}/attribute',
    status: 200,
    request: attributeTransfer,
    answer: transfer,
  },
  detachTransfer: {
    http: 'POST /v1/transfers/{id}/detach',
    status: 200,
    request: {},
    answer: transfer,
  },
} as const satisfies Record<MethodName, Method>;

export type { MethodName };
