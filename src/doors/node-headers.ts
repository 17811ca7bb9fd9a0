import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Http2ServerRequest, Http2ServerResponse } from 'node:http2';

export type NodeRequest = IncomingMessage | Http2ServerRequest;
export type NodeResponse = ServerResponse | Http2ServerResponse;

/** The path that is asked for, without its query. */
export function pathOf({ url = '' }: NodeRequest): string {
  const query = url.indexOf('?');
  return query === -1 ? url : url.slice(0, query);
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
