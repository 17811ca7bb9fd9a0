// protobuf-es drops some of what it reads in a Struct. So the bytes of a call through Connect are kept until they are
// checked, as for plain gRPC calls.

import { promisify } from 'node:util';
import { brotliDecompress, gunzip } from 'node:zlib';
import {
  Code,
  ConnectError,
  type ContextValues,
  createContextKey,
  type Interceptor,
} from '@connectrpc/connect';
import type { UniversalServerRequest } from '@connectrpc/connect/protocol';
import { maxBodyBytes } from '../../contract/limits.ts';
import { ServiceError } from '../../requests/errors.ts';
import { callIsUnreadable } from './catalogue-errors.ts';
import type { StructCheck } from './struct-check.ts';

interface Received {
  chunks: Uint8Array[];
  /** True if a flag and a length precede the message: in all protocols but unary Connect. */
  isEnveloped: boolean;
  /** The encoding of the message, or undefined. */
  encoding: string | undefined;
}

const receivedKey = createContextKey<Received | undefined>(undefined, { description: 'bytes of the call' });

/** The size of the flag and the length. */
const envelopeBytes = 5;
const binaryContentType = /^application\/(?:grpc(?:-web)?(?:\+proto)?|proto)(?:;|$)/;

/**
 * Returns the request of a method that takes one message. If it is a unary call with binary protobuf, its bytes are stored
 * in the context values while they are read.
 */
export function keepReceivedMessage(
  request: UniversalServerRequest,
  values: ContextValues,
): UniversalServerRequest {
  const contentType = request.header.get('content-type') ?? '';
  const { body } = request;
  const isBinary = binaryContentType.test(contentType);
  const isGrpc = contentType.startsWith('application/grpc');
  const isEnveloped = isGrpc || contentType.startsWith('application/connect+');
  if ((!isBinary && !isEnveloped) || !isBytes(body)) return request;
  const encoding = request.header.get(isGrpc ? 'grpc-encoding' : 'content-encoding') ?? undefined;
  const received: Received = { chunks: [], isEnveloped, encoding };
  if (isBinary) values.set(receivedKey, received);
  return { ...request, body: kept(body, received) };
}

function isBytes(body: UniversalServerRequest['body']): body is AsyncIterable<Uint8Array> {
  return typeof body === 'object' && body !== null && Symbol.asyncIterator in body;
}

async function* kept(
  body: AsyncIterable<Uint8Array>,
  { chunks, isEnveloped }: Received,
): AsyncIterable<Uint8Array> {
  for await (const chunk of body) {
    chunks.push(chunk);
    yield chunk;
  }
  // Connect ignores flags that it does not know, and a second prefix whose message is missing.
  const bytes = Buffer.concat(chunks);
  if (!isEnveloped || bytes.length < envelopeBytes) return;
  if (bytes.readUInt8() > 1 || bytes.length > envelopeBytes + bytes.readUInt32BE(1)) {
    throw new ConnectError(callIsUnreadable, Code.InvalidArgument);
  }
}

/**
 * Checks the received bytes of a unary call before the method runs: no stream is asked for with a Struct. Throws
 * `invalid_body` if they are not a valid message of that method.
 */
export function checkReceivedMessage(check: StructCheck): Interceptor {
  return (next) => async (request) => {
    const received = request.contextValues.get(receivedKey);
    if (received === undefined) return next(request);
    try {
      check(await messageOf(received));
    } catch (cause) {
      throw new ServiceError('invalid_body', { message: callIsUnreadable, cause });
    }
    return next(request);
  };
}

/**
 * Returns the bytes of the message. Connect has checked that it is one envelope, within the limits, in a known encoding.
 */
async function messageOf({ chunks, isEnveloped, encoding }: Received): Promise<Uint8Array> {
  const bytes = Buffer.concat(chunks);
  const isCompressed = isEnveloped ? (bytes[0] ?? 0) % 2 === 1 : encoding !== undefined;
  const message = isEnveloped ? bytes.subarray(envelopeBytes, envelopeBytes + bytes.readUInt32BE(1)) : bytes;
  if (!isCompressed || encoding === undefined || encoding === 'identity' || message.length === 0)
    return message;
  const options = { maxOutputLength: maxBodyBytes };
  return encoding === 'br'
    ? promisify(brotliDecompress)(message, options)
    : promisify(gunzip)(message, options);
}
