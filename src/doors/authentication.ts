import type { DescMethod } from '@bufbuild/protobuf';
import type { ContextValues, Interceptor } from '@connectrpc/connect';
import type { ApiKeys } from '../merchants/api-keys.ts';
import { plainRefusal } from '../requests/errors.ts';
import { type Identity, type RequestContext, requestContextOf } from '../requests/request-context.ts';
import type { RequestHeader } from '../requests/request-header.ts';

/** The part of a Connect HandlerContext that a gate needs. Every door can provide it. */
export interface GateContext {
  readonly method: DescMethod;
  readonly values: ContextValues;
  readonly requestHeader: RequestHeader;
}

/**
 * Admits a request by its headers alone, before the body is read, or throws the refusal. Synchronous if the key is
 * already known well enough to decide; otherwise nearly every request would await several promises for nothing.
 */
export type Gate = (context: GateContext) => void | Promise<void>;

export interface Authentication {
  /** Connect's request gate: authenticates from the headers alone, before the body is read. */
  gate: Gate;
  /** Authenticates requests that passed no gate, so that no door can skip authentication. */
  interceptor: Interceptor;
}

/**
 * Authenticates requests by their Bearer API key and records the key's identity in the request context. Throws
 * `api_key_missing` if there is no key, and the same `api_key_invalid` whether the key is malformed, unknown, revoked
 * or expired.
 */
export function createAuthentication(apiKeys: ApiKeys): Authentication {
  const authenticate = (context: RequestContext, header: RequestHeader): void | Promise<void> => {
    const accept = (identity: Identity | undefined) => {
      if (identity === undefined) throw plainRefusal('api_key_invalid');
      context.identity = identity;
      context.onIdentified?.();
    };
    const apiKey = apiKeyIn(header.get('authorization'));
    const identity = apiKeys.identify(apiKey, context);
    if (identity instanceof Promise) return identity.then(accept);
    accept(identity);
  };
  return {
    gate: ({ values, requestHeader }) => authenticate(requestContextOf(values), requestHeader),
    interceptor: (next) => async (request) => {
      const context = requestContextOf(request.contextValues);
      if (context.identity === undefined) await authenticate(context, request.header);
      return next(request);
    },
  };
}

/** The scheme ends at the first whitespace. */
const bearer = /^bearer(?=\s|$)[ \t]*(.*)$/i;

/** The key of an Authorization header. Throws `api_key_missing` if there is none. */
function apiKeyIn(authorization: string | null): string {
  const apiKey = bearer.exec(authorization ?? '')?.[1];
  if (apiKey === undefined || apiKey === '') throw plainRefusal('api_key_missing');
  return apiKey;
}
