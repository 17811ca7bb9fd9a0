// How an RPC that goes wrong becomes one of the catalogue's refusals, whichever way it came in.

import { Code, ConnectError, type Interceptor } from '@connectrpc/connect';
import { BadRequestSchema, ErrorInfoSchema } from '../../contract/gen/google/rpc/error_details_pb.ts';
import { ServiceError, toConnectError, toServiceError } from '../../requests/errors.ts';
import { type RequestContext, requestContextOf } from '../../requests/request-context.ts';

/**
 * The outermost interceptor: whatever goes wrong inside leaves as a refusal of the catalogue, and whatever takes
 * longer than the client's deadline is answered as such. What was begun by then is finished all the same.
 */
export const refuseByCatalogue: Interceptor = (next) => (request) =>
  beforeAbort(request.signal, () => next(request)).catch((reason) => {
    throw refusalOf(reason, requestContextOf(request.contextValues));
  });

/** Starts nothing once the signal has aborted, and waits no longer than until it does. */
function beforeAbort<T>(signal: AbortSignal, start: () => Promise<T>): Promise<T> {
  if (signal.aborted) return Promise.reject(endedByClient(signal.reason));
  return new Promise((resolve, reject) => {
    const abort = () => reject(endedByClient(signal.reason));
    signal.addEventListener('abort', abort, { once: true });
    start()
      .then(resolve, reject)
      .finally(() => signal.removeEventListener('abort', abort));
  });
}

/** Nobody waits for the answer any more. */
export const clientGone = new ConnectError('the client has gone', Code.Canceled);

/** A call is aborted by its deadline, or because its client has gone, in whatever words the transport says so. */
export function endedByClient(reason: unknown): ConnectError {
  return isEndedByClient(reason) ? reason : clientGone;
}

/** The error to answer, noted in the context. A deadline or a cancellation is the client's own and stays as it is. */
export function refusalOf(reason: unknown, context: RequestContext): ConnectError {
  if (isEndedByClient(reason)) return reason;
  const error = toServiceError(reason);
  context.error = error;
  return toConnectError(error, context.requestId);
}

function isEndedByClient(reason: unknown): reason is ConnectError {
  return (
    reason instanceof ConnectError && (reason.code === Code.DeadlineExceeded || reason.code === Code.Canceled)
  );
}

/** Said of calls whose bytes are at fault. */
export const callIsUnreadable = 'The call or its message is not well formed. Check it against the contract.';
/** gRPC calls of a unary method carry one message. */
export const notOneMessage = 'The call has to carry exactly one message.';

/** What Connect itself refused, in the words of the catalogue; undefined for a call that ended by its own terms. */
export function refusalOfConnect(error: ConnectError): ServiceError | undefined {
  const cause = error;
  // Our own, thrown where no interceptor sees it: by the reader of JSON.
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
      return undefined;
    case Code.ResourceExhausted:
      return new ServiceError('body_too_large', { cause });
    case Code.Unimplemented:
      // An unknown compression, which the client is told by its headers, or not exactly one message.
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
