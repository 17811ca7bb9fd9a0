// Converts every failure of an RPC to a refusal of the catalogue. Connect refuses some calls outside all
// interceptors: unreadable messages, messages too large, unknown compressions. In each of its three
// protocols, its handlers abort the context of the call with the same error object that they send next. It is
// changed to a refusal then.

import type { HandlerContext, Interceptor } from '@connectrpc/connect';
import { Code, ConnectError } from '@connectrpc/connect';
import type { UniversalServerResponse } from '@connectrpc/connect/protocol';
import { codeToString } from '@connectrpc/connect/protocol-connect';
import { setTrailerStatus } from '@connectrpc/connect/protocol-grpc';
import { ServiceError, toConnectError, toServiceError } from '../../requests/errors.ts';
import { type RequestContext, requestContextOf } from '../../requests/request-context.ts';
import { beforeAbort } from '../../scheduling/before-abort.ts';

/**
 * The outermost interceptor. Every error inside becomes a refusal of the catalogue. A call that exceeds the
 * client's deadline is answered with DEADLINE_EXCEEDED, but work already started still finishes.
 */
export const refuseByCatalogue: Interceptor = (next) => (request) => {
  const { signal } = request;
  const refuse = (reason: unknown): never => {
    // A call is aborted by its deadline or because its client has gone, whatever error the transport reports.
    const isGone = signal.aborted && reason === signal.reason && !isEndedByClient(reason);
    throw refusalOf(isGone ? clientGone : reason, requestContextOf(request.contextValues));
  };
  const response = beforeAbort(signal, () => next(request));
  if (!request.stream) return response.catch(refuse);
  return response.then(
    (answer) => (answer.stream ? { ...answer, message: refusing(answer.message, refuse) } : answer),
    refuse,
  );
};

/** An error thrown at `yield` means that the client has gone. It does not come from the method. */
async function* refusing<T>(messages: AsyncIterable<T>, refuse: (reason: unknown) => never) {
  const iterator = messages[Symbol.asyncIterator]();
  try {
    for (;;) {
      const next = await iterator.next().catch(refuse);
      if (next.done) return;
      yield next.value;
    }
  } finally {
    await iterator.return?.();
  }
}

/** The client no longer waits for the answer. */
export const clientGone = new ConnectError('the client has gone', Code.Canceled);

/** Returns the error to send and records it in the context. A deadline or cancellation stays unchanged. */
export function refusalOf(reason: unknown, context: RequestContext): ConnectError {
  if (isEndedByClient(reason)) {
    context.endedByClient = codeToString(reason.code);
    return reason;
  }
  // Connect's own, about an unreadable message, or the health service's, about an unknown service.
  if (reason instanceof ConnectError) return reason;
  const error = toServiceError(reason);
  context.error = error;
  return toConnectError(error, context.requestId);
}

function isEndedByClient(reason: unknown): reason is ConnectError {
  return reason instanceof ConnectError && [Code.DeadlineExceeded, Code.Canceled].includes(reason.code);
}

/** The message for calls whose bytes are invalid. */
export const callIsUnreadable = 'The call or its message is not well formed. Check it against the contract.';
/** gRPC calls of a unary method carry one message. */
export const notOneMessage = 'The call has to carry exactly one message.';

/** Turns Connect's own refusals of this call into refusals of the catalogue. Call it from the gate. */
export function refuseWhatConnectRefuses({ signal, values, requestHeader, url }: HandlerContext): void {
  signal.addEventListener('abort', () => {
    const context = requestContextOf(values);
    const error = signal.reason;
    if (!(error instanceof ConnectError) || context.error !== undefined) return;
    const inHeaders = compressionHeaders.map((name) => requestHeader.get(name));
    const compressions = [...inHeaders, new URL(url).searchParams.get('compression')];
    const isCompressionKnown = compressions.every((name) => knownCompressions.includes(name ?? 'identity'));
    const refusal = refusalOfConnect(error, { isRead: context.isRead === true, isCompressionKnown });
    if (refusal === undefined) return;
    context.error = refusal;
    const { code, message, rawMessage, details } = toConnectError(refusal, context.requestId);
    Object.assign(error, { code, message, rawMessage, details });
  });
}

const compressionHeaders = ['grpc-encoding', 'connect-content-encoding', 'content-encoding'];
const knownCompressions = ['identity', 'gzip', 'br'];

/** Converts Connect's own refusal to one of the catalogue. Undefined if it stays as it is. */
function refusalOfConnect(
  error: ConnectError,
  { isRead, isCompressionKnown }: { isRead: boolean; isCompressionKnown: boolean },
): ServiceError | undefined {
  // Our own refusal, thrown by the JSON reader.
  if (error.cause instanceof ServiceError) return error.cause;
  // A copy, because the error itself is changed to the refusal.
  const cause = new ConnectError(error.rawMessage, error.code, undefined, undefined, error.cause);
  switch (error.code) {
    case Code.DeadlineExceeded:
    case Code.Canceled:
    case Code.NotFound:
      return undefined;
    case Code.ResourceExhausted:
      return new ServiceError('body_too_large', { cause });
  }
  if (isRead) return new ServiceError('internal', { cause: error.cause ?? cause });
  switch (error.code) {
    case Code.Unimplemented:
      return isCompressionKnown
        ? new ServiceError('invalid_body', { message: notOneMessage, cause })
        : new ServiceError('unsupported_media_type', {
            message: 'The compression of the message is not supported. Use gzip, br or none.',
            cause,
          });
    case Code.InvalidArgument:
    case Code.DataLoss:
    case Code.Internal:
      return new ServiceError('invalid_body', { message: callIsUnreadable, cause });
    default:
      return new ServiceError('internal', { cause });
  }
}

/** The trailers of a call over gRPC that has failed. */
export function trailerOf(error: ConnectError): Headers {
  return encodeGrpcMessage(setTrailerStatus(new Headers(), error));
}

/** Returns the answer with `grpc-message` encoded as clients decode it. */
export function withReadableMessage(response: UniversalServerResponse): UniversalServerResponse {
  const { body, trailer } = response;
  if (body === undefined || trailer === undefined) return response;
  // Connect sets the trailers at the end of the body.
  async function* untilTrailer(): AsyncIterable<Uint8Array> {
    yield* body as AsyncIterable<Uint8Array>;
    encodeGrpcMessage(trailer as Headers);
  }
  return { ...response, body: untilTrailer() };
}

/** Connect also encodes `: / , ;` and others in `grpc-message`, which `@grpc/grpc-js` does not decode. */
function encodeGrpcMessage(trailer: Headers): Headers {
  const message = trailer.get('grpc-message');
  if (message !== null) trailer.set('grpc-message', encodeURI(decodeURIComponent(message)));
  return trailer;
}
