// The methods of WebhookEndpointService through both doors. Both answer in one shape, so that one table can hold them
// both.

import http from 'node:http';
import {
  type DescMethodUnary,
  fromBinary,
  fromJson,
  type JsonObject,
  type JsonValue,
  toBinary,
  toJson,
} from '@bufbuild/protobuf';
import grpc from '@grpc/grpc-js';
import { WebhookEndpointService } from '../../src/contract/gen/payments/v1/webhook_endpoint_service_pb.ts';
import { type Endpoints, errorDetailsOf, httpRequest } from './doors.ts';

const routes = {
  createWebhookEndpoint: ['POST', '/v1/webhook_endpoints'],
  getWebhookEndpoint: ['GET', '/v1/webhook_endpoints/{id}'],
  listWebhookEndpoints: ['GET', '/v1/webhook_endpoints'],
  updateWebhookEndpoint: ['PATCH', '/v1/webhook_endpoints/{id}'],
  deleteWebhookEndpoint: ['DELETE', '/v1/webhook_endpoints/{id}'],
  rotateWebhookSecret: ['POST', '/v1/webhook_endpoints/{id}/rotate_secret'],
  pingWebhookEndpoint: ['POST', '/v1/webhook_endpoints/{id}/ping'],
  listWebhookDeliveries: ['GET', '/v1/webhook_endpoints/{id}/deliveries'],
  redeliverWebhookEndpoint: ['POST', '/v1/webhook_endpoints/{id}/redeliver'],
  redeliverEvent: ['POST', '/v1/events/{id}/redeliver'],
} as const satisfies Record<keyof typeof WebhookEndpointService.method, readonly [string, string]>;

export type WebhookMethod = keyof typeof routes;

export interface WebhookAnswer {
  /** `ok`, or a code of the catalogue. */
  code: string;
  /** The public JSON of the answer, or of what gRPC returned. Empty if the request was refused. */
  // biome-ignore lint/suspicious/noExplicitAny: a test reads what it expects to be there.
  json: any;
  message: string;
  details: { field: string; message: string }[];
  replayed: boolean;
}

export interface WebhookDoor {
  name: 'public' | 'internal';
  /** `request` in the words of the public JSON. */
  call(
    method: WebhookMethod,
    request: JsonObject,
    options: { apiKey: string; idempotencyKey?: string },
  ): Promise<WebhookAnswer>;
  close(): void;
}

export function openWebhookDoors(endpoints: Endpoints): [WebhookDoor, WebhookDoor] {
  return [overHttp(endpoints), overGrpc(endpoints)];
}

function overHttp({ publicUrl }: Endpoints): WebhookDoor {
  const agent = new http.Agent({ keepAlive: true, maxSockets: 32 });
  return {
    name: 'public',
    async call(method, { id, ...fields }, { apiKey, idempotencyKey }) {
      const [verb, template] = routes[method];
      const path = template.replace('{id}', encodeURIComponent(String(id)));
      const query = new URLSearchParams(fields as Record<string, string>);
      const hasBody = verb === 'POST' || verb === 'PATCH';
      const { headers, body } = await httpRequest(
        publicUrl + path + (hasBody || query.size === 0 ? '' : `?${query}`),
        {
          agent,
          method: verb,
          headers: {
            Authorization: `Bearer ${apiKey}`,
            ...(hasBody && { 'Content-Type': 'application/json' }),
            ...(idempotencyKey !== undefined && { 'Idempotency-Key': idempotencyKey }),
          },
        },
        hasBody ? JSON.stringify(fields) : undefined,
      );
      const json = JSON.parse(body);
      const replayed = headers['idempotent-replayed'] === 'true';
      if (json.error === undefined) return { code: 'ok', json, message: '', details: [], replayed };
      const { code, message, details = [] } = json.error;
      return { code, json: {}, message, details, replayed };
    },
    close: () => agent.destroy(),
  };
}

function overGrpc({ internalUrl }: Endpoints): WebhookDoor {
  const client = new grpc.Client(new URL(internalUrl).host, grpc.credentials.createInsecure());
  return {
    name: 'internal',
    call(method, request, { apiKey, idempotencyKey }) {
      const desc = WebhookEndpointService.method[method];
      const metadata = new grpc.Metadata();
      metadata.set('authorization', `Bearer ${apiKey}`);
      if (idempotencyKey !== undefined) metadata.set('idempotency-key', idempotencyKey);
      return unary(client, desc, requestBytes(desc, request), metadata);
    },
    close: () => client.close(),
  };
}

/** The message by protobuf's own JSON. A field that it does not know becomes one with a number that is not used. */
function requestBytes(desc: DescMethodUnary, request: JsonObject): Buffer {
  const known: JsonObject = {};
  let unknown = Buffer.alloc(0);
  for (const [name, value] of Object.entries(request)) {
    if (!desc.input.fields.some((field) => field.name === name)) unknown = Buffer.of(0xf8, 0x07, 1);
    else known[name] = name === 'status' ? `WEBHOOK_DELIVERY_STATUS_${String(value).toUpperCase()}` : value;
  }
  return Buffer.concat([toBinary(desc.input, fromJson(desc.input, known)), unknown]);
}

function unary(
  client: grpc.Client,
  method: DescMethodUnary,
  bytes: Buffer,
  metadata: grpc.Metadata,
): Promise<WebhookAnswer> {
  return new Promise((resolve) => {
    let replayed = false;
    const call = client.makeUnaryRequest(
      `/${method.parent.typeName}/${method.name}`,
      (message: Buffer) => message,
      (message: Buffer) => message,
      bytes,
      metadata,
      (error, response) => {
        if (error) {
          const { reason, violations } = errorDetailsOf(error);
          const code = reason?.toLowerCase() ?? grpc.status[error.code] ?? '?';
          resolve({ code, json: {}, message: error.details, details: violations, replayed });
          return;
        }
        const answer = fromBinary(method.output, response as Buffer);
        const json = toJson(method.output, answer, { useProtoFieldName: true, alwaysEmitImplicit: true });
        resolve({ code: 'ok', json: publicJsonOf(json), message: '', details: [], replayed });
      },
    );
    call.on('metadata', (received) => {
      replayed = received.get('idempotent-replayed')[0] === 'true';
    });
  });
}

const enumWord = /^(?:WEBHOOK_DELIVERY_STATUS|MODE)_(.+)$/;
const leftOutIfEmpty = new Set(['secret', 'next_page_token', 'payment_intent']);

/** Turns protobuf's own JSON into the public one. Shares no code with the service. */
function publicJsonOf(value: JsonValue, name = ''): JsonValue {
  if (Array.isArray(value)) return value.map((entry) => publicJsonOf(entry));
  if (typeof value === 'object' && value !== null) {
    return Object.fromEntries(
      Object.entries(value)
        .filter(([field, member]) => !(leftOutIfEmpty.has(field) && member === ''))
        .map(([field, member]) => [field, publicJsonOf(member, field)]),
    );
  }
  if (typeof value !== 'string') return value;
  if (name === 'at' || name.endsWith('_at')) return new Date(value).toISOString();
  return enumWord.exec(value)?.[1]?.toLowerCase() ?? value;
}
