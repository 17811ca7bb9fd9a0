import type { DescMethod, DescMethodUnary } from '@bufbuild/protobuf';

/** True for a method with one request and one answer, which the compiler cannot tell from `methodKind` alone. */
export function isUnary(method: DescMethod): method is DescMethodUnary {
  return method.methodKind === 'unary';
}
