// The door for our own services: gRPC, gRPC-Web and Connect over HTTP/2. Plain gRPC calls go to
// unary-grpc.ts, all others to ConnectRPC. This file adds what Connect's handlers lack: a request context for
// every call, a log line for every call of the contract's services, and the catalogue's details on refusals
// that Connect makes before any gate or interceptor runs.

import type { IncomingHttpHeaders, ServerHttp2Stream } from 'node:http2';
import { constants, Http2ServerRequest, Http2ServerResponse } from 'node:http2';
import { type DescMessage, type Message, type MessageShape, toJsonString } from '@bufbuild/protobuf';
import type { ConnectRouter, HandlerContext } from '@connectrpc/connect';
import { Code, ConnectError, createConnectRouter, createContextValues } from '@connectrpc/connect';
import {
  type Compression,
  createAsyncIterable,
  type UniversalHandler,
  type UniversalServerRequest,
  type UniversalServerResponse,
} from '@connectrpc/connect/protocol';
import { errorToJsonBytes, parseTimeout as parseConnectTimeout } from '@connectrpc/connect/protocol-connect';
import { parseTimeout as parseGrpcTimeout } from '@connectrpc/connect/protocol-grpc';
import {
  compressionBrotli,
  compressionGzip,
  universalRequestFromNodeRequest,
  universalResponseToNodeResponse,
} from '@connectrpc/connect-node';
import { catalogue, docPathOf, toErrorJson } from '../../contract/error-catalogue.ts';
import { createStandardJsonDecoder } from '../../contract/json/json-codec.ts';
import { maxBodyBytes } from '../../contract/limits.ts';
import { isUnary } from '../../contract/unary.ts';
import { refuseInvalid, ServiceError, toConnectError } from '../../requests/errors.ts';
import type { Method, StreamMethod } from '../../requests/method.ts';
import {
  answerHeaders,
  newRequestContext,
  type RequestContext,
  requestContextKey,
  requestContextOf,
} from '../../requests/request-context.ts';
import { RawHeaders } from '../../requests/request-header.ts';
import { admit, type DoorOptions, operationOf } from '../call.ts';
import { pathOf } from '../node-headers.ts';
import { parseJsonBody } from '../public/json-body.ts';
import { discardBody, limitStream } from '../request-body.ts';
import {
  callIsUnreadable,
  notOneMessage,
  refuseByCatalogue,
  refuseWhatConnectRefuses,
  trailerOf,
  withReadableMessage,
} from './catalogue-errors.ts';
import { admittedCaller, requestGateOf } from './request-gate.ts';
import { createStructCheck, type StructCheck } from './struct-check.ts';
import { createUnaryGrpc } from './unary-grpc.ts';

interface InternalDoorOptions extends DoorOptions {
  /** Registers the services that need no key: health and reflection. */
  openRoutes: (router: ConnectRouter) => void;
  /** Aborts when the service stops, so that endless calls end. */
  shutdownSignal: AbortSignal;
}

/** The internal door's listener for node:http2's `stream` event. There must be no `request` listener too. */
export function createInternalDoor(options: InternalDoorOptions) {
  const plainCallOf = createUnaryGrpc(options);
  const serveByConnect = createConnectDoor(options);
  return (stream: ServerHttp2Stream, headers: IncomingHttpHeaders, _flags: number, rawHeaders: string[]) => {
    // A stream may be reset before its turn comes.
    stream.on('error', () => {});
    const servePlainCall = plainCallOf(headers);
    options.strangers.startStream(stream, () => {
      if (servePlainCall !== undefined) return servePlainCall(stream, rawHeaders);
      // Connect makes a URL of the client's authority, and uses only its query.
      const readable = { ...headers, ':authority': 'localhost' };
      const request = new Http2ServerRequest(stream, readable, {}, rawHeaders);
      // A stream without data may have ended while it waited for its turn.
      if (stream.readableEnded) request.push(null);
      serveByConnect(request, new Http2ServerResponse(stream));
    });
  };
}

function createConnectDoor(options: InternalDoorOptions) {
  const handlers = compileHandlers(options);

  return (request: Http2ServerRequest, response: Http2ServerResponse) => {
    const context = newRequestContext('internal');
    response.setHeader('x-request-id', context.requestId);
    // Emitted once the answer is sent. An unread rest of a refused body would keep the stream open.
    response.stream.once('wantTrailers', () => discardBody(request));
    const called = handlers.get(pathOf(request));
    const { stream } = request;
    const removeLimit = limitStream(stream, options.requestTimeoutMs);
    context.onIssuedKey = () => options.strangers.release(stream);
    context.stayOpen = () => {
      removeLimit();
      options.strangers.release(stream);
    };
    if (called === undefined) {
      answerNotFound(request, response, context);
      options.onEnd(context, undefined, 'not_found');
      return;
    }
    serve(called, request, response, context, options).catch((reason) => {
      options.logger.error({ err: reason, request_id: context.requestId }, 'an RPC could not be answered');
      // Without a code, clients with connect-node wait until their timeout (connectrpc/connect-es issue 1678).
      response.stream.close(constants.NGHTTP2_INTERNAL_ERROR);
    });
  };
}

const neverAborted = new AbortController().signal;

interface Called {
  handler: UniversalHandler;
  checkStructs: StructCheck | undefined;
}

function compileHandlers(options: InternalDoorOptions): Map<string, Called> {
  const router = createConnectRouter({
    readMaxBytes: maxBodyBytes,
    // An unknown field is refused, not dropped.
    jsonOptions: { ignoreUnknownFields: false },
    acceptCompression: compressions,
    interceptors: [refuseByCatalogue],
    requestGate: async (context) => refuseWhatConnectRefuses(context),
    shutdownSignal: options.shutdownSignal,
  });
  for (const service of options.services) {
    for (const [method, served] of [...service.methods, ...service.streams]) {
      // Connect's serialization accepts a text decoder here, although the router's option types omit it.
      const jsonOptions = { ignoreUnknownFields: false, textDecoder: strictDecoder(method.input) };
      router.rpc(method, implementationOf(served) as never, {
        requestGate: requestGateOf((context, header) =>
          admit(service.authenticate, served.ratePolicy, options.takeFromLimit, context, header),
        ),
        jsonOptions,
        // A unary call in flight has time to finish when the service stops.
        ...(isUnary(method) && { shutdownSignal: neverAborted }),
      });
    }
  }
  options.openRoutes(router);
  const calledBy = (handler: UniversalHandler): Called => ({
    handler,
    checkStructs: createStructCheck(handler.method.input),
  });
  return new Map(router.handlers.map((handler) => [handler.requestPath, calledBy(handler)]));
}

/**
 * protobuf-es has no strict mode: it reads what the strict decoder has read. Throws a refusal that lists every
 * violation of shape.
 */
function strictDecoder<Desc extends DescMessage>(desc: Desc) {
  const decode = createStandardJsonDecoder(desc);
  return {
    decode(bytes: Uint8Array = new Uint8Array()): string {
      const { message, violations } = decode(parseJsonBody(bytes));
      refuseInvalid(violations);
      return toJsonString(desc, message as MessageShape<Desc>);
    },
  };
}

type Served = Method<unknown, unknown, unknown> | StreamMethod<unknown, unknown, unknown>;

/** The method as Connect calls it: returns a promise, or for a stream an iterable of messages. */
function implementationOf(served: Served) {
  return (request: Message, { values, requestHeader, responseHeader, signal }: HandlerContext) => {
    const context = requestContextOf(values);
    context.isRead = true;
    const setHeaders = () => {
      for (const [name, value] of answerHeaders(context)) responseHeader.set(name, value);
    };
    setHeaders();
    const answer = served.run(request, admittedCaller(context), { context, header: requestHeader, signal });
    // The call may have charged more requests.
    return answer instanceof Promise ? answer.finally(setHeaders) : answer;
  };
}

/** The longest timeout that both protocols' headers can express and a timer accepts. */
const maxTimeoutMs = 99_999_999;

/** Limits a deadline: beyond it, timers overflow and fire at once. Connect refuses unreadable deadlines. */
function limitDeadline(header: Headers, isConnect: boolean, limitMs: number | undefined): void {
  const name = isConnect ? 'connect-timeout-ms' : 'grpc-timeout';
  const parse = isConnect ? parseConnectTimeout : parseGrpcTimeout;
  const { timeoutMs, error } = parse(header.get(name), Number.MAX_SAFE_INTEGER);
  if (error !== undefined) return;
  const longestMs = Math.min(limitMs ?? maxTimeoutMs, maxTimeoutMs);
  if ((timeoutMs ?? (limitMs === undefined ? 0 : Number.POSITIVE_INFINITY)) <= longestMs) return;
  header.set(name, isConnect ? String(longestMs) : `${longestMs}m`);
}

async function serve(
  { handler, checkStructs }: Called,
  request: Http2ServerRequest,
  response: Http2ServerResponse,
  context: RequestContext,
  options: InternalDoorOptions,
): Promise<void> {
  const values = createContextValues().set(requestContextKey, context);
  let universalRequest = universalRequestFromNodeRequest(request, response, undefined, values);
  const contentType = (request.headers['content-type'] ?? '').toLowerCase();
  universalRequest.header.set('content-type', contentType);
  if (handler.method.methodKind !== 'bidi_streaming') {
    universalRequest = withWholeBody(universalRequest, checkStructs);
  }
  // Connect reads only the first of two Authorization headers; the authenticator must see both.
  const authorization = new RawHeaders(request.rawHeaders).get('authorization');
  if (authorization !== null) universalRequest.header.set('authorization', authorization);

  const isOurs = options.services.some(({ desc }) => desc === handler.service);
  const isConnect = !contentType.startsWith('application/grpc');
  const isUnary = handler.method.methodKind === 'unary';
  limitDeadline(universalRequest.header, isConnect, isUnary ? options.requestTimeoutMs : undefined);
  if (isOurs && options.tracing) {
    const operation = operationOf(handler.method, isConnect ? 'connectrpc' : 'grpc');
    options.tracing.begin(context, operation, universalRequest.header);
  }
  let answer = withReadableMessage(await handler(universalRequest));
  const { session } = request.stream;
  if (session !== undefined && context.identity) options.strangers.noteValidKey(session);
  else if (session !== undefined && !context.openedIntent) options.strangers.noteNoCredential(session);
  if (answer.status === 405 || answer.status === 415) answer = notACall(answer.status, context);
  if (!isUnary) {
    // Connect's promise never resolves, because it waits for an event that a response does not have. It
    // rejects if the client has gone, or if the answer cannot be produced: then the client needs a code.
    let hasFailed = false;
    universalResponseToNodeResponse(answer, response).catch(() => {
      hasFailed = true;
      request.stream.close(constants.NGHTTP2_INTERNAL_ERROR);
    });
    if (!request.stream.destroyed) await new Promise((resolve) => request.stream.once('close', resolve));
    const isGone = request.stream.rstCode !== constants.NGHTTP2_NO_ERROR && !hasFailed;
    // If the client resets the stream or the connection, Connect reports an error of its own.
    if (isGone && context.error?.cause instanceof ConnectError) delete context.error;
    const outcome = context.error?.code ?? context.endedByClient ?? (isGone ? 'canceled' : 'ok');
    if (isOurs) options.onEnd(context, handler.method.name, outcome);
    return;
  }
  // If a call was reset while it was sent, Connect only reports a generic error.
  const isGone = request.stream.closed || request.stream.destroyed;
  const outcome = isGone ? 'canceled' : (context.error?.code ?? context.endedByClient ?? 'ok');
  // Probes and reflection come every few seconds and are not worth logging.
  if (isOurs) options.onEnd(context, handler.method.name, outcome);
  // If the write fails, the client has gone.
  await universalResponseToNodeResponse(answer, response).catch(() => {});
}

/** The answer to an HTTP method or content type that no RPC uses. */
function notACall(status: 405 | 415, context: RequestContext): UniversalServerResponse {
  context.error = new ServiceError(status === 405 ? 'method_not_allowed' : 'unsupported_media_type', {
    message: 'This path answers POST with a content type of gRPC or gRPC-Web or Connect.',
  });
  const body = errorToJsonBytes(toConnectError(context.error, context.requestId), undefined);
  const header = new Headers({ 'content-type': 'application/json', 'content-length': String(body.length) });
  return { status, header, body: createAsyncIterable([body]) };
}

/** Answers a call to an unknown path: gRPC in trailers, everything else in JSON. */
function answerNotFound(request: Http2ServerRequest, response: Http2ServerResponse, context: RequestContext) {
  context.error = new ServiceError('not_found');
  const contentType = request.headers['content-type'] ?? '';
  // gRPC itself, unlike gRPC-Web, has its errors in HTTP trailers.
  if (/^application\/grpc(?:$|[+;])/.test(contentType)) {
    const answer = {
      status: 200,
      header: new Headers({ 'content-type': contentType }),
      body: createAsyncIterable([]),
      trailer: trailerOf(toConnectError(context.error, context.requestId)),
    };
    universalResponseToNodeResponse(answer, response).catch(() => {});
    return;
  }
  const body = JSON.stringify(toErrorJson(context.error, context.requestId, docPathOf('not_found')));
  response.writeHead(catalogue.not_found.httpStatus, { 'content-type': 'application/json' });
  response.end(body);
}

// Connect accepts bytes after a call's one message, and protobuf-es drops parts of a Struct. So the message
// of such a call is read whole and checked before they see it, as in plain gRPC calls.

/** The size of the flag and the length that precede a message in all protocols but unary Connect. */
const envelopeBytes = 5;
const binaryContentType = /^application\/(?:grpc(?:-web)?(?:\+proto)?|proto)(?:;|$)/;

/** A message that cannot be decompressed is the sender's fault, not an internal error. */
const compressions: Compression[] = [compressionGzip, compressionBrotli].map((compression) => ({
  ...compression,
  decompress: (bytes, readMaxBytes) =>
    compression.decompress(bytes, readMaxBytes).catch((reason) => {
      const { code, rawMessage } = ConnectError.from(reason);
      if (code === Code.ResourceExhausted) throw reason;
      throw new ConnectError(rawMessage, Code.InvalidArgument, undefined, undefined, reason);
    }),
}));

/** Returns the request of a method with one message. Its body is in one piece; an invalid one is refused. */
function withWholeBody(request: UniversalServerRequest, check: StructCheck | undefined) {
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
