// What a service of the contract is on our side: one object for each method, the same for every door.

import type { DescMethod, DescMethodUnary, DescService, MessageShape } from '@bufbuild/protobuf';
import type { ContextValues } from '@connectrpc/connect';
import type { FieldViolation } from '../contract/error-catalogue.ts';
import { isUnary } from '../contract/unary.ts';
import type { RequestHeader } from './request-header.ts';

/** The part of a Connect HandlerContext that methods use, so that every door can offer it. */
export interface CallContext {
  readonly values: ContextValues;
  readonly requestHeader: RequestHeader;
  readonly responseHeader: Headers;
  /** Aborts when nobody waits for the answer any more: what has not begun then need not begin. */
  readonly signal: AbortSignal;
}

/** What a method does, and what belongs to it. */
export interface Method<Input = unknown, Output = unknown> {
  /** The allowance that its requests are counted against, by its name in the rate limit's configuration. */
  readonly ratePolicy: string;
  /**
   * The faults of a request that has the right shape. `run` refuses a request that has any: doors ask only to name them
   * together with the faults of shape.
   */
  violations?(request: Input, values: ContextValues): FieldViolation[];
  /** Serves a request. What it throws is a `ServiceError`, or is answered as `internal`. */
  run(request: Input, context: CallContext): Promise<Output>;
}

/** One object for each method of a service, by the names of its descriptor. */
export type MethodsOf<Service extends DescService> = {
  readonly [Name in keyof Service['method']]: Service['method'][Name] extends DescMethodUnary<
    infer Input,
    infer Output
  >
    ? Method<MessageShape<Input>, MessageShape<Output>>
    : never;
};

/** A service of the contract with what serves it. */
export interface ServedService {
  readonly desc: DescService;
  readonly methods: ReadonlyMap<DescMethodUnary, Method>;
}

/**
 * Puts a service of the contract and its methods together. A missing or surplus method does not compile, and throws where
 * the compiler cannot see it: a contract that is only half served never starts.
 */
export function implementService<Service extends DescService>(
  desc: Service,
  methods: MethodsOf<Service>,
): ServedService {
  const given = new Map(Object.entries<Method>(methods));
  const served = new Map<DescMethodUnary, Method>();
  for (const method of desc.methods) {
    const implementation = given.get(method.localName);
    if (implementation === undefined) throw new Error(`${nameOf(method)} is not implemented`);
    if (!isUnary(method)) throw new Error(`${nameOf(method)} streams, which no door serves yet`);
    given.delete(method.localName);
    served.set(method, implementation);
  }
  const [surplus] = given.keys();
  if (surplus !== undefined) throw new Error(`${desc.typeName} has no method ${surplus}`);
  return { desc, methods: served };
}

function nameOf(method: DescMethod): string {
  return `${method.parent.typeName}.${method.name}`;
}
