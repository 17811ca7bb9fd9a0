// Answers clients that use the wrong protocol on a port with one line, if their protocol is recognised, and logs them.
// Node would close such a connection silently.

import type { Socket } from 'node:net';
import type { Logger } from 'pino';
import { docPathOf, toErrorJson } from '../contract/error-catalogue.ts';
import { ServiceError } from '../requests/errors.ts';
import { newRequestContext, type RequestContext } from '../requests/request-context.ts';
import { rawRefusal } from './raw-refusal.ts';

/** The protocol that the first bytes of a connection indicate. */
type Protocol = 'TLS' | 'HTTP/2' | 'HTTP/1.1' | 'unknown';

export interface ExpectedProtocol {
  /** The environment variable that sets the port. */
  variable: string;
  door: RequestContext['door'];
  /** What a connection has to begin with. */
  expected: 'TLS' | 'HTTP/2' | 'HTTP/1.1';
  /** The message for clients that use HTTP but not the expected protocol. */
  hint: string;
}

/**
 * Sent to clients that use TLS on a port without it. They cannot read it, but their error messages then often say that
 * the answer was HTTP, which a closed connection does not.
 */
export const noTls = 'This port does not speak TLS. Use http in place of https.';

/** Repeated mistakes are logged once per interval, with their count. */
const reportIntervalMs = 10_000;

/** The first bytes of HTTP/2 with prior knowledge (RFC 9113, section 3.4). */
const http2Preface = Buffer.from('PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n');
/** The start of a handshake record: its type and the major version. */
const tlsHandshake = Buffer.from([0x16, 0x03]);

/** The protocol that begins with these bytes, even if there are only one or two. */
export function protocolOf(bytes: Buffer): Protocol {
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
    if (before !== undefined) {
      repeated.set(kind, before + 1);
      return;
    }
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

/** An answer that any HTTP/1.1 client can read. */
function wrongProtocolAnswer(spoken: Protocol, { hint, door }: ExpectedProtocol): string {
  const { requestId } = newRequestContext(door);
  const error = new ServiceError('invalid_body', { message: spoken === 'TLS' ? noTls : hint });
  const answer = toErrorJson(error, requestId, docPathOf(error.code));
  return `${rawRefusal('400 Bad Request', requestId, answer)}\n`;
}

/**
 * Returns what passes on a connection that begins with the expected protocol. Others are closed, after an answer if
 * they use HTTP or TLS, and so are connections that send nothing for `silenceMs`.
 */
export function expectProtocol(
  port: ExpectedProtocol,
  silenceMs: number,
  log: LogWrongProtocol,
): (socket: Socket, pass: (socket: Socket) => void) => void {
  return (socket, pass) => {
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
      // Further input is dropped, so that the client can read its answer. A client that does not close is closed.
      socket.resume().end(wrongProtocolAnswer(spoken, port));
      const lingering = setTimeout(() => socket.destroy(), silenceMs);
      socket.once('close', () => clearTimeout(lingering));
    });
  };
}
