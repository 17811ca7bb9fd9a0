// HTTP/2 written by hand, for clients that break the rules (RFC 9113, RFC 7541).

import { once } from 'node:events';
import net from 'node:net';

export const frameTypes = {
  data: 0x0,
  headers: 0x1,
  rstStream: 0x3,
  settings: 0x4,
  ping: 0x6,
  goaway: 0x7,
  windowUpdate: 0x8,
} as const;

export interface Frame {
  type: number;
  flags: number;
  stream: number;
  payload: Buffer;
}

const flags = { endStream: 0x1, endHeaders: 0x4 };
const preface = Buffer.from('PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n');

export function encodeFrame(type: number, flag: number, stream: number, payload: Uint8Array): Buffer {
  const head = Buffer.alloc(9);
  head.writeUIntBE(payload.length, 0, 3);
  head.writeUInt8(type, 3);
  head.writeUInt8(flag, 4);
  head.writeUInt32BE(stream, 5);
  return Buffer.concat([head, payload]);
}

/** HEADERS that open a stream, each header as a literal without indexing. */
export function encodeHeaders(
  stream: number,
  headers: readonly (readonly [name: string, value: string])[],
): Buffer {
  const fields = headers.flatMap(([name, value]) => [Buffer.from([0]), literal(name), literal(value)]);
  return encodeFrame(frameTypes.headers, flags.endHeaders, stream, Buffer.concat(fields));
}

/** Encodes a length with a seven-bit prefix, and the text. */
function literal(text: string): Buffer {
  const bytes = Buffer.from(text);
  const length: number[] = [];
  if (bytes.length < 127) length.push(bytes.length);
  else {
    length.push(127);
    let rest = bytes.length - 127;
    for (; rest >= 128; rest >>= 7) length.push((rest & 127) | 128);
    length.push(rest);
  }
  return Buffer.concat([Buffer.from(length), bytes]);
}

export interface RawHttp2 {
  socket: net.Socket;
  /** All frames received so far. */
  frames: Frame[];
  /** Resolves with the next matching frame, including frames received before. */
  frame(fits: (frame: Frame) => boolean): Promise<Frame>;
  /** Resolves when the connection is closed. */
  closed: Promise<unknown>;
}

/** Opens a connection, and sends the preface and settings. */
export async function connectRaw(port: number, settings: Uint8Array = Buffer.alloc(0)): Promise<RawHttp2> {
  const socket = net.connect(port, '127.0.0.1');
  socket.on('error', () => {});
  const closed = new Promise((resolve) => socket.once('close', resolve));
  await once(socket, 'connect');
  const frames: Frame[] = [];
  const waiters = new Set<(frame: Frame) => void>();
  let unread: Buffer = Buffer.alloc(0);
  socket.on('data', (chunk: Buffer) => {
    unread = Buffer.concat([unread, chunk]);
    while (unread.length >= 9 && unread.length >= 9 + unread.readUIntBE(0, 3)) {
      const end = 9 + unread.readUIntBE(0, 3);
      const frame = {
        type: unread.readUInt8(3),
        flags: unread.readUInt8(4),
        stream: unread.readUInt32BE(5),
        payload: unread.subarray(9, end),
      };
      unread = unread.subarray(end);
      frames.push(frame);
      for (const waiter of waiters) waiter(frame);
    }
  });
  socket.write(Buffer.concat([preface, encodeFrame(frameTypes.settings, 0, 0, settings)]));
  return {
    socket,
    frames,
    closed,
    frame: (fits) =>
      new Promise((resolve, reject) => {
        const known = frames.find(fits);
        if (known) return resolve(known);
        const waiter = (frame: Frame) => {
          if (!fits(frame)) return;
          waiters.delete(waiter);
          resolve(frame);
        };
        waiters.add(waiter);
        void closed.then(() => reject(new Error('the connection was closed before such a frame')));
      }),
  };
}
