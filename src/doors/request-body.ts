import { constants, type Http2Stream } from 'node:http2';
import type { Readable } from 'node:stream';
import { maxBodyBytes, requestIsLate } from '../contract/limits.ts';
import { ServiceError } from '../requests/errors.ts';
import type { RawHeaders } from '../requests/request-header.ts';
import type { NodeRequest } from './node-headers.ts';

/** Bytes of an unused body that are still accepted, so that the client can read its answer. */
const maxDiscardedBytes = 1024 * 1024;
const maxDiscardMs = 5_000;

/** The client disconnected before its request was complete. It cannot be answered. */
export class ClientGone extends Error {}

/** True if the headers announce a body. */
export function hasBody(request: NodeRequest, header: RawHeaders): boolean {
  const length = header.get('content-length');
  if ('stream' in request) return !request.stream.endAfterHeaders && length !== '0';
  return header.get('transfer-encoding') !== null || (length !== null && length !== '0');
}

/**
 * Reads a whole body, counting bytes as they arrive. Throws `body_too_large` at the first byte over the
 * limit, and `invalid_body` on timeout.
 */
export function readBody(request: NodeRequest, timeoutMs: number): Promise<Buffer> {
  if (request.destroyed) return Promise.reject(new ClientGone());
  const whole = wholeBody(request);
  if (whole !== undefined) return Promise.resolve(whole);
  return new Promise((resolve, reject) => {
    const chunks: Buffer[] = [];
    let bytes = 0;
    // Over HTTP/1 the server itself enforces the timeout.
    const timer =
      'stream' in request
        ? setTimeout(() => fail(new ServiceError('invalid_body', { message: requestIsLate })), timeoutMs)
        : undefined;
    const settle = () => {
      clearTimeout(timer);
      request.off('data', onData).off('end', onEnd).off('error', onGone).off('close', onGone);
    };
    const fail = (error: Error) => {
      settle();
      reject(error);
    };
    const onData = (chunk: Buffer) => {
      bytes += chunk.length;
      if (bytes > maxBodyBytes) fail(new ServiceError('body_too_large'));
      else chunks.push(chunk);
    };
    const onEnd = () => {
      settle();
      resolve(chunks.length === 1 ? (chunks[0] as Buffer) : Buffer.concat(chunks, bytes));
    };
    const onGone = () => fail(new ClientGone());
    request.on('data', onData).on('end', onEnd).on('error', onGone).on('close', onGone);
  });
}

/** The body of an HTTP/1 request that has arrived completely, as nearly all have. Needs no listeners. */
function wholeBody(request: NodeRequest): Buffer | undefined {
  if ('stream' in request || !request.complete || request.readableFlowing !== null) return undefined;
  if (request.readableLength > maxBodyBytes) return undefined;
  return (request.read() as Buffer | null) ?? undefined;
}

/**
 * Reads and drops the rest of an unused body, so that the answer is not lost when the connection closes. Cuts
 * off a client that sends more than the limits allow.
 */
export function discardBody(request: NodeRequest): void {
  // For HTTP/1, Node itself drops a body that has arrived completely.
  if (!('stream' in request) && request.complete) return;
  // Node's HTTP/2 request stops reading for good if it is destroyed half read; its stream does not.
  discardStream('stream' in request ? request.stream : request);
}

/** Does the same for a stream. */
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

/** Cancels an HTTP/2 stream after twice the request timeout. Returns a function that removes the limit. */
export function limitStream(stream: Http2Stream, requestTimeoutMs: number): () => void {
  const timer = setTimeout(() => stream.close(constants.NGHTTP2_CANCEL), 2 * requestTimeoutMs);
  const remove = () => clearTimeout(timer);
  stream.once('close', remove);
  return remove;
}
