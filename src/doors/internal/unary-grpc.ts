// Serves plain unary gRPC calls (one message, no compression) directly on node:http2 streams. Connect serves
// everything else. It could serve these too, but async iterables, universal requests and Node's compatibility
// layer would multiply the cost of each call. Clients see no difference.

import { constants, type IncomingHttpHeaders, type ServerHttp2Stream } from 'node:http2';
import { type DescMethodUnary, fromBinary, type Message, toBinary } from '@bufbuild/protobuf';
import { Code, ConnectError } from '@connectrpc/connect';
import { encodeEnvelope } from '@connectrpc/connect/protocol';
import { codeToString } from '@connectrpc/connect/protocol-connect';
import { parseTimeout } from '@connectrpc/connect/protocol-grpc';
import { maxBodyBytes } from '../../contract/limits.ts';
import { ServiceError } from '../../requests/errors.ts';
import {
  answerHeaders,
  newRequestContext,
  type RequestContext,
  type RequestOutcome,
} from '../../requests/request-context.ts';
import { RawHeaders } from '../../requests/request-header.ts';
import { type DoorOptions, operationOf, type ServedMethod, serveCall } from '../call.ts';
import { discardStream, limitStream } from '../request-body.ts';
import { callIsUnreadable, clientGone, notOneMessage, refusalOf, trailerOf } from './catalogue-errors.ts';
import { createStructCheck, type StructCheck } from './struct-check.ts';

interface Served extends ServedMethod {
  method: DescMethodUnary;
  checkStructs: StructCheck | undefined;
}

const plainContentType = /^application\/grpc(?:\+proto)?$/;
/** The prefix of a gRPC message: a flag and the length. */
const headBytes = 5;

/** Returns the function that serves a stream with these headers, or undefined if it is not a plain call. */
export function createUnaryGrpc(options: DoorOptions) {
  const calls = compileCalls(options);
  return (headers: IncomingHttpHeaders) => {
    const call = calls.get(headers[':path'] ?? '');
    const encoding = headers['grpc-encoding'] ?? 'identity';
    if (
      call === undefined ||
      headers[':method'] !== 'POST' ||
      encoding !== 'identity' ||
      !plainContentType.test(headers['content-type'] ?? '')
    ) {
      return undefined;
    }
    return (stream: ServerHttp2Stream, rawHeaders: readonly string[]) => {
      limitStream(stream, options.requestTimeoutMs);
      serve(call, stream, rawHeaders, options).catch((reason) => {
        options.logger.error({ err: reason }, 'an RPC could not be answered');
        stream.close(constants.NGHTTP2_INTERNAL_ERROR);
      });
    };
  };
}

function compileCalls({ services }: DoorOptions): Map<string, Served> {
  const calls = new Map<string, Served>();
  for (const service of services) {
    for (const [method, implementation] of service.methods) {
      calls.set(`/${service.desc.typeName}/${method.name}`, {
        service,
        implementation,
        method,
        checkStructs: createStructCheck(method.input),
        operation: operationOf(method),
      });
    }
  }
  return calls;
}

async function serve(
  called: Served,
  stream: ServerHttp2Stream,
  rawHeaders: readonly string[],
  options: DoorOptions,
): Promise<void> {
  const { method, checkStructs } = called;
  const context = newRequestContext('internal');
  context.onIssuedKey = () => options.strangers.release(stream);
  const header = new RawHeaders(rawHeaders);
  const ended = new AbortController();
  // An explicit reason: without one, each abort creates a DOMException with a stack trace.
  stream.once('close', () => ended.abort(clientGone));
  const { timeoutMs, error: timeoutError } = parseTimeout(
    header.get('grpc-timeout'),
    Number.MAX_SAFE_INTEGER,
  );
  const deadline = setTimeout(
    () => ended.abort(new ConnectError('the operation timed out', Code.DeadlineExceeded)),
    Math.min(timeoutMs ?? Infinity, options.requestTimeoutMs),
  );
  const decode = async (): Promise<Message> => {
    if (timeoutError !== undefined) throw unreadable(timeoutError);
    const bytes = await readMessage(stream, ended.signal);
    try {
      checkStructs?.(bytes);
      return fromBinary(method.input, bytes);
    } catch (cause) {
      throw unreadable(cause);
    }
  };

  let outcome: RequestOutcome = 'ok';
  try {
    const arrived = { context, header, connection: stream.session, signal: ended.signal };
    const answer = await serveCall(called, arrived, decode, options);
    respond(stream, context, toBinary(method.output, answer));
  } catch (reason) {
    const error = refusalOf(reason, context);
    outcome = context.error?.code ?? codeToString(error.code);
    respond(stream, context, error);
  } finally {
    clearTimeout(deadline);
  }
  options.onEnd(context, method.name, outcome);
}

function unreadable(cause: unknown): ServiceError {
  return new ServiceError('invalid_body', { message: callIsUnreadable, cause });
}

/** Reads the one message of the call, counting bytes as they arrive, until the signal aborts. */
function readMessage(stream: ServerHttp2Stream, signal: AbortSignal): Promise<Buffer> {
  return new Promise((resolve, reject) => {
    const chunks: Buffer[] = [];
    let bytes = 0;
    /** The length in the prefix, once the prefix has arrived. */
    let declaredBytes: number | undefined;
    const settle = () => {
      stream.off('data', onData).off('end', onEnd);
      signal.removeEventListener('abort', onAbort);
    };
    const fail = (error: Error) => {
      settle();
      reject(error);
    };
    const onData = (chunk: Buffer) => {
      chunks.push(chunk);
      bytes += chunk.length;
      if (bytes <= headBytes) return;
      declaredBytes ??= Buffer.concat(chunks, headBytes).readUInt32BE(1);
      if (declaredBytes > maxBodyBytes) {
        fail(new ServiceError('body_too_large'));
      } else if (bytes > headBytes + declaredBytes) {
        fail(new ServiceError('invalid_body', { message: notOneMessage }));
      }
    };
    const onEnd = () => {
      const all = chunks.length === 1 ? (chunks[0] as Buffer) : Buffer.concat(chunks, bytes);
      if (all.length === 0) return fail(new ServiceError('invalid_body', { message: notOneMessage }));
      if (all.length < headBytes || all[0] !== 0)
        return fail(unreadable(new Error('not a plain gRPC message')));
      const end = headBytes + all.readUInt32BE(1);
      if (all.length < end) return fail(unreadable(new Error('the message is shorter than it says')));
      settle();
      resolve(all.subarray(headBytes));
    };
    const onAbort = () => fail(signal.reason);
    if (signal.aborted) return onAbort();
    // Node emits `end` as soon as a stream without data ends, which may be before this function listens.
    if (stream.readableEnded) return onEnd();
    signal.addEventListener('abort', onAbort);
    stream.on('data', onData).once('end', onEnd);
  });
}

function respond(stream: ServerHttp2Stream, context: RequestContext, answer: Uint8Array | ConnectError) {
  if (stream.destroyed || stream.closed) return;
  const headers = {
    ':status': 200,
    'content-type': 'application/grpc+proto',
    'x-request-id': context.requestId,
  };
  if (answer instanceof ConnectError) {
    // In one frame, as required for the retries of clients and of Envoy.
    stream.respond({ ...headers, ...Object.fromEntries(trailerOf(answer)) }, { endStream: true });
    discardStream(stream);
    return;
  }
  stream.respond({ ...headers, ...Object.fromEntries(answerHeaders(context)) }, { waitForTrailers: true });
  stream.once('wantTrailers', () => {
    stream.sendTrailers({ 'grpc-status': '0' });
    discardStream(stream);
  });
  stream.end(encodeEnvelope(0, answer));
}
