// Connect ignores the flags of an envelope that it does not know, and a second prefix whose message is missing. What else
// a message may be is for protobuf-es to say.

import { Code, ConnectError } from '@connectrpc/connect';
import type { UniversalServerRequest } from '@connectrpc/connect/protocol';
import { callIsUnreadable } from './catalogue-errors.ts';

/** The size of the flag and the length that precede a message, in all protocols but unary Connect. */
const envelopeBytes = 5;
const enveloped = /^application\/(?:grpc|connect\+)/;

/** Returns the request of a method that takes one message. Its body throws at its end unless it was one envelope. */
export function withOneMessage(request: UniversalServerRequest): UniversalServerRequest {
  const isEnveloped = enveloped.test(request.header.get('content-type') ?? '');
  return isEnveloped ? { ...request, body: oneEnvelope(request.body as AsyncIterable<Uint8Array>) } : request;
}

async function* oneEnvelope(body: AsyncIterable<Uint8Array>): AsyncIterable<Uint8Array> {
  let head = Buffer.alloc(0);
  let length = 0;
  for await (const chunk of body) {
    if (head.length < envelopeBytes) head = Buffer.concat([head, chunk]).subarray(0, envelopeBytes);
    length += chunk.length;
    yield chunk;
  }
  if (head.length < envelopeBytes) return;
  if (head.readUInt8() > 1 || length > envelopeBytes + head.readUInt32BE(1)) {
    throw new ConnectError(callIsUnreadable, Code.InvalidArgument);
  }
}
