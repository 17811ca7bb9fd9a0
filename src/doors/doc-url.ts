import { docPathOf, type ErrorCode } from '../contract/error-catalogue.ts';
import type { RequestHeader } from '../requests/request-header.ts';

/** A name or address with or without a port, and nothing that could be more than that in a link. */
const plainHost = /^(?:[\w.-]{1,253}|\[[\da-f:.]{2,45}\])(?::\d{1,5})?$/i;

/**
 * The address of an error's entry on the reference page, as its client reaches this service: by the host that the request
 * names, over https if the service or a proxy in front of it speaks TLS. Relative if the host is not known.
 */
export function docUrlOf(
  code: ErrorCode,
  header: RequestHeader | undefined,
  scheme: 'http' | 'https',
): string {
  const host = header?.get(':authority') ?? header?.get('host') ?? '';
  if (!plainHost.test(host)) return docPathOf(code);
  const isTls = scheme === 'https' || header?.get('x-forwarded-proto') === 'https';
  return `${isTls ? 'https' : 'http'}://${host}${docPathOf(code)}`;
}
