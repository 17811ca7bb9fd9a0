import type { DescMethod, DescMethodUnary } from '@bufbuild/protobuf';

/** True for a method with one request and one answer. The compiler cannot infer it from `methodKind`. */
export function isUnary(method: DescMethod): method is DescMethodUnary {
  return method.methodKind === 'unary';
}
