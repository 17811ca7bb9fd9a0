import { docPathOf, type ErrorCode } from '../contract/error-catalogue.ts';
import type { RequestHeader } from '../requests/request-header.ts';

/** A name or address with an optional port. It matches nothing else that could alter a link. */
const plainHost = /^(?:[\w.-]{1,253}|\[[\da-f:.]{2,45}\])(?::\d{1,5})?$/i;

/**
 * Returns the URL of an error's entry on the reference page, with the host of the request. The scheme is
 * https if the service or a proxy in front of it uses TLS. The URL is relative if the host is unknown.
 */
export function docUrlOf(code: ErrorCode, header: RequestHeader | undefined, scheme: 'http' | 'https') {
  return `${addressOf(header, scheme) ?? ''}${docPathOf(code)}`;
}

/** The address at which the client reached this service, without a trailing slash; undefined if unknown. */
export function addressOf(header: RequestHeader | undefined, scheme: 'http' | 'https'): string | undefined {
  const host = header?.get(':authority') ?? header?.get('host') ?? '';
  if (!plainHost.test(host)) return undefined;
  const isTls = scheme === 'https' || header?.get('x-forwarded-proto') === 'https';
  return `${isTls ? 'https' : 'http'}://${host}`;
}
