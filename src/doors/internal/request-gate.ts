// The gate of calls through Connect: refuses a call before its message is read.

import { base64Decode } from '@bufbuild/protobuf/wire';
import type { HandlerContext } from '@connectrpc/connect';
import { ServiceError } from '../../requests/errors.ts';
import { type RequestContext, requestContextOf } from '../../requests/request-context.ts';
import { callIsUnreadable, refusalOf, refuseWhatConnectRefuses } from './catalogue-errors.ts';

/** Returns the gate of a method. `admit` returns the caller, or throws the refusal. */
export function requestGateOf(admit: (context: RequestContext, header: Headers) => unknown) {
  return async (call: HandlerContext): Promise<void> => {
    refuseWhatConnectRefuses(call);
    const context = requestContextOf(call.values);
    try {
      context.admitted = { caller: await admit(context, call.requestHeader) };
      if (call.requestMethod === 'GET') assertReadable(new URL(call.url).searchParams);
    } catch (reason) {
      throw refusalOf(reason, context);
    }
  };
}

/** Refuses a message that is not base64, which Connect would call its own fault (500). */
function assertReadable(query: URLSearchParams): void {
  if (query.get('base64') !== '1') return;
  try {
    base64Decode(query.get('message') ?? '');
  } catch (cause) {
    throw new ServiceError('invalid_body', { message: callIsUnreadable, cause });
  }
}

/** Returns the caller that the gate has admitted. Throws without one: nothing can skip authentication. */
export function admittedCaller({ admitted }: RequestContext): unknown {
  if (admitted === undefined) throw new Error('a call was not admitted');
  return admitted.caller;
}
