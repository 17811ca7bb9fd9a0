import type { Readable } from 'node:stream';
import { ServiceError } from '../errors.ts';
import type { NodeRequest } from './node-headers.ts';

/** Largest request body or message, in bytes. */
export const maxBodyBytes = 64 * 1024;
/** Of a body that nobody will read, this much is let in, so that the client can still read its answer. */
const maxDiscardedBytes = 1024 * 1024;
const maxDiscardMs = 5_000;

/** The client went away before its request was whole. There is nobody to answer. */
export class ClientGone extends Error {}

/** Reads a whole body, counting while it streams. Throws `body_too_large` at the first byte over the limit. */
export function readBody(request: NodeRequest): Promise<Buffer> {
  if (request.destroyed) return Promise.reject(new ClientGone());
  if (Number(request.headers['content-length']) > maxBodyBytes) {
    return Promise.reject(new ServiceError('body_too_large'));
  }
  return new Promise((resolve, reject) => {
    const chunks: Buffer[] = [];
    let bytes = 0;
    const settle = () => {
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
    request.on('data', onData).on('end', onEnd).on('error', onGone).on('close', onGone);
  });
}

/**
 * Lets the rest of a refused body run out unread, so that closing the connection does not take the answer with
 * it; a client that sends more than the limits allow is cut off.
 */
export function discardBody(request: NodeRequest): void {
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
