// Retrieval, lists and cancellation through both doors. Both answer in one shape, so that one table can hold them both.

import http from 'node:http';
import {
  create,
  type DescMethodUnary,
  fromBinary,
  fromJson,
  type JsonObject,
  type JsonValue,
  type MessageInitShape,
  toBinary,
  toJson,
} from '@bufbuild/protobuf';
import grpc from '@grpc/grpc-js';
import {
  ListPaymentIntentsRequestSchema,
  PaymentIntentService,
} from '../../src/contract/gen/payments/v1/payment_intent_service_pb.ts';
import { type Endpoints, errorDetailsOf, httpRequest } from './doors.ts';

/** An intent in the public JSON, as whatever reads it after its creation returns it. */
export interface PresentIntent {
  id: string;
  status: string;
  client_secret?: string;
  created_at: string;
  expires_at: string;
  amount_received_units: number;
  payments_count: number;
  labels?: string[];
  succeeded_at?: string;
  canceled_at?: string;
  expired_at?: string;
  [field: string]: unknown;
}

export interface MethodAnswer<Json> {
  /** `ok`, or a code of the catalogue. */
  code: string;
  /** HTTP status, or gRPC code. */
  status: number;
  /** The public JSON of the answer, or of what gRPC returned. Empty if the request was refused. */
  json: Json;
  message: string;
  details: { field: string; message: string }[];
}

export interface Page {
  payment_intents: PresentIntent[];
  next_page_token?: string;
}

/** A filter in the words of the public JSON. */
export type ListQuery = Record<string, string | number>;

/** The methods that follow creation, through one door. */
export interface IntentMethods {
  name: 'public' | 'internal';
  get(id: string, apiKey: string): Promise<MethodAnswer<PresentIntent>>;
  list(query: ListQuery, apiKey: string): Promise<MethodAnswer<Page>>;
  cancel(id: string, apiKey: string): Promise<MethodAnswer<PresentIntent>>;
  close(): void;
}

export function openIntentMethods(endpoints: Endpoints): [IntentMethods, IntentMethods] {
  return [overHttp(endpoints), overGrpc(endpoints)];
}

/** Reads every page of a list, from the first to the last. */
export async function listAll(
  methods: IntentMethods,
  query: ListQuery,
  apiKey: string,
): Promise<PresentIntent[][]> {
  const pages: PresentIntent[][] = [];
  let token: string | undefined;
  do {
    const page = await methods.list({ ...query, ...(token !== undefined && { page_token: token }) }, apiKey);
    if (page.code !== 'ok') throw new Error(`${page.code}: ${page.message}`);
    pages.push(page.json.payment_intents);
    token = page.json.next_page_token;
  } while (token !== undefined);
  return pages;
}

function overHttp({ publicUrl }: Endpoints): IntentMethods {
  const agent = new http.Agent({ keepAlive: true, maxSockets: 32 });
  const call = <Json>(method: string, path: string, apiKey: string) =>
    jsonCall<Json>(`${publicUrl}/v1/payment_intents${path}`, { agent, method }, apiKey);
  return {
    name: 'public',
    get: (id, apiKey) => call('GET', `/${encodeURIComponent(id)}`, apiKey),
    list: (query, apiKey) => call('GET', queryOf(query), apiKey),
    cancel: (id, apiKey) => call('POST', `/${encodeURIComponent(id)}/cancel`, apiKey),
    close: () => agent.destroy(),
  };
}

/** The part of a URL that holds a query, with its question mark. */
export function queryOf(query: ListQuery): string {
  const parameters = Object.entries(query).map(([name, value]) => `${name}=${encodeURIComponent(value)}`);
  return parameters.length === 0 ? '' : `?${parameters.join('&')}`;
}

/** Makes one request over HTTP, with that object as its body if there is one. */
export async function jsonCall<Json>(
  url: string,
  options: http.RequestOptions,
  apiKey: string,
  object?: object,
): Promise<MethodAnswer<Json>> {
  const headers = {
    Authorization: `Bearer ${apiKey}`,
    ...(object && { 'Content-Type': 'application/json' }),
  };
  const { status, body } = await httpRequest(url, { ...options, headers }, object && JSON.stringify(object));
  const json = JSON.parse(body);
  if (json.error === undefined) return { code: 'ok', status, json, message: '', details: [] };
  const { code, message, details = [] } = json.error;
  return { code, status, json: {} as Json, message, details };
}

function overGrpc(endpoints: Endpoints): IntentMethods {
  const client = openGrpcClient(endpoints);
  const { getPaymentIntent, listPaymentIntents, cancelPaymentIntent } = PaymentIntentService.method;
  return {
    name: 'internal',
    get: (id, apiKey) => grpcUnary(client, getPaymentIntent, { id }, apiKey),
    async list(query, apiKey) {
      const answer = await grpcUnary<Page>(client, listPaymentIntents, listRequestOf(query), apiKey);
      // An empty list is not told apart from an absent one.
      return { ...answer, json: { ...answer.json, payment_intents: answer.json.payment_intents ?? [] } };
    },
    cancel: (id, apiKey) => grpcUnary(client, cancelPaymentIntent, { id }, apiKey),
    close: () => client.close(),
  };
}

const enumPrefixes: Record<string, string> = {
  status: 'PAYMENT_INTENT_STATUS',
  chain: 'CHAIN',
  lane: 'LANE',
};

/** The message for a query, by protobuf's own JSON. */
function listRequestOf(query: ListQuery) {
  const json = Object.entries(query).map(([name, value]): [string, JsonValue] => [
    name,
    name in enumPrefixes ? `${enumPrefixes[name]}_${String(value).toUpperCase()}` : value,
  ]);
  return fromJson(ListPaymentIntentsRequestSchema, Object.fromEntries(json));
}

export function openGrpcClient({ internalUrl }: Endpoints): grpc.Client {
  return new grpc.Client(new URL(internalUrl).host, grpc.credentials.createInsecure());
}

/** Makes one unary call and returns its answer as public JSON. */
export function grpcUnary<Json>(
  client: grpc.Client,
  method: DescMethodUnary,
  request: MessageInitShape<DescMethodUnary['input']>,
  apiKey: string,
): Promise<MethodAnswer<Json>> {
  const metadata = new grpc.Metadata();
  metadata.set('authorization', `Bearer ${apiKey}`);
  return new Promise((resolve) => {
    client.makeUnaryRequest(
      `/${method.parent.typeName}/${method.name}`,
      (message: Buffer) => message,
      (message: Buffer) => message,
      Buffer.from(toBinary(method.input, create(method.input, request))),
      metadata,
      (error, response) => {
        if (error) {
          const { reason, violations } = errorDetailsOf(error);
          resolve({
            code: reason?.toLowerCase() ?? grpc.status[error.code] ?? '?',
            status: error.code,
            json: {} as Json,
            message: error.details,
            details: violations,
          });
          return;
        }
        const answer = fromBinary(method.output, response as Buffer);
        const json = publicJsonOf(toJson(method.output, answer, { useProtoFieldName: true })) as Json;
        resolve({ code: 'ok', status: grpc.status.OK, json, message: '', details: [] });
      },
    );
  });
}

const integers = /^(?:chain_id|amount_units|amount_received_units|block_number)$/;
const enumWord = /^(?:PAYMENT_INTENT_STATUS|PAYMENT_STATUS|TRANSFER_STATUS|CHAIN|MODE|LANE)_(.+)$/;

/** Turns protobuf's own JSON into the public one. Shares no code with the service. */
export function publicJsonOf(value: JsonValue, name = ''): JsonValue {
  // The merchant's own.
  if (name === 'metadata' || value === null) return value;
  if (Array.isArray(value)) return value.map((entry) => publicJsonOf(entry));
  if (typeof value === 'object') {
    return Object.fromEntries(
      Object.entries(value).map(([field, member]) => [field, publicJsonOf(member, field)]),
    ) satisfies JsonObject;
  }
  if (typeof value !== 'string') return value;
  if (integers.test(name)) return Number(value);
  if (name.endsWith('_at') || name === 'block_time') return new Date(value).toISOString();
  return enumWord.exec(value)?.[1]?.toLowerCase() ?? value;
}
