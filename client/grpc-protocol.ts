import { create } from '@bufbuild/protobuf';
import { timestampDate } from '@bufbuild/protobuf/wkt';
import { Code, ConnectError, createClient } from '@connectrpc/connect';
import type { UniversalClientFn } from '@connectrpc/connect/protocol';
import { createTransport } from '@connectrpc/connect/protocol-grpc';
import {
  compressionBrotli,
  compressionGzip,
  createNodeHttpClient,
  Http2SessionManager,
} from '@connectrpc/connect-node';
import {
  BadRequestSchema,
  ErrorInfoSchema,
  RequestInfoSchema,
  RetryInfoSchema,
} from '../src/contract/gen/google/rpc/error_details_pb.ts';
import type { PaymentIntent as IntentMessage } from '../src/contract/gen/payments/v1/payment_intent_pb.ts';
import {
  type CreatePaymentIntentRequest,
  CreatePaymentIntentRequestSchema,
  PaymentIntentService,
} from '../src/contract/gen/payments/v1/payment_intent_service_pb.ts';
import { type HttpAnswer, readText, refusalOf, unexpectedAnswer } from './answer.ts';
import type { CreateRequest } from './create-request.ts';
import { chains, enumValueOf, lanes, modes, statuses, tokens } from './enums.ts';
import { codeOf, PaymentIntentsError, rootOf } from './error.ts';
import type { Target } from './options.ts';
import type { PaymentIntent } from './payment-intent.ts';
import type { Send } from './retrying-client.ts';
import { userAgent } from './version.ts';

/** The internal port: gRPC over HTTP/2. */
export function grpc({ baseUrl, apiKey }: Target): Send {
  const sessions = new Http2SessionManager(baseUrl);
  const httpClient = createNodeHttpClient({ httpVersion: '2', sessionProvider: () => sessions });
  return async (request, idempotencyKey, signal) => {
    const received: Received = {};
    const client = createClient(PaymentIntentService, transportOf(baseUrl, recording(httpClient, received)));
    try {
      const intent = await client.createPaymentIntent(messageOf(request), {
        headers: {
          Authorization: `Bearer ${apiKey}`,
          'Idempotency-Key': idempotencyKey,
          'User-Agent': userAgent(),
        },
        signal,
      });
      return intentOf(intent, received);
    } catch (reason) {
      throw received.unexpected ?? refusalIn(ConnectError.from(reason), received);
    }
  };
}

/** What one call has received besides the message. */
interface Received {
  headers?: Headers;
  trailers?: Headers;
  /** Set if the answer was not gRPC. */
  unexpected?: PaymentIntentsError;
}

/** Records what is received. An answer that is not gRPC is read as an HTTP answer. */
function recording(httpClient: UniversalClientFn, received: Received): UniversalClientFn {
  return async (request) => {
    const { status, header: headers, body, trailer: trailers } = await httpClient(request);
    Object.assign(received, { headers, trailers });
    if (status === 200 && headers.get('Content-Type')?.startsWith('application/grpc')) {
      return { status, header: headers, body, trailer: trailers };
    }
    const answer: HttpAnswer = { status, headers, text: await readText(body) };
    received.unexpected = status === 200 ? unexpectedAnswer(answer) : refusalOf(answer);
    throw received.unexpected;
  };
}

function transportOf(baseUrl: string, httpClient: UniversalClientFn) {
  return createTransport({
    baseUrl,
    httpClient,
    useBinaryFormat: true,
    interceptors: [],
    acceptCompression: [compressionGzip, compressionBrotli],
    sendCompression: null,
    compressMinBytes: 1_024,
    readMaxBytes: 0xffffffff,
    writeMaxBytes: 0xffffffff,
  });
}

const [minInt32, maxInt32] = [-(2 ** 31), 2 ** 31 - 1];

function messageOf(request: CreateRequest): CreatePaymentIntentRequest {
  const { walletAddress, expiresInMinutes: minutes, metadata } = request;
  return create(CreatePaymentIntentRequestSchema, {
    amountUnits: request.amountUnits,
    ...(request.chain && { chain: chains[request.chain] }),
    ...(walletAddress !== undefined && { walletAddress }),
    // The nearest value that the field can hold. The server clamps it further.
    ...(minutes !== undefined && {
      expiresInMinutes: Math.min(Math.max(minutes, minInt32), maxInt32),
    }),
    ...(request.lane && { lane: lanes[request.lane] }),
    ...(metadata && { metadata }),
    ...(request.token && { token: tokens[request.token] }),
  });
}

function intentOf(intent: IntentMessage, { headers }: Received): PaymentIntent {
  if (intent.id === '' || intent.clientSecret === '' || intent.expiresAt === undefined) {
    throw new PaymentIntentsError('unexpected_answer', 'The answer has no id, client secret or expiry');
  }
  return {
    id: intent.id,
    status: enumValueOf(statuses, intent.status),
    clientSecret: intent.clientSecret,
    mode: enumValueOf(modes, intent.mode),
    chain: enumValueOf(chains, intent.chain),
    chainId: Number(intent.chainId),
    confirmationsRequired: intent.confirmationsRequired,
    amountUnits: intent.amountUnits,
    decimals: intent.decimals,
    tokenSymbol: intent.tokenSymbol,
    tokenAddress: intent.tokenAddress,
    expectedWallet: intent.expectedWallet,
    expiresAt: timestampDate(intent.expiresAt),
    expiresInMinutes: intent.expiresInMinutes,
    lane: enumValueOf(lanes, intent.lane),
    metadata: intent.metadata ?? {},
    replayed: headers?.get('Idempotent-Replayed') === 'true',
  };
}

/** gRPC codes of failures that may pass. */
const transientCodes: ReadonlySet<Code> = new Set([
  Code.Unavailable,
  Code.DeadlineExceeded,
  Code.ResourceExhausted,
  Code.Aborted,
  Code.Internal,
  Code.Unknown,
]);

function refusalIn(error: ConnectError, { headers, trailers }: Received): PaymentIntentsError {
  if (error.cause instanceof PaymentIntentsError) return error.cause;
  const [info] = error.findDetails(ErrorInfoSchema);
  const hasStatus = headers?.has('grpc-status') || trailers?.has('grpc-status');
  if (error.code === Code.Canceled || !hasStatus) {
    const root = rootOf(error);
    // This is all that Node's HTTP/2 reports about a server that speaks HTTP/1.1.
    const hint = root === 'Protocol error' ? '; gRPC needs the internal port, which speaks HTTP/2' : '';
    return new PaymentIntentsError('network', `No answer came: ${root}${hint}`, { cause: error });
  }
  if (info === undefined) {
    const isRetryable = transientCodes.has(error.code);
    return new PaymentIntentsError(
      isRetryable ? 'unavailable' : 'unexpected_answer',
      `gRPC status ${Code[error.code]}, which is not the payment service's answer: ${error.rawMessage}`,
      { isRetryable, cause: error },
    );
  }
  const [badRequest] = error.findDetails(BadRequestSchema);
  const [retry] = error.findDetails(RetryInfoSchema);
  const code = codeOf(info.reason.toLowerCase());
  return new PaymentIntentsError(code, error.rawMessage, {
    requestId: error.findDetails(RequestInfoSchema)[0]?.requestId,
    docUrl: info.metadata.doc_url,
    details: (badRequest?.fieldViolations ?? []).map(({ field, description }) => ({
      field,
      message: description,
    })),
    retryAfterMs: retry?.retryDelay ? Number(retry.retryDelay.seconds) * 1_000 : 0,
    isRetryable: code.startsWith('unknown:')
      ? retry !== undefined || transientCodes.has(error.code)
      : undefined,
    cause: error,
  });
}
