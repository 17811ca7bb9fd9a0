import type { DescMethod, DescMethodUnary, Message } from '@bufbuild/protobuf';
import type { ContextValues, Interceptor, UnaryRequest, UnaryResponse } from '@connectrpc/connect';
import type { Method } from '../requests/method.ts';
import type { RawHeaders } from '../requests/request-header.ts';
import type { Operation } from '../requests/trace.ts';

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
  header: RawHeaders;
  values: ContextValues;
  /** Aborts when nobody waits for the answer any more. Without it the call runs to its end in any case. */
  signal?: AbortSignal;
}

const neverAborted = new AbortController().signal;

/**
 * The method behind the interceptors, as Connect would call it, for a door that has its request as a message
 * already. Interceptors and method cannot tell the difference.
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

/** A request as interceptors see it. Its headers become an object when one of them asks. */
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
