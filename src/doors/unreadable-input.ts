// Answers input that never becomes a request: a protocol that the port does not speak, and what Node's
// HTTP/1.1 parser refuses or has waited for too long. Node would close silently, or answer without a body.

import type http from 'node:http';
import type { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import type { Logger } from 'pino';
import { docPathOf, type ErrorCode, toErrorJson } from '../contract/error-catalogue.ts';
import { requestIsLate } from '../contract/limits.ts';
import { ServiceError } from '../requests/errors.ts';
import { newRequestContext, newRequestId, type RequestObserver } from '../requests/request-context.ts';
import { RawHeaders } from '../requests/request-header.ts';
import { docUrlOf } from './doc-url.ts';
import type { PacedSocket } from './paced-socket.ts';

/** The protocol that the first bytes of a connection indicate. */
type Protocol = 'TLS' | 'HTTP/2' | 'HTTP/1.1' | 'unknown';

interface ExpectedProtocol {
  /** The environment variable that sets the port. */
  variable: string;
  /** The protocol that a connection must begin with. */
  expected: 'TLS' | 'HTTP/2' | 'HTTP/1.1';
  /** The message for clients that use HTTP but not the expected protocol. */
  hint: string;
}

/**
 * Sent to clients that use TLS on a port without it. They cannot read it, but many then report that the
 * answer was HTTP. A closed connection would tell them nothing.
 */
const noTls = 'This port does not speak TLS. Use http in place of https.';

/** Repeated mistakes are logged once per interval, with their count. */
const reportIntervalMs = 10_000;

/** The first bytes of HTTP/2 with prior knowledge (RFC 9113, section 3.4). */
const http2Preface = Buffer.from('PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n');
/** The start of a handshake record: its type and the major version. */
const tlsHandshake = Buffer.from([0x16, 0x03]);

/** The protocol that begins with these bytes, even if there are only one or two. */
function protocolOf(bytes: Buffer): Protocol {
  const beginsWith = (start: Buffer) => {
    const length = Math.min(start.length, bytes.length);
    return length > 0 && bytes.subarray(0, length).equals(start.subarray(0, length));
  };
  if (beginsWith(tlsHandshake)) return 'TLS';
  if (beginsWith(http2Preface)) return 'HTTP/2';
  return /^[A-Z]+ /.test(bytes.toString('latin1', 0, 16)) ? 'HTTP/1.1' : 'unknown';
}

type LogWrongProtocol = (spoken: Protocol, port: Pick<ExpectedProtocol, 'variable' | 'expected'>) => void;

/** Logs connections with the wrong protocol: the first at once, further ones together. */
export function createProtocolLog(logger: Logger): LogWrongProtocol {
  const repeated = new Map<string, number>();
  return (spoken, { variable, expected }) => {
    const kind = `${variable} ${spoken}`;
    const before = repeated.get(kind);
    if (before !== undefined) return void repeated.set(kind, before + 1);
    const what = spoken === 'unknown' ? 'an unknown protocol' : spoken;
    // METRICS_PORT never has TLS.
    const orTls = variable === 'METRICS_PORT' ? '' : ', or set TLS_CERT_FILE and TLS_KEY_FILE';
    const remedy = spoken === 'TLS' ? `: connect without TLS${orTls}` : '';
    const note = (count: number) =>
      logger.warn(
        { port: variable, spoken, expected, count },
        `a client speaks ${what} to ${variable}, which speaks ${expected}${remedy}`,
      );
    note(1);
    repeated.set(kind, 0);
    setTimeout(() => {
      const count = repeated.get(kind) ?? 0;
      repeated.delete(kind);
      if (count > 0) note(count);
    }, reportIntervalMs).unref();
  };
}

/** A refusal as the bytes of an HTTP/1.1 answer that ends its connection, without a Node response object. */
function rawRefusal(
  status: string,
  code: ErrorCode,
  message: string,
  requestId: string,
  docUrl = docPathOf(code),
): string {
  const body = JSON.stringify(toErrorJson(new ServiceError(code, { message }), requestId, docUrl));
  return (
    `HTTP/1.1 ${status}\r\nConnection: close\r\nContent-Type: application/json\r\nCache-Control: no-store\r\n` +
    `X-Request-Id: ${requestId}\r\nContent-Length: ${Buffer.byteLength(body)}\r\n\r\n${body}`
  );
}

/**
 * Returns a function that passes on connections that begin with the expected protocol. It closes others,
 * after an answer if they use HTTP or TLS, and those that send nothing for `silenceMs`.
 */
export function expectProtocol(port: ExpectedProtocol, silenceMs: number, log: LogWrongProtocol) {
  return (socket: Socket, pass: (socket: Socket) => void): void => {
    const silence = setTimeout(() => socket.destroy(), silenceMs);
    const onGone = () => clearTimeout(silence);
    socket.on('error', onGone).once('close', onGone);
    socket.once('data', (bytes: Buffer) => {
      clearTimeout(silence);
      socket.pause();
      const spoken = protocolOf(bytes);
      if (spoken === port.expected) {
        socket.off('error', onGone);
        // Node's TLS and HTTP/2 both read the bytes that are put back here.
        socket.unshift(bytes);
        return pass(socket);
      }
      log(spoken, port);
      if (spoken === 'unknown') return void socket.destroy();
      // Further input is dropped, so that the client can read its answer. A client that stays is cut off.
      const message = spoken === 'TLS' ? noTls : port.hint;
      const answer = rawRefusal('400 Bad Request', 'invalid_body', message, newRequestId());
      socket.resume().end(`${answer}\n`);
      const lingering = setTimeout(() => socket.destroy(), silenceMs);
      socket.once('close', () => clearTimeout(lingering));
    });
  };
}

interface MalformedHttpOptions {
  log: LogWrongProtocol;
  maxHeaderBytes: number;
  onEnd: RequestObserver;
  scheme: 'http' | 'https';
}

/** Answers input that is not HTTP, or too slow or too large, if the client can still read an answer. */
export function answerMalformedHttp(
  server: http.Server,
  variable: ExpectedProtocol['variable'],
  { log, maxHeaderBytes, onEnd, scheme }: MalformedHttpOptions,
): void {
  const refuse = (
    socket: Duplex,
    status: string,
    code: ErrorCode,
    message: string,
    request: http.IncomingMessage | undefined,
  ) => {
    const context = newRequestContext('public');
    const header = request && new RawHeaders(request.rawHeaders);
    socket.end(rawRefusal(status, code, message, context.requestId, docUrlOf(code, header, scheme)));
    onEnd(context, undefined, code);
  };
  server
    // Node itself would close the connection without an answer and lose the earlier answers.
    .on('connect', (request: http.IncomingMessage, duplex: Duplex) => {
      const socket = duplex as PacedSocket;
      socket.stopParsing();
      // Node has detached its parser, which handled this socket's errors.
      socket.on('error', () => socket.destroy());
      const [before] = socket.latest;
      const refuseTunnel = () =>
        refuse(socket, '405 Method Not Allowed', 'method_not_allowed', connectIsRefused, request);
      if (isOwed(before)) before.once('close', refuseTunnel);
      else refuseTunnel();
    })
    .on('clientError', (error: NodeJS.ErrnoException & { rawPacket?: Buffer }, duplex) => {
      const socket = duplex as PacedSocket;
      if (error.code === 'ECONNRESET' || !socket.writable) return void socket.destroy();
      // Browsers open connections in advance. An answer without a request could be taken for that of the next.
      if (error.code === 'ERR_HTTP_REQUEST_TIMEOUT' && !socket.hasInput) return void socket.destroy();
      socket.stopParsing();
      const [latest, before] = socket.latest;
      // Earlier, complete requests are still being served. Later input must not cost them their answers.
      const whole = latest?.req.complete ? latest : before;
      if (isOwed(whole)) return void whole.once('close', () => socket.end());
      // The client closed its side in the middle of a request. That request ends as canceled.
      if (error.code === 'HPE_INVALID_EOF_STATE') return void socket.destroy();
      const spoken = protocolOf(error.rawPacket ?? Buffer.alloc(0));
      const hint = latest === undefined ? hints[spoken] : undefined;
      if (hint !== undefined) log(spoken, { variable, expected: 'HTTP/1.1' });
      const [status, message] =
        hint === undefined ? explain(error.code, maxHeaderBytes) : ['400 Bad Request', hint];
      // The host is known if the request's headers were read but its body did not arrive.
      const unfinished = latest?.req.complete === false ? latest.req : undefined;
      refuse(socket, status, 'invalid_body', message, unfinished);
    });
}

function isOwed(response: http.ServerResponse | undefined): response is http.ServerResponse {
  return response !== undefined && !response.writableFinished && !response.destroyed;
}

const connectIsRefused = 'This service opens no tunnels: CONNECT is for proxies.';

/** The message for clients that begin with another protocol. */
const hints: { readonly [spoken in Protocol]?: string } = {
  'HTTP/2':
    'This port speaks HTTP/1.1, and HTTP/2 only where it has TLS. gRPC over plain HTTP/2 is on GRPC_PORT.',
  TLS: noTls,
};

function explain(code: string | undefined, maxHeaderBytes: number): [status: string, message: string] {
  switch (code) {
    case 'HPE_HEADER_OVERFLOW':
      return ['431 Request Header Fields Too Large', `The headers are larger than ${maxHeaderBytes} bytes.`];
    case 'ERR_HTTP_REQUEST_TIMEOUT':
      return ['408 Request Timeout', requestIsLate];
    default:
      return ['400 Bad Request', 'The request is not valid HTTP.'];
  }
}
