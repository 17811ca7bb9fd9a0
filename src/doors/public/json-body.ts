import type { ServerResponse } from 'node:http';
import { IJsonError, type IJsonValue, parseIJson } from '../../contract/json/i-json.ts';
import { maxBodyBytes } from '../../contract/limits.ts';
import { ServiceError } from '../../requests/errors.ts';
import type { RequestContext } from '../../requests/request-context.ts';
import type { RawHeaders } from '../../requests/request-header.ts';
import type { NodeRequest, NodeResponse } from '../node-headers.ts';
import { PacedSocket } from '../paced-socket.ts';
import { readBody } from '../request-body.ts';

const utf8 = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });

/**
 * Reads a JSON body. Throws `unsupported_media_type` if the headers do not say that it is JSON,
 * `body_too_large`, and `invalid_body` if it takes longer than the timeout. With `mayBeEmpty`, an empty body
 * may have any type.
 */
export async function readJsonBytes(
  { request, header, response }: { request: NodeRequest; header: RawHeaders; response: NodeResponse },
  timeoutMs: number,
  { mayBeEmpty = false } = {},
): Promise<Buffer> {
  // Only the end of a body of unknown length, as proxies announce it, shows whether it is empty.
  const isJudgedLater = mayBeEmpty && header.get('content-length') === null;
  if (!isJudgedLater) assertJson(header);
  if (Number(header.get('content-length')) > maxBodyBytes) throw new ServiceError('body_too_large');
  // HTTP/1.0 has no interim answers.
  if (header.get('expect') !== null && request.httpVersion !== '1.0') response.writeContinue();
  const bytes = await readBody(request, timeoutMs);
  if (isJudgedLater && bytes.length > 0) assertJson(header);
  return bytes;
}

/** The content type that nearly every client sends. */
const plainJson = 'application/json';

function assertJson(header: RawHeaders): void {
  const contentType = header.get('content-type') ?? '';
  const encoding = header.get('content-encoding') ?? 'identity';
  const [mediaType, ...parameters] =
    contentType === plainJson ? [plainJson] : contentType.toLowerCase().split(';');
  const isUtf8 = parameters.every((parameter) => /^(?:charset="?utf-?8"?)?$/.test(parameter.trim()));
  if (mediaType?.trim() !== plainJson || !isUtf8 || encoding.toLowerCase() !== 'identity') {
    throw new ServiceError('unsupported_media_type', {
      message:
        'The body has to be JSON in UTF-8 without any content encoding. Send Content-Type: application/json.',
      httpHeaders: { Accept: plainJson },
    });
  }
}

/** Parses the JSON of a request strictly. Throws `invalid_body` with the problem and its position. */
export function parseJsonBody(body: Uint8Array): IJsonValue {
  let text: string;
  try {
    text = utf8.decode(body);
  } catch (cause) {
    throw new ServiceError('invalid_body', { message: 'The request body is not UTF-8 text.', cause });
  }
  try {
    return parseIJson(text);
  } catch (cause) {
    if (!(cause instanceof IJsonError)) throw cause;
    throw new ServiceError('invalid_body', { message: `The request body ${cause.message}.`, cause });
  }
}

export interface JsonAnswer {
  status: number;
  /** Omitted in a 204 and a 304. */
  body: string;
  headers: Iterable<[string, string]>;
}

/** Sends a JSON text. Closes the connection while the service is draining. */
export function sendJson(
  { request, response, context }: { request: NodeRequest; response: NodeResponse; context: RequestContext },
  { status, body, headers }: JsonAnswer,
  isDraining = () => false,
): void {
  const hasBody = status !== 204 && status !== 304;
  const all = hasBody
    ? ['Content-Type', 'application/json', 'Content-Length', String(Buffer.byteLength(body))]
    : [];
  all.push('Cache-Control', 'no-store', 'X-Request-Id', context.requestId);
  for (const [name, value] of headers) all.push(name, value);
  if (isLastAnswer(request, isDraining)) all.push('Connection', 'close');
  (response as ServerResponse).writeHead(status, all);
  // As a string, which Node sends together with the head.
  response.end(body);
}

/** True if the answer has to close its connection, and loses no other by that. HTTP/2 uses GOAWAY for this. */
export function isLastAnswer({ socket }: NodeRequest, isDraining: () => boolean): boolean {
  return isDraining() && socket instanceof PacedSocket && socket.isLastRequest;
}
