// Calls any method of the contract through any door, from its descriptors: JSON by Node's own HTTP client, gRPC by
// @grpc/grpc-js, which shares no code with the server, and Connect's own protocols. Answers have one form.

import http from 'node:http';
import {
  type DescEnum,
  type DescField,
  type DescMessage,
  type DescMethodUnary,
  fromBinary,
  fromJson,
  getOption,
  hasOption,
  isFieldSet,
  type JsonObject,
  type JsonValue,
  type Message,
  type MessageShape,
  toBinary,
} from '@bufbuild/protobuf';
import { BinaryReader } from '@bufbuild/protobuf/wire';
import { FeatureSet_FieldPresence, type Timestamp, timestampDate } from '@bufbuild/protobuf/wkt';
import { ConnectError } from '@connectrpc/connect';
import {
  createConnectTransport,
  createGrpcWebTransport,
  Http2SessionManager,
} from '@connectrpc/connect-node';
import grpc from '@grpc/grpc-js';
import { http as httpRule } from '../../src/contract/gen/google/api/annotations_pb.ts';
import {
  BadRequestSchema,
  ErrorInfoSchema,
  RequestInfoSchema,
  RetryInfoSchema,
} from '../../src/contract/gen/google/rpc/error_details_pb.ts';
import { CheckoutService } from '../../src/contract/gen/payments/v1/checkout_service_pb.ts';
import { EventService } from '../../src/contract/gen/payments/v1/event_service_pb.ts';
import { type JsonField, json_field, json_word } from '../../src/contract/gen/payments/v1/json_pb.ts';
import type { PaymentIntent } from '../../src/contract/gen/payments/v1/payment_intent_pb.ts';
import { PaymentIntentService } from '../../src/contract/gen/payments/v1/payment_intent_service_pb.ts';
import { RefundService } from '../../src/contract/gen/payments/v1/refund_service_pb.ts';
import type { Transfer } from '../../src/contract/gen/payments/v1/transfer_pb.ts';
import { TransferService } from '../../src/contract/gen/payments/v1/transfer_service_pb.ts';
import { WebhookEndpointService } from '../../src/contract/gen/payments/v1/webhook_endpoint_service_pb.ts';
import { httpRequest } from './service.ts';

const { watchEvents: _, ...eventMethods } = EventService.method;
const methods = {
  ...CheckoutService.method,
  ...eventMethods,
  ...PaymentIntentService.method,
  ...RefundService.method,
  ...TransferService.method,
  ...WebhookEndpointService.method,
};
type Methods = typeof methods;
export type MethodName = keyof Methods;

type SnakeCase<S extends string> = S extends `${infer Head}${infer Tail}`
  ? `${Head extends Lowercase<Head> ? Head : `_${Lowercase<Head>}`}${SnakeCase<Tail>}`
  : S;
type JsonOf<T> = T extends bigint
  ? number
  : T extends number
    ? // An enum is written as a word.
      number extends T
      ? number
      : string
    : T extends readonly (infer Item)[]
      ? JsonOf<Item>[]
      : T extends Timestamp
        ? string
        : T extends Message
          ? PublicJson<T>
          : T;
/** A message in the public JSON. A field that may be absent counts as present: a test reads what it expects. */
export type PublicJson<T extends Message> = {
  [K in keyof T as K extends `$${string}` ? never : SnakeCase<K & string>]-?: JsonOf<
    Exclude<T[K], undefined>
  >;
};
export type Intent = PublicJson<PaymentIntent>;
export type TransferJson = PublicJson<Transfer>;

/** A request in public JSON. For gRPC, it may also be a message of the contract. */
export type Request = Record<string, unknown>;

/** The two doors, and Connect's other protocols for the second. */
export type Door = 'json' | 'grpc' | 'connect' | 'grpc-web';
export const doors = ['json', 'grpc'] as const satisfies Door[];
export const everyDoor = [...doors, 'connect', 'grpc-web'] as const satisfies Door[];

export interface CallOptions {
  /** Default: `json`. */
  door?: Door;
  /** Default: the testnet key of the service's merchant. Null: no key is sent. */
  apiKey?: string | null;
  /** The whole header, instead of a key. */
  authorization?: string;
  idempotencyKey?: string;
  headers?: Record<string, string>;
}

interface Received {
  /** HTTP status, or gRPC code. */
  status: number;
  requestId: string;
  docUrl?: string | undefined;
  retryDelaySeconds?: number;
  resumeAfter?: string | undefined;
  /** The body of an answer in JSON. */
  text?: string;
}

/** An answer or a refusal. */
export interface Answer<Json = Intent> extends Received {
  /** `ok`, or a code of the catalogue. */
  code: string;
  /** The public JSON of the answer, or of the message that gRPC returned. Empty if the request was refused. */
  json: Json;
  message: string;
  details: { field: string; message: string }[];
  replayed: boolean;
}

/** What differs between equal answers, such as the request id, is not enumerable, so `toEqual` ignores it. */
function newAnswer<Json>(
  { code = 'ok', json = {} as Json, message = '', details = [], replayed = false }: Partial<Answer<Json>>,
  received: Received,
): Answer<Json> {
  const hidden = Object.entries(received).map(([name, value]) => [name, { value }]);
  const compared = { code, json, message, details, replayed };
  return Object.defineProperties(compared, Object.fromEntries(hidden)) as Answer<Json>;
}

type AnswerOf<M extends MethodName> = Answer<PublicJson<MessageShape<Methods[M]['output']>>>;
export type Call = <M extends MethodName>(
  method: M,
  request?: Request | Message,
  options?: CallOptions,
) => Promise<AnswerOf<M>>;

/** A service's addresses, as `http://host:port`. */
export interface Endpoints {
  publicUrl: string;
  internalUrl: string;
}

/** Opens connections for calls of a service. */
export function openCalls(endpoints: Endpoints, defaultKey?: string): { call: Call; close(): void } {
  const json = openJson(endpoints);
  const byGrpc = openGrpc(endpoints);
  const byConnect = openConnect(endpoints);
  return {
    async call(method, request = {}, { door = 'json', apiKey = defaultKey, ...options } = {}) {
      const bearer = apiKey == null ? undefined : `Bearer ${apiKey}`;
      const { authorization = bearer, idempotencyKey } = options;
      const headers = {
        ...(authorization !== undefined && { authorization }),
        ...(idempotencyKey !== undefined && { 'idempotency-key': idempotencyKey }),
        ...options.headers,
      };
      if (door === 'json') return json.call(methods[method], request, headers) as never;
      if (door === 'grpc') return byGrpc.call(method, request, headers) as never;
      return byConnect.call(door, methods[method], request, headers) as never;
    },
    close() {
      for (const { close } of [json, byGrpc, byConnect]) close();
    },
  };
}

/** Reads every page of a list, from the first to the last. */
export async function pagesOf<M extends MethodName & `list${string}`>(
  call: Call,
  method: M,
  request: Request = {},
  options?: CallOptions,
) {
  type Page = AnswerOf<M>['json'];
  type Item = Extract<Page[keyof Page], readonly object[]>[number];
  const pages: Item[][] = [];
  for (let next: Request = request; ; ) {
    const { code, message, json } = await call(method, next, options);
    if (code !== 'ok') throw new Error(`${code}: ${message}`);
    const { next_page_token, ...page } = json as { next_page_token?: string };
    pages.push(Object.values(page)[0] as Item[]);
    if (next_page_token === undefined) return pages;
    const { after, ...filters } = request;
    next = { ...filters, page_token: next_page_token };
  }
}

/** The part of a URL that holds a query, with its question mark. */
export function queryOf(fields: Request): string {
  const parameters = Object.entries(fields).map(
    ([name, value]) => `${name}=${encodeURIComponent(String(value))}`,
  );
  return parameters.length === 0 ? '' : `?${parameters.join('&')}`;
}

function openJson({ publicUrl }: Endpoints) {
  const agent = new http.Agent({ keepAlive: true, maxSockets: 32 });
  return {
    async call(desc: DescMethodUnary, request: Request, headers: Record<string, string>) {
      const { pattern, body: rule } = getOption(desc, httpRule);
      const fields = { ...request };
      const path = String(pattern.value).replace(/\{(\w+)\}/, (_, name) => {
        const value = encodeURIComponent(String(fields[name]));
        delete fields[name];
        return value;
      });
      const hasBody = rule === '*';
      const {
        status,
        headers: received,
        body,
      } = await httpRequest(
        publicUrl + path + (hasBody ? '' : queryOf(fields)),
        {
          agent,
          method: String(pattern.case).toUpperCase(),
          headers: { ...(hasBody && { 'Content-Type': 'application/json' }), ...headers },
        },
        hasBody ? JSON.stringify(fields) : undefined,
      );
      const json = JSON.parse(body);
      const { code, message, details, doc_url, resume_after } = json.error ?? {};
      if (status >= 400 !== (json.error !== undefined)) throw new Error(`HTTP ${status}: ${body}`);
      return newAnswer(
        {
          ...(json.error === undefined ? { json } : { code, message, details }),
          replayed: received['idempotent-replayed'] === 'true',
        },
        {
          status,
          requestId: String(received['x-request-id']),
          docUrl: doc_url,
          resumeAfter: resume_after,
          retryDelaySeconds: Number(received['retry-after'] ?? Number.NaN),
          text: body,
        },
      );
    },
    close: () => agent.destroy(),
  };
}

function openGrpc(endpoints: Endpoints) {
  const client = openGrpcClient(endpoints);
  return {
    async call(method: MethodName, request: Request, headers: Record<string, string>) {
      const metadata = grpc.Metadata.fromHttp2Headers(headers);
      return answerOf(await grpcCall(client, requestBytes(method, request), metadata, { method }), method);
    },
    close: () => client.close(),
  };
}

export function openGrpcClient({ internalUrl }: Pick<Endpoints, 'internalUrl'>): grpc.Client {
  return new grpc.Client(new URL(internalUrl).host, grpc.credentials.createInsecure(), {
    // Reconnects soon after a service has come back.
    'grpc.initial_reconnect_backoff_ms': 100,
    'grpc.max_reconnect_backoff_ms': 500,
  });
}

export interface RawGrpcAnswer {
  bytes?: Buffer;
  error?: grpc.ServiceError;
  metadata: grpc.Metadata;
}

/** Makes one unary call with the raw bytes of the message: a creation, unless a method is given. */
export function grpcCall(
  client: grpc.Client,
  bytes: Uint8Array,
  metadata: grpc.Metadata,
  { method = 'createPaymentIntent', ...options }: grpc.CallOptions & { method?: MethodName } = {},
): Promise<RawGrpcAnswer> {
  const desc: DescMethodUnary = methods[method];
  return new Promise((resolve) => {
    let initial = new grpc.Metadata();
    const call = client.makeUnaryRequest(
      `/${desc.parent.typeName}/${desc.name}`,
      (message: Buffer) => message,
      (message: Buffer) => message,
      Buffer.from(bytes),
      metadata,
      options,
      (error, response) => {
        // Trailers-only answers have everything in the status.
        const all = error ? error.metadata : initial;
        resolve({ ...(error ? { error } : { bytes: response as Buffer }), metadata: all });
      },
    );
    call.on('metadata', (received) => {
      initial = received;
    });
  });
}

export function answerOf(
  { bytes, error, metadata }: RawGrpcAnswer,
  method: MethodName = 'createPaymentIntent',
): Answer {
  if (error !== undefined) return refusalOf(error);
  const desc: DescMethodUnary = methods[method];
  return newAnswer(
    {
      json: publicJsonOf(desc.output, fromBinary(desc.output, bytes ?? new Uint8Array())) as Intent,
      replayed: metadata.get('idempotent-replayed')[0] === 'true',
    },
    { status: grpc.status.OK, requestId: String(metadata.get('x-request-id')[0]) },
  );
}

function openConnect({ internalUrl: baseUrl }: Endpoints) {
  const sessionManager = new Http2SessionManager(baseUrl);
  const to = { baseUrl, httpVersion: '2', sessionManager } as const;
  const transports = { connect: createConnectTransport(to), 'grpc-web': createGrpcWebTransport(to) };
  return {
    async call(
      door: keyof typeof transports,
      desc: DescMethodUnary,
      request: Request,
      headers: Record<string, string>,
    ) {
      const message = messageOf(desc.input, request);
      return transports[door].unary(desc, undefined, undefined, headers, message).then(
        (answer) =>
          newAnswer(
            {
              json: publicJsonOf(desc.output, answer.message),
              replayed: answer.header.get('idempotent-replayed') === 'true',
            },
            { status: grpc.status.OK, requestId: String(answer.header.get('x-request-id')) },
          ),
        refusalOf,
      );
    },
    close: () => sessionManager.abort(),
  };
}

/** The refusal in an error of grpc-js or Connect. */
export function refusalOf(reason: unknown): Answer<never> {
  if (reason instanceof ConnectError) {
    return refusal(reason.code, reason.rawMessage, (desc) => reason.findDetails(desc));
  }
  const error = reason as grpc.ServiceError;
  if (!(error.metadata instanceof grpc.Metadata)) throw reason;
  const packed = packedDetails(error);
  return refusal(error.code, error.details, (desc) =>
    packed.filter(({ type }) => type === desc.typeName).map(({ value }) => fromBinary(desc, value)),
  );
}

function refusal(
  status: number,
  message: string,
  find: <Desc extends DescMessage>(desc: Desc) => MessageShape<Desc>[],
): Answer<never> {
  const [info] = find(ErrorInfoSchema);
  const retryDelay = find(RetryInfoSchema)[0]?.retryDelay;
  return newAnswer(
    {
      code: info?.domain === 'payments' ? info.reason.toLowerCase() : (grpc.status[status] ?? '?'),
      message,
      details: find(BadRequestSchema)
        .flatMap(({ fieldViolations }) => fieldViolations)
        .map(({ field, description }) => ({ field, message: description })),
    },
    {
      status,
      requestId: find(RequestInfoSchema)[0]?.requestId ?? '',
      docUrl: info?.metadata.doc_url,
      resumeAfter: info?.metadata.resume_after,
      retryDelaySeconds: Number(retryDelay?.seconds ?? Number.NaN),
    },
  );
}

/** Reads `grpc-status-details-bin` (google.rpc.Status): its details are field 3, each an Any. */
function packedDetails({ metadata }: grpc.ServiceError): { type: string; value: Uint8Array }[] {
  const [status] = metadata.get('grpc-status-details-bin');
  if (!(status instanceof Buffer)) return [];
  return lengthDelimited(status, 3).map((any) => ({
    type:
      Buffer.from(lengthDelimited(any, 1)[0] ?? [])
        .toString()
        .split('/')[1] ?? '',
    value: lengthDelimited(any, 2)[0] ?? new Uint8Array(),
  }));
}

function lengthDelimited(bytes: Uint8Array, wanted: number): Uint8Array[] {
  const reader = new BinaryReader(bytes);
  const found: Uint8Array[] = [];
  while (reader.pos < reader.len) {
    const [field, type] = reader.tag();
    if (field === wanted) found.push(reader.bytes());
    else reader.skip(type, field);
  }
  return found;
}

/** Encodes a request. Words and fields that the contract does not have become unknown numbers. */
export const requestBytes = (method: MethodName, request: Request): Uint8Array =>
  toBinary(methods[method].input as DescMessage, messageOf(methods[method].input, request));

const unknownNumber = 99;

function messageOf(desc: DescMessage, request: Request | Message) {
  if ('$typeName' in request) return request as Message;
  const known: JsonObject = {};
  let isUnknown = false;
  for (const [name, value] of Object.entries(request)) {
    const field = desc.fields.find((candidate) => candidate.name === name);
    if (field === undefined) isUnknown = true;
    else if (value != null) known[name] = toProtoJson(field.enum, value);
  }
  const message = fromJson(desc, known);
  if (isUnknown) message.$unknown = [{ no: 99, wireType: 0, data: Uint8Array.of(1) }];
  return message;
}

function toProtoJson(desc: DescEnum | undefined, value: unknown): JsonValue {
  if (typeof value === 'bigint') return String(value);
  if (desc === undefined || typeof value === 'number') return value as JsonValue;
  return desc.values.find((candidate) => wordOf(candidate) === value)?.number ?? unknownNumber;
}

const wordOf = (value: DescEnum['values'][number]): string =>
  hasOption(value, json_word)
    ? getOption(value, json_word)
    : value.name.slice(value.parent.sharedPrefix?.length).toLowerCase();

/** Cached by field. Reading an option decodes it each time, which is a quarter of a gRPC call's work. */
const known = new Map<DescField, JsonField>();
function optionsOf(field: DescField): JsonField {
  const options = known.get(field) ?? getOption(field, json_field);
  known.set(field, options);
  return options;
}

/** The public JSON of a message. Shares no code with the service. */
function publicJsonOf(desc: DescMessage, message: Message): JsonObject {
  const json: JsonObject = {};
  for (const field of desc.fields) {
    const value = (message as unknown as Record<string, unknown>)[field.localName];
    const { omitEmpty, keepEmpty, secret } = optionsOf(field);
    const isList = Array.isArray(value);
    if (isList ? value.length === 0 && !keepEmpty : (omitEmpty || secret) && value === '') continue;
    if (!isList && !isFieldSet(message, field) && field.presence !== FeatureSet_FieldPresence.IMPLICIT)
      continue;
    const toValue = (one: unknown): JsonValue => {
      if (typeof one === 'bigint') return Number(one);
      if (field.enum) return wordOf(field.enum.value[one as number] ?? unknownWord(one));
      if (field.message === undefined || field.message.typeName === 'google.protobuf.Struct')
        return one as JsonValue;
      if (field.message.typeName === 'google.protobuf.Timestamp')
        return timestampDate(one as Timestamp).toISOString();
      return publicJsonOf(field.message, one as Message);
    };
    json[field.name] = isList ? value.map(toValue) : toValue(value);
  }
  return json;
}

function unknownWord(value: unknown): never {
  throw new Error(`the contract has no word for ${value}`);
}
