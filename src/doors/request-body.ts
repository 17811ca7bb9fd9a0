import { constants, type Http2Stream } from 'node:http2';
import type { Readable } from 'node:stream';
import { maxBodyBytes, requestIsLate } from '../contract/limits.ts';
import { ServiceError } from '../requests/errors.ts';
import type { RawHeaders } from '../requests/request-header.ts';
import type { NodeRequest } from './node-headers.ts';

/** Of a body that nobody will read, this much is let in, so that the client can still read its answer. */
const maxDiscardedBytes = 1024 * 1024;
const maxDiscardMs = 5_000;

/** The client went away before its request was whole. There is nobody to answer. */
export class ClientGone extends Error {}

/** True if the request says that it has a body. */
export function hasBody(request: NodeRequest, header: RawHeaders): boolean {
  const length = header.get('content-length');
  if ('stream' in request) return !request.stream.endAfterHeaders && length !== '0';
  return header.get('transfer-encoding') !== null || (length !== null && length !== '0');
}

/** Throws `body_too_large` if the request says so of its body. */
export function assertDeclaredSize(header: RawHeaders): void {
  if (Number(header.get('content-length')) > maxBodyBytes) throw new ServiceError('body_too_large');
}

/**
 * Reads a whole body, counting while it streams. Throws `body_too_large` at the first byte over the limit, and
 * `invalid_body` where it takes longer than the time given.
 */
export function readBody(request: NodeRequest, timeoutMs: number): Promise<Buffer> {
  if (request.destroyed) return Promise.reject(new ClientGone());
  const whole = wholeBody(request);
  if (whole !== undefined) return Promise.resolve(whole);
  return new Promise((resolve, reject) => {
    const chunks: Buffer[] = [];
    let bytes = 0;
    // Over HTTP/1 the server itself minds the time.
    const timer = 'stream' in request ? setTimeout(() => onLate(), timeoutMs) : undefined;
    const settle = () => {
      clearTimeout(timer);
      request.off('data', onData).off('end', onEnd).off('error', onGone).off('close', onGone);
    };
    const onData = (chunk: Buffer) => {
      bytes += chunk.length;
      if (bytes > maxBodyBytes) {
        settle();
        reject(new ServiceError('body_too_large'));
        return;
      }
      chunks.push(chunk);
    };
    const onEnd = () => {
      settle();
      resolve(chunks.length === 1 ? (chunks[0] as Buffer) : Buffer.concat(chunks, bytes));
    };
    const onGone = () => {
      settle();
      reject(new ClientGone());
    };
    const onLate = () => {
      settle();
      reject(new ServiceError('invalid_body', { message: requestIsLate }));
    };
    request.on('data', onData).on('end', onEnd).on('error', onGone).on('close', onGone);
  });
}

/** The body of a request of HTTP/1 that has arrived whole, as nearly all have: reading it needs no listeners. */
function wholeBody(request: NodeRequest): Buffer | undefined {
  if ('stream' in request || !request.complete || request.readableFlowing !== null) return undefined;
  if (request.readableLength > maxBodyBytes) return undefined;
  return (request.read() as Buffer | null) ?? undefined;
}

/**
 * Lets the rest of a refused body run out unread, so that closing the connection does not take the answer with
 * it; a client that sends more than the limits allow is cut off.
 */
export function discardBody(request: NodeRequest): void {
  // Of HTTP/1, Node itself drops what has arrived whole.
  if (!('stream' in request) && request.complete) return;
  // Node's HTTP/2 request stops reading for good when it is destroyed half read; the stream under it does not.
  discardStream('stream' in request ? request.stream : request);
}

/** The same for the stream itself. */
export function discardStream(source: Readable): void {
  if (source.readableEnded || source.destroyed) return;
  let bytes = 0;
  const cut = () => source.destroy();
  const timer = setTimeout(cut, maxDiscardMs).unref();
  source
    .on('data', (chunk: Buffer) => {
      bytes += chunk.length;
      if (bytes > maxDiscardedBytes) cut();
      else source.resume();
    })
    .on('error', () => {})
    .once('close', () => clearTimeout(timer))
    .once('end', () => clearTimeout(timer));
  source.resume();
}

/**
 * Ends a stream of HTTP/2 that is open for longer than its request may take to arrive and its answer to be taken,
 * each. Returns what lets it stay open after all.
 */
export function limitStream(stream: Http2Stream, requestTimeoutMs: number): () => void {
  const timer = setTimeout(() => stream.close(constants.NGHTTP2_CANCEL), 2 * requestTimeoutMs);
  const remove = () => clearTimeout(timer);
  stream.once('close', remove);
  return remove;
}
