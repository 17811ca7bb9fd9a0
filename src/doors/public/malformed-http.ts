// What Node's HTTP/1 parser refuses, or gives up waiting for, never becomes a request: it is answered here.

import type http from 'node:http';
import type { Http2SecureServer } from 'node:http2';
import type { Duplex } from 'node:stream';
import { toErrorJson } from '../../contract/error-catalogue.ts';
import { requestIsLate } from '../../contract/limits.ts';
import { ServiceError } from '../../requests/errors.ts';
import type { RequestObserver } from '../../requests/request-context.ts';
import { newRequestContext } from '../../requests/request-context.ts';
import { docUrlOf } from '../doc-url.ts';
import { stopParsing } from '../pipelining.ts';
import { protocolOf } from '../wrong-protocol.ts';

/** Answers what is not HTTP, or too slow, or too much of it, where the client can still read an answer. */
export function answerMalformedHttp(
  server: http.Server | Http2SecureServer,
  maxHeaderBytes: number,
  onEnd: RequestObserver,
  scheme: 'http' | 'https',
  onWrongProtocol: (spoken: 'TLS' | 'HTTP/2') => void,
): void {
  const latest = new WeakMap<Duplex, Latest>();
  const note = (request: http.IncomingMessage, response: http.ServerResponse) => {
    if (request.httpVersionMajor !== 1) return;
    latest.set(request.socket, { request, response, before: latest.get(request.socket)?.response });
  };
  (server as http.Server)
    .on('request', note)
    .on('checkContinue', note)
    .on('checkExpectation', note)
    .on('clientError', (error: NodeJS.ErrnoException & { rawPacket?: Buffer }, socket) => {
      // The client has gone, or closed its side in the middle of a request, which then ends as canceled.
      if (error.code === 'ECONNRESET' || error.code === 'HPE_INVALID_EOF_STATE' || !socket.writable) {
        socket.destroy();
        return;
      }
      stopParsing(socket);
      const before = latest.get(socket);
      // Whole requests came first and are being worked on: their answers must not be lost to what follows them.
      const worked = before?.request.complete ? before.response : before?.before;
      if (worked !== undefined && !worked.writableFinished) {
        worked.once('close', () => socket.end());
        return;
      }
      const spoken = protocolOf(error.rawPacket ?? Buffer.alloc(0));
      if (before === undefined && (spoken === 'TLS' || spoken === 'HTTP/2')) onWrongProtocol(spoken);
      const { status, message } =
        before === undefined && spoken === 'HTTP/2'
          ? { status: '400 Bad Request', message: http2IsElsewhere }
          : explain(error.code, maxHeaderBytes);
      const context = newRequestContext('public');
      const { requestId } = context;
      // Of a request whose headers were read, but whose body did not come, the host is known.
      const unfinished = before?.request.complete === false ? before.request : undefined;
      const docUrl = docUrlOf('invalid_body', unfinished, scheme);
      const body = JSON.stringify(
        toErrorJson(new ServiceError('invalid_body', { message }), requestId, docUrl),
      );
      socket.end(
        `HTTP/1.1 ${status}\r\nConnection: close\r\nContent-Type: application/json\r\nCache-Control: no-store\r\n` +
          `X-Request-Id: ${requestId}\r\nContent-Length: ${Buffer.byteLength(body)}\r\n\r\n${body}`,
      );
      onEnd(context, undefined, 'invalid_body');
    });
}

/** The request of a connection that was parsed last, and the response to the one before it, which is whole. */
interface Latest {
  request: http.IncomingMessage;
  response: http.ServerResponse;
  before: http.ServerResponse | undefined;
}

const http2IsElsewhere =
  'This port speaks HTTP/1.1, and HTTP/2 only where it has TLS. gRPC over plain HTTP/2 is on GRPC_PORT.';

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
