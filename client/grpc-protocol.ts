import type { DescMethodUnary } from '@bufbuild/protobuf';
import { Code, ConnectError, createClient } from '@connectrpc/connect';
import type { UniversalClientFn } from '@connectrpc/connect/protocol';
import { createTransport } from '@connectrpc/connect/protocol-grpc';
import { compressionBrotli, compressionGzip, createNodeHttpClient } from '@connectrpc/connect-node';
import {
  BadRequestSchema,
  ErrorInfoSchema,
  RequestInfoSchema,
  RetryInfoSchema,
} from '../src/contract/gen/google/rpc/error_details_pb.ts';
import { EventService } from '../src/contract/gen/payments/v1/event_service_pb.ts';
import { PaymentIntentService } from '../src/contract/gen/payments/v1/payment_intent_service_pb.ts';
import { RefundService } from '../src/contract/gen/payments/v1/refund_service_pb.ts';
import { TransferService } from '../src/contract/gen/payments/v1/transfer_service_pb.ts';
import { WebhookEndpointService } from '../src/contract/gen/payments/v1/webhook_endpoint_service_pb.ts';
import { isUnary } from '../src/contract/unary.ts';
import { maxAnswerBytes, readText, refusalOf, unexpectedAnswer } from './answer.ts';
import { codeOf, PaymentIntentsError, rootOf } from './error.ts';
import { watchEventsResponseFields } from './gen/fields.ts';
import { GrpcSessions } from './grpc-sessions.ts';
import { headersOf } from './json-protocol.ts';
import type { CheckedOptions } from './options.ts';
import type { OpenStream, Send } from './protocol.ts';
import { FieldFault, type Fields, readMessage } from './resource-fields.ts';

/** By their names in the contract. */
const descriptors = new Map<string, DescMethodUnary>(
  [PaymentIntentService, EventService, RefundService, WebhookEndpointService, TransferService]
    .flatMap((service) => service.methods)
    .filter(isUnary)
    .map((descriptor) => [descriptor.localName, descriptor]),
);

/** Pings a silent connection. A dead one is found within one try, and the next try opens a new one. */
const pings = { pingIntervalMs: 3_000, pingTimeoutMs: 3_000 };

/** The internal port: gRPC over HTTP/2. */
export function grpc({ baseUrl, apiKey }: CheckedOptions): { send: Send; openStream: OpenStream } {
  const httpClient = httpClientOf(new GrpcSessions(baseUrl, pings));

  return {
    async send({ method, id, request, idempotencyKey, signal }) {
      const received: Received = {};
      const transport = transportOf(baseUrl, httpClient, received);
      const input = { ...request.message, ...(id !== undefined && { id }) };
      try {
        const headers = headersOf(apiKey, idempotencyKey);
        const descriptor = descriptors.get(method.rpc) as DescMethodUnary;
        const { message, header } = await transport.unary(descriptor, signal, undefined, headers, input);
        const replayed = header.get('Idempotent-Replayed') === 'true';
        return { resource: resourceIn(method.answer, message), replayed };
      } catch (reason) {
        throw failureOf(reason, received);
      }
    },
    async *openStream(after, signal) {
      const received: Received = {};
      // A connection of its own: a dead one must not be reused, and closing it must not end other calls.
      const sessions = new GrpcSessions(baseUrl);
      const end = () => sessions.abort();
      const transport = transportOf(baseUrl, httpClientOf(sessions), received);
      signal.addEventListener('abort', end, { once: true });
      try {
        const { watchEvents } = createClient(EventService, transport);
        const headers = headersOf(apiKey);
        const stream = watchEvents(after === undefined ? {} : { after }, { headers, signal });
        for await (const message of stream) yield resourceIn(watchEventsResponseFields, message);
      } catch (reason) {
        throw failureOf(reason, received);
      } finally {
        signal.removeEventListener('abort', end);
        end();
      }
    },
  };
}

function httpClientOf(sessions: GrpcSessions): UniversalClientFn {
  return createNodeHttpClient({ httpVersion: '2', sessionProvider: () => sessions });
}

/** Reads a message. Throws `unexpected_answer` if a field that is always present is missing. */
function resourceIn<Resource extends object>(fields: Fields, message: object): Resource {
  try {
    return readMessage(fields, message);
  } catch (fault) {
    if (!(fault instanceof FieldFault)) throw fault;
    throw new PaymentIntentsError(
      'unexpected_answer',
      `The message is not the payment service's answer; ${fault.message}`,
    );
  }
}

function failureOf(reason: unknown, received: Received): PaymentIntentsError {
  if (reason instanceof PaymentIntentsError) return reason;
  return received.unexpected ?? refusalIn(ConnectError.from(reason), received);
}

/** What one call has received besides the message. */
interface Received {
  headers?: Headers;
  trailers?: Headers;
  /** Set if the answer was not gRPC. */
  unexpected?: PaymentIntentsError;
}

/** Records headers and trailers. Reads an answer that is not gRPC as an HTTP answer, and throws its error. */
function recording(httpClient: UniversalClientFn, received: Received): UniversalClientFn {
  return async (request) => {
    const { status, header: headers, body, trailer: trailers } = await httpClient(request);
    Object.assign(received, { headers, trailers });
    if (status === 200 && headers.get('Content-Type')?.startsWith('application/grpc')) {
      return { status, header: headers, body, trailer: trailers };
    }
    const answer = { status, headers, text: await readText(body) };
    received.unexpected = status === 200 ? unexpectedAnswer(answer) : refusalOf(answer);
    throw received.unexpected;
  };
}

function transportOf(baseUrl: string, httpClient: UniversalClientFn, received: Received) {
  return createTransport({
    baseUrl,
    httpClient: recording(httpClient, received),
    useBinaryFormat: true,
    interceptors: [],
    acceptCompression: [compressionGzip, compressionBrotli],
    sendCompression: null,
    compressMinBytes: 1_024,
    readMaxBytes: maxAnswerBytes,
    writeMaxBytes: 0xffffffff,
  });
}

/** gRPC codes of temporary failures. */
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
  const status = trailers?.get('grpc-status') ?? headers?.get('grpc-status');
  // A message that was cut short before this status is an error of the client's library, with another code.
  const sent: Code = Code[Number(status)] === undefined ? error.code : Number(status);
  if (sent === Code.Canceled || status == null) {
    const root = rootOf(error);
    // This is all that Node's HTTP/2 reports about a server that speaks HTTP/1.1.
    const hint = root === 'Protocol error' ? '; gRPC needs the internal port, which speaks HTTP/2' : '';
    return new PaymentIntentsError('network', `No answer came: ${root}${hint}`, { cause: error });
  }
  if (info === undefined) {
    const isRetryable = transientCodes.has(sent);
    return new PaymentIntentsError(
      isRetryable ? 'unavailable' : 'unexpected_answer',
      `gRPC status ${Code[sent]}, which is not the payment service's answer: ${error.rawMessage}`,
      { isRetryable, cause: error },
    );
  }
  const [badRequest] = error.findDetails(BadRequestSchema);
  const [retry] = error.findDetails(RetryInfoSchema);
  const code = codeOf(info.reason.toLowerCase());
  return new PaymentIntentsError(code, error.rawMessage, {
    requestId: error.findDetails(RequestInfoSchema)[0]?.requestId,
    docUrl: info.metadata.doc_url,
    resumeAfter: info.metadata.resume_after,
    details: badRequest?.fieldViolations.map(({ field, description: message }) => ({ field, message })),
    retryAfterMs: retry?.retryDelay ? Number(retry.retryDelay.seconds) * 1_000 : 0,
    isRetryable: code.startsWith('unknown:')
      ? retry !== undefined || transientCodes.has(error.code)
      : undefined,
    cause: error,
  });
}
