// Answers input that never becomes a request: Node's HTTP/1 parser refuses it or times out.

import type http from 'node:http';
import type { Duplex } from 'node:stream';
import { type ErrorCode, toErrorJson } from '../../contract/error-catalogue.ts';
import { requestIsLate } from '../../contract/limits.ts';
import { ServiceError } from '../../requests/errors.ts';
import { newRequestContext, type RequestObserver } from '../../requests/request-context.ts';
import { RawHeaders } from '../../requests/request-header.ts';
import { docUrlOf } from '../doc-url.ts';
import { PacedSocket } from '../paced-socket.ts';
import { rawRefusal } from '../raw-refusal.ts';
import { noTls, protocolOf } from '../wrong-protocol.ts';

/** Answers input that is not HTTP, too slow or too large, if the client can still read an answer. */
export function answerMalformedHttp(
  server: http.Server,
  maxHeaderBytes: number,
  onEnd: RequestObserver,
  scheme: 'http' | 'https',
  onWrongProtocol: (spoken: 'TLS' | 'HTTP/2') => void,
): void {
  const latest = new WeakMap<Duplex, Latest>();
  const refuseWith = createRefuse(scheme, onEnd);
  const note = (request: http.IncomingMessage, response: http.ServerResponse) => {
    if (request.httpVersionMajor !== 1) return;
    latest.set(request.socket, { request, response, before: latest.get(request.socket)?.response });
  };
  server
    .on('request', note)
    .on('checkContinue', note)
    .on('checkExpectation', note)
    // Node itself would close the connection without an answer and lose the earlier answers.
    .on('connect', (request: http.IncomingMessage, socket: Duplex) => {
      stopParsing(socket);
      // Node has detached the parser, which handled the errors of this socket.
      socket.on('error', () => socket.destroy());
      const before = latest.get(socket)?.response;
      const refuse = () =>
        refuseWith('405 Method Not Allowed', 'method_not_allowed', connectIsRefused, socket, request);
      if (isOwed(before)) before.once('close', refuse);
      else refuse();
    })
    .on('clientError', (error: NodeJS.ErrnoException & { rawPacket?: Buffer }, socket) => {
      if (error.code === 'ECONNRESET' || !socket.writable) {
        socket.destroy();
        return;
      }
      stopParsing(socket);
      const before = latest.get(socket);
      // Complete requests came first and are being served. Their answers must not be lost because of later input.
      const whole = before?.request.complete ? before.response : before?.before;
      if (isOwed(whole)) {
        whole.once('close', () => socket.end());
        return;
      }
      // The client has closed its side in the middle of a request, which then ends as canceled.
      if (error.code === 'HPE_INVALID_EOF_STATE') {
        socket.destroy();
        return;
      }
      const spoken = protocolOf(error.rawPacket ?? Buffer.alloc(0));
      if (before === undefined && (spoken === 'TLS' || spoken === 'HTTP/2')) onWrongProtocol(spoken);
      const hint = before === undefined ? hints[spoken] : undefined;
      const { status, message } =
        hint === undefined
          ? explain(error.code, maxHeaderBytes)
          : { status: '400 Bad Request', message: hint };
      // The host is known if the request's headers were read but its body did not arrive.
      const unfinished = before?.request.complete === false ? before.request : undefined;
      refuseWith(status, 'invalid_body', message, socket, unfinished);
    });
}

/** Sends a refusal on a connection that has no response object, and ends it. */
type Refuse = (
  status: string,
  code: ErrorCode,
  message: string,
  socket: Duplex,
  request: http.IncomingMessage | undefined,
) => void;

function createRefuse(scheme: 'http' | 'https', onEnd: RequestObserver): Refuse {
  return (status, code, message, socket, request) => {
    const context = newRequestContext('public');
    const { requestId } = context;
    const error = new ServiceError(code, { message });
    const header = request && new RawHeaders(request.rawHeaders);
    socket.end(rawRefusal(status, requestId, toErrorJson(error, requestId, docUrlOf(code, header, scheme))));
    onEnd(context, undefined, code);
  };
}

function isOwed(response: http.ServerResponse | undefined): response is http.ServerResponse {
  return response !== undefined && !response.writableFinished && !response.destroyed;
}

/** The most recently parsed request of a connection, and the response to the one before it, which is complete. */
interface Latest {
  request: http.IncomingMessage;
  response: http.ServerResponse;
  before: http.ServerResponse | undefined;
}

/** Nothing after a parse error is read. */
function stopParsing(socket: Duplex): void {
  if (socket instanceof PacedSocket) socket.stopParsing();
}

const connectIsRefused = 'This service opens no tunnels: CONNECT is for proxies.';

/** The message for clients that begin with another protocol. */
const hints: Readonly<Record<string, string>> = {
  'HTTP/2':
    'This port speaks HTTP/1.1, and HTTP/2 only where it has TLS. gRPC over plain HTTP/2 is on GRPC_PORT.',
  TLS: noTls,
};

function explain(code: string | undefined, maxHeaderBytes: number): { status: string; message: string } {
  switch (code) {
    case 'HPE_HEADER_OVERFLOW':
      return {
        status: '431 Request Header Fields Too Large',
        message: `The headers are larger than ${maxHeaderBytes} bytes.`,
      };
    case 'ERR_HTTP_REQUEST_TIMEOUT':
      return { status: '408 Request Timeout', message: requestIsLate };
    default:
      return { status: '400 Bad Request', message: 'The request is not valid HTTP.' };
  }
}
