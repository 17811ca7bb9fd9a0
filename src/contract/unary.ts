import type { DescMethod, DescMethodServerStreaming, DescMethodUnary } from '@bufbuild/protobuf';

/** True for a method with one request and one answer. The compiler cannot infer it from `methodKind`. */
export function isUnary(method: DescMethod): method is DescMethodUnary {
  return method.methodKind === 'unary';
}

/** True for a method with one request and a stream of answers. */
export function isServerStreaming(method: DescMethod): method is DescMethodServerStreaming {
  return method.methodKind === 'server_streaming';
}
