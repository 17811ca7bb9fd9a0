// Converts every RPC failure to a refusal of the catalogue, on all paths of the internal door.

import { Code, ConnectError, type Interceptor } from '@connectrpc/connect';
import { codeToString } from '@connectrpc/connect/protocol-connect';
import { toConnectError, toServiceError } from '../../requests/errors.ts';
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
  return response.then(
    (answer) => (answer.stream ? { ...answer, message: refusing(answer.message, refuse) } : answer),
    refuse,
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
function endedByClient(reason: unknown): ConnectError {
  return isEndedByClient(reason) ? reason : clientGone;
}

/** The error to send, recorded in the context. A deadline or a cancellation comes from the client and is not changed. */
export function refusalOf(reason: unknown, context: RequestContext): ConnectError {
  if (isEndedByClient(reason)) {
    context.endedByClient = codeToString(reason.code);
    return reason;
  }
  // Connect's own, about a message that it cannot read (connect-failure.ts), or the health service's, about a service that
  // it does not know.
  if (reason instanceof ConnectError) return reason;
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
