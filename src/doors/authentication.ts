import type { DescMethod } from '@bufbuild/protobuf';
import { getOption } from '@bufbuild/protobuf';
import type { ContextValues, Interceptor } from '@connectrpc/connect';
import { json_method } from '../contract/gen/payments/v1/json_pb.ts';
import type { ApiKeys } from '../merchants/api-keys.ts';
import { plainRefusal, ServiceError } from '../requests/errors.ts';
import {
  type Identity,
  isStranger,
  type OpenedIntent,
  type RequestContext,
  requestContextOf,
} from '../requests/request-context.ts';
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

/** For methods that take an intent's client secret. */
export interface ClientSecrets {
  /** The intent that a client secret opens, or undefined. */
  intentOpenedBy: (clientSecret: string) => OpenedIntent | undefined;
  /** Called before one is refused, which anybody can make up. May throw another refusal. */
  onRefused: (values: ContextValues, method: DescMethod) => void;
}

/** True for a method that takes an intent's client secret, and no API key. */
export function takesClientSecret(method: DescMethod): boolean {
  // Reading an option takes as long as much of a request.
  const known = clientSecretMethods.get(method);
  if (known !== undefined) return known;
  const takes = getOption(method, json_method).takesClientSecret;
  clientSecretMethods.set(method, takes);
  return takes;
}

const noClientSecrets: ClientSecrets = { intentOpenedBy: () => undefined, onRefused: () => {} };

const clientSecretMethods = new WeakMap<DescMethod, boolean>();

/**
 * Authenticates requests by their Bearer API key and records the key's identity in the request context. Throws
 * `api_key_missing` if there is no key, and the same `api_key_invalid` whether the key is malformed, unknown, revoked or
 * expired. A method that takes a client secret instead gets the intent that it opens, or throws `client_secret_invalid`.
 */
export function createAuthentication(
  apiKeys: ApiKeys,
  { intentOpenedBy, onRefused }: ClientSecrets = noClientSecrets,
): Authentication {
  const authenticateKey = (context: RequestContext, header: RequestHeader): void | Promise<void> => {
    const accept = (identity: Identity | undefined) => {
      if (identity === undefined) throw plainRefusal('api_key_invalid');
      context.identity = identity;
      context.onIssuedKey?.();
    };
    const apiKey = bearerIn(header.get('authorization'));
    if (apiKey === undefined) throw keyMissing(header);
    const identity = apiKeys.identify(apiKey, context);
    if (identity instanceof Promise) return identity.then(accept);
    accept(identity);
  };
  const authenticate = ({ method, values, requestHeader }: GateContext): void | Promise<void> => {
    const context = requestContextOf(values);
    if (!takesClientSecret(method)) return authenticateKey(context, requestHeader);
    const opened = intentOpenedBy(bearerIn(requestHeader.get('authorization')) ?? '');
    if (opened === undefined) {
      onRefused(values, method);
      throw plainRefusal('client_secret_invalid');
    }
    context.openedIntent = opened;
    context.onIssuedKey?.();
  };
  return {
    gate: authenticate,
    interceptor: (next) => async (request) => {
      const { contextValues: values, method } = request;
      // The headers are made into an object when they are first asked for, which takes longer than a method does.
      if (isStranger(requestContextOf(values))) {
        await authenticate({ method, values, requestHeader: request.header });
      }
      return next(request);
    },
  };
}

/** Schemes that other services take. Only these are repeated: what stands in place of a scheme may be the key itself. */
const otherSchemes = ['Basic', 'Token', 'ApiKey', 'Digest', 'Key'];

/** The refusal of a request without a Bearer key: says where a key was found instead. */
function keyMissing(header: RequestHeader): ServiceError {
  const authorization = header.get('authorization') ?? '';
  const given = /^[^\s]+/.exec(authorization)?.[0] ?? '';
  const scheme = otherSchemes.find((known) => known.toLowerCase() === given.toLowerCase());
  const message =
    scheme !== undefined
      ? `The Authorization header has the scheme ${scheme}. Send your secret key with the scheme Bearer instead.`
      : given.startsWith('sk_')
        ? 'The Authorization header has no scheme. Put Bearer and a space before the key.'
        : authorization === '' && header.get('x-api-key') !== null
          ? 'The key is not read from the header X-Api-Key. Send it in the Authorization header with the scheme Bearer.'
          : undefined;
  return message === undefined
    ? plainRefusal('api_key_missing')
    : new ServiceError('api_key_missing', { message });
}

/** The scheme ends at the first whitespace. */
const bearer = /^bearer(?=\s|$)[ \t]*(.*)$/i;

/** The credential of an Authorization header, or undefined if there is none. */
function bearerIn(authorization: string | null): string | undefined {
  const credential = bearer.exec(authorization ?? '')?.[1];
  return credential === '' ? undefined : credential;
}
