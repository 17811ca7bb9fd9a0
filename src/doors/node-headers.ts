import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Http2ServerRequest, Http2ServerResponse } from 'node:http2';

export type NodeRequest = IncomingMessage | Http2ServerRequest;
export type NodeResponse = ServerResponse | Http2ServerResponse;

/** The scheme and authority of a target in absolute form, as a proxy is asked (RFC 9112, section 3.2.2). */
const absoluteForm = /^https?:\/\/[^/?#]*/i;

/** The path that is asked for, without its query. */
export function pathOf({ url = '' }: NodeRequest): string {
  let target = url;
  if (!target.startsWith('/')) {
    target = target.replace(absoluteForm, '');
    // An empty path means the root.
    if (target !== url && !target.startsWith('/')) target = `/${target}`;
  }
  const query = target.indexOf('?');
  return query === -1 ? target : target.slice(0, query);
}

/** How often a header was sent. */
export function countOf(request: NodeRequest, lowerCaseName: string): number {
  let count = 0;
  for (let i = 0; i < request.rawHeaders.length; i += 2) {
    if (request.rawHeaders[i]?.toLowerCase() === lowerCaseName) count++;
  }
  return count;
}

/**
 * All headers of a request. A header that came more than once is joined, `Authorization` too: Node's own
 * `headers` would keep the first and hide that there were two.
 */
export function headersOf(request: NodeRequest): Headers {
  return headersFrom(request.rawHeaders);
}

/** The same from names and values in turn, as Node keeps them. */
export function headersFrom(rawHeaders: readonly string[]): Headers {
  const headers = new Headers();
  for (let i = 0; i + 1 < rawHeaders.length; i += 2) {
    const name = rawHeaders[i] as string;
    // HTTP/2 has its pseudo-headers among them.
    if (!name.startsWith(':')) headers.append(name, rawHeaders[i + 1] as string);
  }
  return headers;
}
