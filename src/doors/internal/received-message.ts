// Connect accepts more than one whole message, and protobuf-es drops some of what it reads in a Struct. So a call through
// Connect that carries one message is read and looked at before they see it, as plain gRPC calls are.

import { Code, ConnectError } from '@connectrpc/connect';
import type { Compression, UniversalServerRequest } from '@connectrpc/connect/protocol';
import { compressionBrotli, compressionGzip } from '@connectrpc/connect-node';
import { maxBodyBytes } from '../../contract/limits.ts';
import { callIsUnreadable, notOneMessage } from './catalogue-errors.ts';
import type { StructCheck } from './struct-check.ts';

/** The size of the flag and the length that precede a message in all protocols but unary Connect. */
const envelopeBytes = 5;
const binaryContentType = /^application\/(?:grpc(?:-web)?(?:\+proto)?|proto)(?:;|$)/;

/** A message that cannot be decompressed is the sender's fault, not an internal error. */
export const compressions: Compression[] = [compressionGzip, compressionBrotli].map((compression) => ({
  ...compression,
  decompress: (bytes, readMaxBytes) =>
    compression.decompress(bytes, readMaxBytes).catch((reason) => {
      const { code, rawMessage } = ConnectError.from(reason);
      if (code === Code.ResourceExhausted) throw reason;
      throw new ConnectError(rawMessage, Code.InvalidArgument, undefined, undefined, reason);
    }),
}));

/** Returns the request of a method that takes one message. Its body is in one piece, and refused if it is not valid. */
export function withWholeBody(
  request: UniversalServerRequest,
  check: StructCheck | undefined,
): UniversalServerRequest {
  const { header, body } = request;
  const contentType = header.get('content-type') ?? '';
  const isBinary = binaryContentType.test(contentType);
  const isGrpc = contentType.startsWith('application/grpc');
  const isEnveloped = isGrpc || contentType.startsWith('application/connect+');
  if ((!isBinary && !isEnveloped) || !isBytes(body)) return request;
  const encoding = header.get(isGrpc ? 'grpc-encoding' : 'content-encoding');
  const compression = compressions.find(({ name }) => name === encoding);
  return { ...request, body: whole(body, isEnveloped, compression, isBinary ? check : undefined) };
}

function isBytes(body: UniversalServerRequest['body']): body is AsyncIterable<Uint8Array> {
  return typeof body === 'object' && body !== null && Symbol.asyncIterator in body;
}

async function* whole(
  body: AsyncIterable<Uint8Array>,
  isEnveloped: boolean,
  compression: Compression | undefined,
  check: StructCheck | undefined,
): AsyncIterable<Uint8Array> {
  const bytes = await readWhole(body);
  const isCut = isEnveloped && bytes.length < envelopeBytes;
  // Connect ignores flags that it does not know, and a second prefix whose message is missing.
  if (isEnveloped && !isCut) {
    if (bytes.readUInt8() > 1) throw new ConnectError(callIsUnreadable, Code.InvalidArgument);
    const end = envelopeBytes + bytes.readUInt32BE(1);
    if (bytes.length > end) throw new ConnectError(notOneMessage, Code.Unimplemented);
  }
  if (check !== undefined && !isCut) {
    const message = bytes.subarray(isEnveloped ? envelopeBytes : 0);
    const isCompressed = !isEnveloped || bytes.readUInt8() === 1;
    const plain = isCompressed && compression ? await compression.decompress(message, maxBodyBytes) : message;
    try {
      check(plain);
    } catch (cause) {
      throw new ConnectError(callIsUnreadable, Code.InvalidArgument, undefined, undefined, cause);
    }
  }
  yield bytes;
}

async function readWhole(body: AsyncIterable<Uint8Array>): Promise<Buffer> {
  const chunks: Uint8Array[] = [];
  let bytes = 0;
  for await (const chunk of body) {
    bytes += chunk.length;
    if (bytes > envelopeBytes + maxBodyBytes) throw new ConnectError('too large', Code.ResourceExhausted);
    chunks.push(chunk);
  }
  return Buffer.concat(chunks, bytes);
}
