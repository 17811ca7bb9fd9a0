// Runs in its own process, so that the flood does not slow the measured client:
//
//   node test/faults/support/flood.ts PORT CONNECTIONS IN_FLIGHT MILLISECONDS random|crc32
//
// Sends creates with unknown keys, a new one after each answer, and prints how many were answered.

import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import net from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { newCrc32Key } from '../../support/crc32-key.ts';

const [port, connections, inFlight, milliseconds, form] = process.argv.slice(2);

const newKey = () =>
  form === 'crc32' ? newCrc32Key('testnet') : `sk_testnet_${randomBytes(25).toString('hex').slice(0, 49)}`;
const requests = (count: number) =>
  Array.from(
    { length: count },
    () =>
      `POST /v1/payment_intents HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${newKey()}\r\nContent-Length: 0\r\n\r\n`,
  ).join('');

let answered = 0;
const sockets = await Promise.all(
  Array.from({ length: Number(connections) }, async () => {
    const socket = net.connect(Number(port), '127.0.0.1');
    await once(socket, 'connect');
    socket.on('data', (chunk: Buffer) => {
      let count = 0;
      for (let at = chunk.indexOf('HTTP/1.1 '); at !== -1; at = chunk.indexOf('HTTP/1.1 ', at + 9)) count++;
      answered += count;
      socket.write(requests(count));
    });
    socket.write(requests(Number(inFlight)));
    return socket;
  }),
);
await sleep(Number(milliseconds));
for (const socket of sockets) socket.destroy();
console.log(answered);
