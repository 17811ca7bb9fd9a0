// The two doors as their clients see them: JSON over HTTP by Node's own client, and gRPC by @grpc/grpc-js, which
// shares no code with the server. Both answer in one shape, so that one table can hold them both.

import http from 'node:http';
import { create, fromBinary, type JsonObject, toBinary } from '@bufbuild/protobuf';
import grpc from '@grpc/grpc-js';
import {
  BadRequestSchema,
  ErrorInfoSchema,
  RequestInfoSchema,
  RetryInfoSchema,
} from '../../src/contract/gen/google/rpc/error_details_pb.ts';
import {
  Chain,
  Lane,
  PaymentIntentSchema,
  Token,
} from '../../src/contract/gen/payments/v1/payment_intent_pb.ts';
import { CreatePaymentIntentRequestSchema } from '../../src/contract/gen/payments/v1/payment_intent_service_pb.ts';

/** The fields of the specification, as JSON. */
export type CreateBody = Record<string, unknown>;

export interface Intent {
  id: string;
  status: string;
  client_secret: string;
  mode: string;
  chain: string;
  chain_id: number;
  confirmations_required: number;
  amount_units: number;
  decimals: number;
  token_symbol: string;
  token_address: string;
  expected_wallet: string;
  expires_at: string;
  expires_in_minutes: number;
  lane: string;
  metadata: Record<string, unknown>;
}

export interface Answer {
  /** `ok`, or a code of the catalogue. */
  code: string;
  intent?: Intent;
  replayed: boolean;
  requestId: string;
  message: string;
  details: { field: string; message: string }[];
  /** HTTP status, or gRPC code. */
  status: number;
}

export interface CallOptions {
  authorization?: string | undefined;
  idempotencyKey?: string;
  /** The caller's `traceparent`. */
  traceparent?: string;
}

export interface Door {
  name: 'public' | 'internal';
  create(body: CreateBody, options: CallOptions): Promise<Answer>;
  close(): void;
}

/** A service's addresses, as `http://host:port`. */
export interface Endpoints {
  publicUrl: string;
  internalUrl: string;
}

export function openDoors(endpoints: Endpoints): [Door, Door] {
  return [openPublicDoor(endpoints), openInternalDoor(endpoints)];
}

export interface HttpAnswer {
  status: number;
  headers: http.IncomingHttpHeaders;
  body: string;
}

/** Sends one HTTP request, with full control over its headers and bytes. */
export function httpRequest(
  url: string,
  options: http.RequestOptions,
  body?: string | Uint8Array,
): Promise<HttpAnswer> {
  return new Promise((resolve, reject) => {
    const request = http.request(url, { method: 'POST', ...options }, (response) => {
      const chunks: Buffer[] = [];
      response.on('data', (chunk) => chunks.push(chunk));
      response.on('error', reject);
      response.on('end', () => {
        resolve({
          status: response.statusCode ?? 0,
          headers: response.headers,
          body: Buffer.concat(chunks).toString(),
        });
      });
    });
    request.on('error', reject);
    request.end(body);
  });
}

function openPublicDoor({ publicUrl }: Endpoints): Door {
  const agent = new http.Agent({ keepAlive: true, maxSockets: 16 });
  return {
    name: 'public',
    async create(body, { authorization, idempotencyKey, traceparent }) {
      const {
        status,
        headers,
        body: text,
      } = await httpRequest(
        `${publicUrl}/v1/payment_intents`,
        {
          agent,
          headers: {
            'Content-Type': 'application/json',
            ...(authorization === undefined ? {} : { Authorization: authorization }),
            ...(idempotencyKey === undefined ? {} : { 'Idempotency-Key': idempotencyKey }),
            ...(traceparent === undefined ? {} : { traceparent }),
          },
        },
        JSON.stringify(body),
      );
      const json = JSON.parse(text);
      const common = {
        status,
        requestId: String(headers['x-request-id']),
        replayed: headers['idempotent-replayed'] === 'true',
      };
      if (status === 201) return { ...common, code: 'ok', intent: json, message: '', details: [] };
      const { code, message, details = [] } = json.error;
      return { ...common, code, message, details };
    },
    close: () => agent.destroy(),
  };
}

export interface RawGrpcAnswer {
  bytes?: Buffer;
  error?: grpc.ServiceError;
  metadata: grpc.Metadata;
}

/** Makes one unary call with the raw bytes of the message. */
export function grpcCall(
  client: grpc.Client,
  bytes: Uint8Array,
  metadata: grpc.Metadata,
  options: grpc.CallOptions = {},
): Promise<RawGrpcAnswer> {
  return new Promise((resolve) => {
    let initial = new grpc.Metadata();
    const call = client.makeUnaryRequest(
      '/payments.v1.PaymentIntentService/CreatePaymentIntent',
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

const chains: Record<string, Chain> = { base: Chain.BASE, polygon: Chain.POLYGON };
const lanes: Record<string, Lane> = { sdk: Lane.SDK, manual: Lane.MANUAL };

/** Returns the message for a body; unknown enum words become unknown numbers. */
export function toRequestBytes(body: CreateBody): Uint8Array {
  return toBinary(
    CreatePaymentIntentRequestSchema,
    create(CreatePaymentIntentRequestSchema, {
      amountUnits: BigInt((body.amount_units as number | bigint) ?? 0),
      ...(body.chain == null ? {} : { chain: chains[body.chain as string] ?? (99 as Chain) }),
      ...(body.lane == null ? {} : { lane: lanes[body.lane as string] ?? (99 as Lane) }),
      ...(body.token == null ? {} : { token: body.token === 'USDC' ? Token.USDC : (99 as Token) }),
      ...(body.wallet_address == null ? {} : { walletAddress: body.wallet_address as string }),
      ...(body.expires_in_minutes == null ? {} : { expiresInMinutes: body.expires_in_minutes as number }),
      ...(body.metadata == null ? {} : { metadata: body.metadata as JsonObject }),
    }),
  );
}

function openInternalDoor({ internalUrl }: Endpoints): Door {
  const client = new grpc.Client(new URL(internalUrl).host, grpc.credentials.createInsecure(), {
    // Reconnects soon after a service has come back.
    'grpc.initial_reconnect_backoff_ms': 100,
    'grpc.max_reconnect_backoff_ms': 500,
  });
  return {
    name: 'internal',
    async create(body, { authorization, idempotencyKey, traceparent }) {
      const metadata = new grpc.Metadata();
      if (authorization !== undefined) metadata.set('authorization', authorization);
      if (idempotencyKey !== undefined) metadata.set('idempotency-key', idempotencyKey);
      if (traceparent !== undefined) metadata.set('traceparent', traceparent);
      return readGrpcAnswer(await grpcCall(client, toRequestBytes(body), metadata));
    },
    close: () => client.close(),
  };
}

export function readGrpcAnswer({ bytes, error, metadata }: RawGrpcAnswer): Answer {
  if (bytes !== undefined) {
    return {
      code: 'ok',
      status: 0,
      intent: intentOf(bytes),
      replayed: metadata.get('idempotent-replayed')[0] === 'true',
      requestId: String(metadata.get('x-request-id')[0]),
      message: '',
      details: [],
    };
  }
  if (error === undefined) throw new Error('neither answer nor error');
  const details = errorDetailsOf(error);
  return {
    code: details.reason?.toLowerCase() ?? grpc.status[error.code] ?? '?',
    status: error.code,
    replayed: false,
    requestId: details.requestId ?? '',
    message: error.details,
    details: details.violations,
  };
}

/** Reads `grpc-status-details-bin` (google.rpc.Status) by hand: code = 1, message = 2, details = 3 (Any). */
export function errorDetailsOf(error: grpc.ServiceError): {
  reason?: string;
  domain?: string;
  docUrl?: string;
  requestId?: string;
  retryDelaySeconds?: number;
  violations: { field: string; message: string }[];
} {
  const [status] = error.metadata.get('grpc-status-details-bin');
  const result: ReturnType<typeof errorDetailsOf> = { violations: [] };
  if (!(status instanceof Buffer)) return result;
  for (const any of lengthDelimitedFields(status, 3)) {
    const type = lengthDelimitedFields(any, 1)[0]?.toString().split('/')[1];
    const value = lengthDelimitedFields(any, 2)[0] ?? Buffer.alloc(0);
    if (type === 'google.rpc.ErrorInfo') {
      const info = fromBinary(ErrorInfoSchema, value);
      Object.assign(result, { reason: info.reason, domain: info.domain, docUrl: info.metadata.doc_url });
    } else if (type === 'google.rpc.RetryInfo') {
      result.retryDelaySeconds = Number(fromBinary(RetryInfoSchema, value).retryDelay?.seconds);
    } else if (type === 'google.rpc.RequestInfo') {
      result.requestId = fromBinary(RequestInfoSchema, value).requestId;
    } else if (type === 'google.rpc.BadRequest') {
      result.violations = fromBinary(BadRequestSchema, value).fieldViolations.map(
        ({ field, description }) => ({
          field,
          message: description,
        }),
      );
    }
  }
  return result;
}

function lengthDelimitedFields(bytes: Buffer, wanted: number): Buffer[] {
  const found: Buffer[] = [];
  let at = 0;
  const varint = () => {
    let value = 0;
    for (let shift = 0; ; shift += 7) {
      const byte = bytes[at++] as number;
      value |= (byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
  };
  while (at < bytes.length) {
    const tag = varint();
    if ((tag & 7) === 0) {
      varint();
      continue;
    }
    const length = varint();
    if (tag >> 3 === wanted) found.push(bytes.subarray(at, at + length));
    at += length;
  }
  return found;
}

function intentOf(bytes: Buffer): Intent {
  const intent = fromBinary(PaymentIntentSchema, bytes);
  return {
    id: intent.id,
    status: ['', 'requires_payment'][intent.status] ?? '?',
    client_secret: intent.clientSecret,
    mode: ['', 'testnet', 'mainnet'][intent.mode] ?? '?',
    chain: ['', 'base', 'polygon'][intent.chain] ?? '?',
    chain_id: Number(intent.chainId),
    confirmations_required: intent.confirmationsRequired,
    amount_units: Number(intent.amountUnits),
    decimals: intent.decimals,
    token_symbol: intent.tokenSymbol,
    token_address: intent.tokenAddress,
    expected_wallet: intent.expectedWallet,
    expires_at: new Date(
      Number(intent.expiresAt?.seconds) * 1000 + Number(intent.expiresAt?.nanos) / 1e6,
    ).toISOString(),
    expires_in_minutes: intent.expiresInMinutes,
    lane: ['', 'sdk', 'manual'][intent.lane] ?? '?',
    metadata: intent.metadata ?? {},
  };
}
