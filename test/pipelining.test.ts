// Pipelined requests are all answered, in order, and only a few are processed at a time.

import { once } from 'node:events';
import net from 'node:net';
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { blockCreates } from './support/blocker.ts';
import { keyLookups } from './support/metrics.ts';
import { useService } from './support/use-service.ts';

const service = await useService();

const createRequest = (n: number, padding = '') => {
  const body = JSON.stringify({ amount_units: 1, metadata: { n, padding } });
  return [
    'POST /v1/payment_intents HTTP/1.1',
    'Host: localhost',
    `Authorization: Bearer ${service.merchant.keys.testnet.apiKey}`,
    'Content-Type: application/json',
    `Content-Length: ${Buffer.byteLength(body)}`,
    '',
    body,
  ].join('\r\n');
};

async function connect(): Promise<net.Socket> {
  const socket = net.connect(Number(new URL(service.publicUrl).port), '127.0.0.1');
  await once(socket, 'connect');
  return socket;
}

interface RawAnswer {
  status: number;
  body: string;
}

/** Reads that many answers, each with a Content-Length, or fewer if the connection ends first. */
async function readAnswers(socket: net.Socket, count: number): Promise<RawAnswer[]> {
  const answers: RawAnswer[] = [];
  let bytes = Buffer.alloc(0);
  for await (const chunk of socket.iterator({ destroyOnReturn: false })) {
    bytes = Buffer.concat([bytes, chunk]);
    for (;;) {
      const headEnd = bytes.indexOf('\r\n\r\n');
      if (headEnd === -1) break;
      const head = bytes.subarray(0, headEnd).toString();
      const end = headEnd + 4 + Number(/content-length: (\d+)/i.exec(head)?.[1]);
      if (bytes.length < end) break;
      answers.push({ status: Number(head.slice(9, 12)), body: bytes.subarray(headEnd + 4, end).toString() });
      bytes = bytes.subarray(end);
    }
    if (answers.length >= count) break;
  }
  return answers;
}

const numbersOf = (answers: RawAnswer[]) => answers.map(({ body }) => JSON.parse(body).metadata?.n);
const upTo = (count: number) => Array.from({ length: count }, (_, n) => n);

test('three hundred creates in one write are all answered, in order', async () => {
  const socket = await connect();
  socket.write(
    upTo(300)
      .map((n) => createRequest(n))
      .join(''),
  );
  const answers = await readAnswers(socket, 300);
  socket.destroy();
  expect(new Set(answers.map(({ status }) => status))).toEqual(new Set([201]));
  expect(numbersOf(answers)).toEqual(upTo(300));
});

test('creates are answered in order wherever the bytes are split, with bodies of any size', async () => {
  await fc.assert(
    fc.asyncProperty(
      fc.array(fc.integer({ min: 0, max: 20_000 }), { minLength: 1, maxLength: 40 }),
      fc.array(fc.integer({ min: 1, max: 30_000 }), { minLength: 1, maxLength: 20 }),
      async (paddings, cuts) => {
        const socket = await connect();
        // Metadata is limited to 16 KiB: larger requests are refused, in order.
        const bytes = Buffer.from(paddings.map((length, n) => createRequest(n, 'x'.repeat(length))).join(''));
        const answered = readAnswers(socket, paddings.length);
        for (let at = 0, i = 0; at < bytes.length; i++) {
          const end = at + (cuts[i % cuts.length] as number);
          if (!socket.write(bytes.subarray(at, end))) await once(socket, 'drain');
          at = end;
        }
        const answers = await answered;
        socket.destroy();
        expect(answers.map(({ status }) => status)).toEqual(
          paddings.map((length, n) => (length + `{"n":${n},"padding":""}`.length > 16 * 1024 ? 400 : 201)),
        );
      },
    ),
    { numRuns: 30 },
  );
});

test('sixteen requests per connection are processed at once, and other connections do not wait', async () => {
  // A request has started once its key was looked up.
  const begun = () => keyLookups(service);
  const before = await begun();
  const blocker = await blockCreates(service.location);
  const greedy = await connect();
  greedy.write(
    upTo(200)
      .map((n) => createRequest(n))
      .join(''),
  );
  await expect.poll(begun, { interval: 10 }).toBeGreaterThanOrEqual(before + 16);
  const ofGreedy = await begun();
  // The chunk with the sixteenth request may hold one or two more.
  expect(ofGreedy).toBeLessThanOrEqual(before + 18);
  const other = await connect();
  other.write(createRequest(1));
  await expect.poll(begun, { interval: 10 }).toBe(ofGreedy + 1);
  await blocker.release();
  expect(numbersOf(await readAnswers(greedy, 200))).toEqual(upTo(200));
  expect(numbersOf(await readAnswers(other, 1))).toEqual([1]);
  greedy.destroy();
  other.destroy();
});

test('unread answers wait, and arrive in order when they are read', async () => {
  const socket = await connect();
  socket.pause();
  const get = 'GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n';
  socket.write(get.repeat(60));
  const refused = await connect();
  refused.write('GET /nothing HTTP/1.1\r\nHost: localhost\r\n\r\n');
  expect((await readAnswers(refused, 1)).map(({ status }) => status)).toEqual([404]);
  const answers = await readAnswers(socket, 60);
  expect(answers.map(({ status }) => status)).toEqual(upTo(60).map(() => 200));
  expect(new Set(answers.map(({ body }) => body)).size).toBe(1);
  socket.destroy();
  refused.destroy();
});

test('valid requests before bytes that are not HTTP are answered, then the connection ends', async () => {
  const socket = await connect();
  socket.write(
    `${upTo(40)
      .map((n) => createRequest(n))
      .join('')}${'\u0000nonsense\r\n'.repeat(5_000)}`,
  );
  const answers = await readAnswers(socket, 50);
  expect(numbersOf(answers.slice(0, 40))).toEqual(upTo(40));
  expect(answers.slice(40)).toEqual([]);
});

test('a faulty request does not prevent the answer of the one before it', async () => {
  const blocker = await blockCreates(service.location);
  const socket = await connect();
  const unfinished = createRequest(1).replace(/Content-Length: \d+/, 'Transfer-Encoding: chunked');
  socket.write(createRequest(0) + unfinished.slice(0, unfinished.indexOf('\r\n\r\n') + 4));
  const answered = readAnswers(socket, 2);
  socket.write('not a chunk\r\n');
  await blocker.release();
  const [first] = await answered;
  expect([first?.status, JSON.parse(first?.body ?? '{}').metadata?.n]).toEqual([201, 0]);
});

test.each([1, 40])(
  'a client that closes its sending side after %i creates gets every answer',
  async (count) => {
    const socket = net.connect({
      port: Number(new URL(service.publicUrl).port),
      host: '127.0.0.1',
      allowHalfOpen: true,
    });
    socket.end(
      upTo(count)
        .map((n) => createRequest(n, 'x'.repeat(2_000)))
        .join(''),
    );
    expect(numbersOf(await readAnswers(socket, count + 1))).toEqual(upTo(count));
  },
);

test('CONNECT after creates is refused, and the creates are answered', async () => {
  const socket = await connect();
  const creates = upTo(3).map((n) => createRequest(n));
  socket.write(`${creates.join('')}CONNECT example.com:443 HTTP/1.1\r\nHost: example.com:443\r\n\r\n`);
  const answers = await readAnswers(socket, 5);
  expect(answers.map(({ status }) => status)).toEqual([201, 201, 201, 405]);
  expect(JSON.parse(answers[3]?.body ?? '{}').error).toMatchObject({ code: 'method_not_allowed' });
});
