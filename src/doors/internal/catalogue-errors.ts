// Converts every RPC failure to a refusal of the catalogue, on all paths of the internal door.

import { Code, ConnectError, type Interceptor } from '@connectrpc/connect';
import { codeToString } from '@connectrpc/connect/protocol-connect';
import { BadRequestSchema, ErrorInfoSchema } from '../../contract/gen/google/rpc/error_details_pb.ts';
import { ServiceError, toConnectError, toServiceError } from '../../requests/errors.ts';
import { type RequestContext, requestContextOf } from '../../requests/request-context.ts';
import { beforeAbort } from '../call.ts';

/**
 * The outermost interceptor. Every error inside becomes a refusal of the catalogue. A call that outlives the client's
 * deadline is answered with DEADLINE_EXCEEDED, but work already started still finishes.
 */
export const refuseByCatalogue: Interceptor = (next) => (request) => {
  const { signal } = request;
  const refuse = (reason: unknown): never => {
    const isAbort = signal.aborted && reason === signal.reason;
    throw refusalOf(isAbort ? endedByClient(reason) : reason, requestContextOf(request.contextValues));
  };
  const response = beforeAbort(signal, () => next(request));
  if (!request.stream) return response.catch(refuse);
  // Messages of a stream are read here, inside the interceptors, and so are the errors that Connect finds in them.
  const refuseStream = (reason: unknown) =>
    refuse((reason instanceof ConnectError && refusalOfConnect(reason)) || reason);
  return response.then(
    (answer) => (answer.stream ? { ...answer, message: refusing(answer.message, refuseStream) } : answer),
    refuseStream,
  );
};

/** An error thrown at `yield` means that the client has gone. It does not come from the method. */
async function* refusing<T>(
  messages: AsyncIterable<T>,
  refuse: (reason: unknown) => never,
): AsyncIterable<T> {
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

/** A call is aborted by its deadline or because its client has gone, whatever error the transport reports. */
export function endedByClient(reason: unknown): ConnectError {
  return isEndedByClient(reason) ? reason : clientGone;
}

/** The error to send, recorded in the context. A deadline or a cancellation comes from the client and is not changed. */
export function refusalOf(reason: unknown, context: RequestContext): ConnectError {
  if (isEndedByClient(reason)) {
    context.endedByClient = codeToString(reason.code);
    return reason;
  }
  // The health service's answer for an unknown service.
  if (reason instanceof ConnectError && reason.code === Code.NotFound) return reason;
  const error = toServiceError(reason);
  context.error = error;
  return toConnectError(error, context.requestId);
}

function isEndedByClient(reason: unknown): reason is ConnectError {
  return (
    reason instanceof ConnectError && (reason.code === Code.DeadlineExceeded || reason.code === Code.Canceled)
  );
}

/** The message for calls whose bytes are invalid. */
export const callIsUnreadable = 'The call or its message is not well formed. Check it against the contract.';
/** gRPC calls of a unary method carry one message. */
export const notOneMessage = 'The call has to carry exactly one message.';

/** Converts Connect's own refusal to one of the catalogue. Undefined for what is not changed. */
export function refusalOfConnect(error: ConnectError): ServiceError | undefined {
  const cause = error;
  // Our own refusal, thrown by the JSON reader outside all interceptors.
  if (error.findDetails(ErrorInfoSchema)[0]?.reason === 'INVALID_BODY') {
    const violations = error
      .findDetails(BadRequestSchema)
      .flatMap(({ fieldViolations }) => fieldViolations)
      .map(({ field, description }) => ({ field, message: description }));
    return new ServiceError('invalid_body', { message: error.rawMessage, violations, cause });
  }
  switch (error.code) {
    case Code.DeadlineExceeded:
    case Code.Canceled:
    case Code.NotFound:
      return undefined;
    case Code.ResourceExhausted:
      return new ServiceError('body_too_large', { cause });
    case Code.Unimplemented:
      // An unknown compression, also reported to the client in headers, or not exactly one message.
      return /compression/.test(error.rawMessage)
        ? new ServiceError('unsupported_media_type', {
            message: 'The message has a compression that this server does not know. It knows gzip and br.',
            cause,
          })
        : new ServiceError('invalid_body', { message: notOneMessage, cause });
    case Code.InvalidArgument:
    case Code.DataLoss:
      return new ServiceError('invalid_body', { message: callIsUnreadable, cause });
    case Code.Internal:
      return /^(?:parse binary|received compressed envelope)/.test(error.rawMessage)
        ? new ServiceError('invalid_body', { message: callIsUnreadable, cause })
        : new ServiceError('internal', { cause: error.cause ?? error });
    default:
      return new ServiceError('internal', { cause });
  }
}
