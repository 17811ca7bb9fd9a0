import type { createApiKeys } from '../merchants/api-keys.ts';
import { ServiceError } from '../requests/errors.ts';
import type { Authenticate } from '../requests/method.ts';
import type { Identity, OpenedIntent, RequestContext } from '../requests/request-context.ts';
import type { RequestHeader } from '../requests/request-header.ts';

/**
 * Authenticates requests by Bearer API key and notes the identity in the context. Throws `api_key_missing`
 * without a key, and the same `api_key_invalid` for a malformed, unknown, revoked or expired one.
 */
export function authenticateByKey(apiKeys: ReturnType<typeof createApiKeys>): Authenticate<Identity> {
  return async (context, header) => {
    const apiKey = bearerIn(header.get('authorization'));
    if (apiKey === undefined) throw keyMissing(header);
    const identity = await apiKeys.identify(apiKey, context);
    if (identity === undefined) throw new ServiceError('api_key_invalid');
    context.identity = identity;
    context.onIssuedKey?.();
    return identity;
  };
}

/**
 * Authenticates requests by the client secret of an intent, or throws `client_secret_invalid`. Before that,
 * it calls `onRefused`, which may throw another refusal, because anybody can make up a secret.
 */
export function authenticateBySecret(
  intentOpenedBy: (clientSecret: string) => OpenedIntent | undefined,
  onRefused: (context: RequestContext) => void,
): Authenticate<OpenedIntent> {
  return (context, header) => {
    const opened = intentOpenedBy(bearerIn(header.get('authorization')) ?? '');
    if (opened === undefined) {
      onRefused(context);
      throw new ServiceError('client_secret_invalid');
    }
    context.openedIntent = opened;
    return opened;
  };
}

/** Schemes of other services. Only these are repeated in a message: any other first word may be the key. */
const otherSchemes = ['Basic', 'Token', 'ApiKey', 'Digest', 'Key'];

/** Returns the refusal of a request without a Bearer key. It says where a key was found instead. */
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
  return new ServiceError('api_key_missing', { ...(message !== undefined && { message }) });
}

/** The scheme ends at the first whitespace. */
const bearer = /^bearer(?=\s|$)[ \t]*(.*)$/i;

/** The credential of an Authorization header, or undefined if there is none. */
function bearerIn(authorization: string | null): string | undefined {
  const credential = bearer.exec(authorization ?? '')?.[1];
  return credential === '' ? undefined : credential;
}
