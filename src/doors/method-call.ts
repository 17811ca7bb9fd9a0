import type { DescMethod, DescMethodUnary, Message } from '@bufbuild/protobuf';
import type { ContextValues, Interceptor, UnaryRequest, UnaryResponse } from '@connectrpc/connect';
import type { CallContext } from '../payment-intents/service.ts';
import type { Operation } from '../requests/trace.ts';

/** A unary method as a door that is not Connect's own calls it. */
export type UnaryMethod = (request: never, context: CallContext) => Promise<Message>;

/** What a call of the method is in a trace; gRPC-Web is gRPC there. */
export function operationOf(method: DescMethod, system: 'grpc' | 'connectrpc' = 'grpc'): Operation {
  const name = `${method.parent.typeName}/${method.name}`;
  return {
    name,
    attributes: { 'rpc.system.name': system, 'rpc.method': name },
    okStatus: { 'rpc.status_code': 'OK' },
  };
}

export interface MethodCall {
  message: Message;
  header: Headers;
  values: ContextValues;
  url: string;
  /** Aborts when nobody waits for the answer any more. Without it the call runs to its end in any case. */
  signal?: AbortSignal;
}

const neverAborted = new AbortController().signal;

/**
 * The method behind the interceptors, as Connect would call it, for a door that has its request as a message
 * already. Interceptors and method cannot tell the difference.
 */
export function behindInterceptors(
  method: DescMethodUnary,
  implementation: UnaryMethod,
  interceptors: readonly Interceptor[],
): (call: MethodCall) => Promise<{ message: Message; header: Headers }> {
  const innermost = async (request: UnaryRequest): Promise<UnaryResponse> => {
    const responseHeader = new Headers();
    const message = await implementation(request.message as never, {
      values: request.contextValues,
      requestHeader: request.header,
      responseHeader,
      signal: request.signal,
    });
    return {
      stream: false,
      service: method.parent,
      method,
      message: message as UnaryResponse['message'],
      header: responseHeader,
      trailer: new Headers(),
    };
  };
  type AnyFn = ReturnType<Interceptor>;
  const call = interceptors.reduceRight<AnyFn>((next, interceptor) => interceptor(next), innermost as AnyFn);
  return async ({ message, header, values, url, signal = neverAborted }) => {
    const response = await call({
      stream: false,
      service: method.parent,
      method,
      requestMethod: 'POST',
      url,
      signal,
      header,
      contextValues: values,
      message,
    } as UnaryRequest);
    if (response.stream) throw new Error(`an interceptor answered ${method.name} with a stream`);
    return { message: response.message as Message, header: response.header };
  };
}
