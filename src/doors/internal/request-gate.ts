// The gate of calls through Connect: refuses a call before its message is read.

import type { HandlerContext } from '@connectrpc/connect';
import { type RequestContext, requestContextOf } from '../../requests/request-context.ts';
import { refusalOf, refuseWhatConnectRefuses } from './catalogue-errors.ts';

/** Returns the gate of a method. `admit` returns the caller, or throws the refusal. */
export function requestGateOf(admit: (context: RequestContext, header: Headers) => unknown) {
  return async (call: HandlerContext): Promise<void> => {
    refuseWhatConnectRefuses(call);
    const context = requestContextOf(call.values);
    try {
      context.admitted = { caller: await admit(context, call.requestHeader) };
    } catch (reason) {
      throw refusalOf(reason, context);
    }
  };
}

/** Returns the caller that the gate has admitted. Throws without one: nothing can skip authentication. */
export function admittedCaller({ admitted }: RequestContext): unknown {
  if (admitted === undefined) throw new Error('a call was not admitted');
  return admitted.caller;
}
