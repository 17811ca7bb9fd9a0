import { type Call, createCall } from './calls.ts';
import type { GrpcPaymentIntentsClient, PaymentIntentsClient } from './client.ts';
import { PaymentIntentsError } from './error.ts';
import { methods } from './gen/methods.ts';
import { createList } from './list-pages.ts';
import { type CheckedCallOptions, type CheckedOptions, readCallOptions } from './options.ts';
import type { Method, OpenStream, Send } from './protocol.ts';
import { readId, readRequest } from './request-fields.ts';
import { watchEvents } from './resuming-stream.ts';

/** Returns a client that sends each try of a call by `send`. */
export function createClient(options: CheckedOptions<string>, send: Send): PaymentIntentsClient {
  const call = createCall(options, send);
  const made = Object.entries<Method>(methods).map(([name, method]) => [
    name,
    callable(method, call, options),
  ]);
  return {
    ...(Object.fromEntries(made) as PaymentIntentsClient),
    watchEvents() {
      throw new TypeError(
        "watchEvents needs gRPC: create the client with protocol: 'grpc' and the address of the internal port, or follow events with listEvents",
      );
    },
  };
}

/** Returns the function of a method: of its id, its request and options, as far as it takes them. */
function callable(method: Method, call: Call, options: CheckedOptions<string>) {
  const { takesId, takesKey, isRequestOptional, lists } = method;
  const read = (given: unknown[]) => {
    const [id, ...others] = takesId ? given : [undefined, ...given];
    const [request, callOptions = {}] = method.request === undefined ? [undefined, ...others] : others;
    const checked = readCallOptions(callOptions, takesKey, options);
    const asked = readAs(checked, () => ({
      id: takesId ? readId(id) : undefined,
      ...(method.request && {
        request: readRequest(method.request, request === undefined && isRequestOptional ? {} : request),
      }),
    }));
    return { asked, checked };
  };
  if (lists !== undefined) {
    return (...given: unknown[]) => {
      const { asked, checked } = read(given);
      return createList(call, { ...method, lists }, asked, checked);
    };
  }
  return async (...given: unknown[]) => {
    const { asked, checked } = read(given);
    const { resource, replayed } = await call(method, asked, checked);
    if (method.returns === null) return undefined;
    if (method.returns !== undefined) return (resource as Record<string, unknown>)[method.returns];
    return takesKey ? Object.assign(resource, { replayed }) : resource;
  };
}

/** Returns a client over gRPC. */
export function createGrpcClient(
  options: CheckedOptions<string>,
  { send, openStream }: { send: Send; openStream: OpenStream },
): GrpcPaymentIntentsClient {
  return {
    ...createClient(options, send),
    watchEvents: (watch = {}) => watchEvents(openStream, watch, options.timeoutMs),
  };
}

/** Reads what the caller gave. A refusal gets the idempotency key of the call. */
function readAs<Value>({ idempotencyKey }: CheckedCallOptions, read: () => Value): Value {
  try {
    return read();
  } catch (refusal) {
    throw refusal instanceof PaymentIntentsError
      ? PaymentIntentsError.from(refusal, idempotencyKey)
      : refusal;
  }
}

/** Throws in a browser, where a payer could read the API key. */
export function refuseBrowsers(): void {
  if ('window' in globalThis || 'importScripts' in globalThis) {
    throw new Error(
      'The payment intents client runs on servers only: anybody could read an API key in a browser. Call your own server, and let it call this.',
    );
  }
}
