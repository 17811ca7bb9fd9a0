// Connect refuses some calls before our gates and interceptors run: unreadable messages, messages too large, unknown
// compressions. This file reads Connect's answer and adds the details of the catalogue, in the error format of each of
// its three protocols.

import { ConnectError } from '@connectrpc/connect';
import {
  createAsyncIterable,
  encodeEnvelope,
  type UniversalServerResponse,
} from '@connectrpc/connect/protocol';
import { codeToHttpStatus, errorFromJsonBytes, errorToJsonBytes } from '@connectrpc/connect/protocol-connect';
import { findTrailerError, setTrailerStatus } from '@connectrpc/connect/protocol-grpc';
import { trailerFlag, trailerParse, trailerSerialize } from '@connectrpc/connect/protocol-grpc-web';

/** True for the content type of gRPC proper, whose errors are HTTP trailers. */
export const isGrpc = (contentType: string) => /^application\/grpc(?:$|[+;])/.test(contentType);
/** True for gRPC-Web, whose trailers are the last frame of the body. */
const isGrpcWeb = (contentType: string) => /^application\/grpc-web(?:$|[+;])/.test(contentType);

/** Returns the error in the answer to a unary call, if any, and an answer whose body can still be sent. */
export async function failureOf(
  response: UniversalServerResponse,
): Promise<{ response: UniversalServerResponse; error: ConnectError | undefined }> {
  const contentType = response.header?.get('content-type') ?? '';
  if (isGrpc(contentType)) {
    return { response, error: findTrailerError(response.trailer ?? new Headers()) };
  }
  if (isGrpcWeb(contentType)) {
    const body = await readAll(response.body);
    return { response: { ...response, body: createAsyncIterable([body]) }, error: errorInGrpcWebBody(body) };
  }
  if (response.status === 200) return { response, error: undefined };
  const body = await readAll(response.body);
  const unreadable = new ConnectError(`HTTP ${response.status}`);
  return {
    response: { ...response, body: createAsyncIterable([body]) },
    error: errorFromJsonBytes(body, undefined, unreadable),
  };
}

/** Returns the same answer with another error in it. */
export function withFailure(response: UniversalServerResponse, error: ConnectError): UniversalServerResponse {
  const header = new Headers(response.header);
  const contentType = header.get('content-type') ?? '';
  const trailer = trailerOf(error);
  if (isGrpc(contentType)) return { ...response, body: createAsyncIterable([]), trailer };
  header.delete('content-encoding');
  if (isGrpcWeb(contentType)) {
    const frame = encodeEnvelope(trailerFlag, trailerSerialize(trailer));
    return { ...response, header, body: createAsyncIterable([frame]) };
  }
  const body = errorToJsonBytes(error, undefined);
  header.set('content-type', 'application/json');
  header.set('content-length', String(body.byteLength));
  return { status: codeToHttpStatus(error.code), header, body: createAsyncIterable([body]) };
}

/** The trailers of a call over gRPC or gRPC-Web that has failed. */
export function trailerOf(error: ConnectError): Headers {
  return encodeGrpcMessage(setTrailerStatus(new Headers(), error));
}

/** Returns the answer with `grpc-message` encoded as clients decode it. */
export function withReadableMessage(response: UniversalServerResponse): UniversalServerResponse {
  const { body, trailer } = response;
  if (body === undefined || trailer === undefined) return response;
  // Connect sets the trailers at the end of the body.
  async function* untilTrailer(): AsyncIterable<Uint8Array> {
    yield* body as AsyncIterable<Uint8Array>;
    encodeGrpcMessage(trailer as Headers);
  }
  return { ...response, body: untilTrailer() };
}

/** Connect also encodes `: / , ;` and others in `grpc-message`, which `@grpc/grpc-js` does not decode. */
function encodeGrpcMessage(trailer: Headers): Headers {
  const message = trailer.get('grpc-message');
  if (message !== null) trailer.set('grpc-message', encodeURI(decodeURIComponent(message)));
  return trailer;
}

async function readAll(body: UniversalServerResponse['body']): Promise<Uint8Array> {
  const chunks: Uint8Array[] = [];
  for await (const chunk of body ?? []) chunks.push(chunk);
  return Buffer.concat(chunks);
}

/** gRPC-Web carries its trailers as the last frame of the body. */
function errorInGrpcWebBody(body: Uint8Array): ConnectError | undefined {
  const view = new DataView(body.buffer, body.byteOffset, body.byteLength);
  for (let at = 0; at + 5 <= body.byteLength; ) {
    const length = view.getUint32(at + 1);
    // A compressed trailer is skipped: none of Connect's own refusals is long enough to be compressed.
    if (body[at] === trailerFlag) {
      return findTrailerError(trailerParse(body.subarray(at + 5, at + 5 + length)));
    }
    at += 5 + length;
  }
  return undefined;
}
