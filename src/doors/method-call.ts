import type { DescMethod, DescMethodUnary, Message } from '@bufbuild/protobuf';
import type { ContextValues, Interceptor, UnaryRequest, UnaryResponse } from '@connectrpc/connect';
import type { Method } from '../requests/method.ts';
import type { RawHeaders } from '../requests/request-header.ts';
import type { Operation } from '../requests/trace.ts';

/** How a call of the method appears in a trace. gRPC-Web counts as gRPC there. */
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
  header: RawHeaders;
  values: ContextValues;
  /** Aborts when the client no longer waits for the answer. Without it the call always runs to its end. */
  signal?: AbortSignal;
}

const neverAborted = new AbortController().signal;

/**
 * Wraps the method in the interceptors, as Connect does, for a door that has already decoded the request. The
 * method sees the headers that the client sent, not those that an interceptor changes.
 */
export function intercept(
  desc: DescMethodUnary,
  method: Method,
  interceptors: readonly Interceptor[],
): (call: MethodCall) => Promise<{ message: Message; header: Headers }> {
  const innermost = async (request: UnaryCall): Promise<UnaryResponse> => {
    const responseHeader = new Headers();
    const message = await method.run(request.message, {
      values: request.contextValues,
      requestHeader: request.rawHeader,
      responseHeader,
      signal: request.signal,
    });
    return {
      stream: false,
      service: desc.parent,
      method: desc,
      message: message as UnaryResponse['message'],
      header: responseHeader,
      trailer: new Headers(),
    };
  };
  type AnyFn = ReturnType<Interceptor>;
  const call = interceptors.reduceRight<AnyFn>((next, interceptor) => interceptor(next), innermost as AnyFn);
  return async (of) => {
    const response = await call(new UnaryCall(desc, of));
    if (response.stream) throw new Error(`an interceptor answered ${desc.name} with a stream`);
    return { message: response.message as Message, header: response.header };
  };
}

/** A request as interceptors see it. Its headers become a Headers object only when one is needed. */
class UnaryCall implements UnaryRequest {
  readonly stream = false;
  readonly requestMethod = 'POST';
  readonly service: UnaryRequest['service'];
  readonly method: UnaryRequest['method'];
  readonly url: string;
  readonly signal: AbortSignal;
  readonly contextValues: ContextValues;
  readonly message: UnaryRequest['message'];
  readonly rawHeader: RawHeaders;
  #header: Headers | undefined;

  constructor(desc: DescMethodUnary, { message, header, values, signal = neverAborted }: MethodCall) {
    this.service = desc.parent;
    this.method = desc;
    this.url = `http://localhost/${desc.parent.typeName}/${desc.name}`;
    this.signal = signal;
    this.contextValues = values;
    this.message = message as UnaryRequest['message'];
    this.rawHeader = header;
  }

  get header(): Headers {
    this.#header ??= this.rawHeader.toHeaders();
    return this.#header;
  }
}
