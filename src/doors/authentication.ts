import type { ContextValues, Interceptor } from '@connectrpc/connect';
import type { ApiKeys } from '../merchants/api-keys.ts';
import { ServiceError } from '../requests/errors.ts';
import { type Identity, type RequestContext, requestContextOf } from '../requests/request-context.ts';

/** The part of a Connect HandlerContext that authentication needs, so that every door can offer it. */
export interface GateContext {
  readonly values: ContextValues;
  readonly requestHeader: Headers;
}

export interface Authentication {
  /** Connect's request gate: authenticates from the headers alone, before the body is read. */
  gate(context: GateContext): Promise<void>;
  /** Authenticates what came past no gate, so that no door can forget to. */
  interceptor: Interceptor;
}

/**
 * Authenticates requests by their Bearer API key and notes whom the key stands for in the request context.
 * Throws `api_key_missing` where there is none, and one and the same `api_key_invalid` where it is malformed,
 * unknown, revoked or expired.
 */
export function createAuthentication(apiKeys: ApiKeys): Authentication {
  const authenticate = async (values: ContextValues, header: Headers) => {
    const context = requestContextOf(values);
    if (context.identity !== undefined) return;
    context.identity = await identify(apiKeys, header.get('authorization'), context);
    context.onIdentified?.();
  };
  return {
    gate: (context) => authenticate(context.values, context.requestHeader),
    interceptor: (next) => async (request) => {
      await authenticate(request.contextValues, request.header);
      return next(request);
    },
  };
}

async function identify(
  apiKeys: ApiKeys,
  authorization: string | null,
  context: RequestContext,
): Promise<Identity> {
  const [, scheme, credentials] = /^(\S*)[ \t]*(.*)$/.exec(authorization ?? '') ?? [];
  if (scheme?.toLowerCase() !== 'bearer') throw new ServiceError('api_key_missing');
  if (credentials === undefined || credentials === '') throw new ServiceError('api_key_missing');
  const identity = await apiKeys.identify(credentials, context);
  if (identity === undefined) throw new ServiceError('api_key_invalid');
  return identity;
}
