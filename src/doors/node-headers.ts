import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Http2ServerRequest, Http2ServerResponse } from 'node:http2';

export type NodeRequest = IncomingMessage | Http2ServerRequest;
export type NodeResponse = ServerResponse | Http2ServerResponse;

/** The scheme and authority of an absolute-form target, as sent to a proxy (RFC 9112, section 3.2.2). */
const absoluteForm = /^https?:\/\/[^/?#]*/i;

/** The requested path, without its query. */
export function pathOf(request: NodeRequest): string {
  const target = targetOf(request);
  const query = target.indexOf('?');
  return query === -1 ? target : target.slice(0, query);
}

/** The same without a trailing slash: people use both forms. */
export function pathWithoutSlashOf(request: NodeRequest): string {
  const path = pathOf(request);
  return path.length > 1 && path.endsWith('/') ? path.slice(0, -1) : path;
}

/** The requested query, without its question mark; empty if there is none. */
export function queryOf(request: NodeRequest): string {
  const target = targetOf(request);
  const query = target.indexOf('?');
  return query === -1 ? '' : target.slice(query + 1);
}

/** True if `If-None-Match` contains this tag or `*`. Weak and strong tags are equal here. */
export function isNamedIn(ifNoneMatch: string | null | undefined, etag: string): boolean {
  return (ifNoneMatch ?? '').split(',').some((tag) => ['*', etag].includes(tag.trim().replace(/^W\//, '')));
}

function targetOf({ url = '' }: NodeRequest): string {
  let target = url;
  if (!target.startsWith('/')) {
    target = target.replace(absoluteForm, '');
    // An empty path means the root.
    if (target !== url && !target.startsWith('/')) target = `/${target}`;
  }
  return target;
}
