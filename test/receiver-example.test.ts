// examples/webhook-receiver.ts, unchanged: an event that it answers with 200 is processed, whatever happens.

import { randomBytes } from 'node:crypto';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { Webhook } from 'standardwebhooks';
import { afterEach, beforeEach, expect, onTestFinished, test } from 'vitest';
import { faultsFromOutside } from './support/faults-from-outside.ts';
import { useFolder } from './support/folder.ts';
import { startProgram } from './support/program.ts';
import { bareEnvironment } from './support/test-environment.ts';

const secret = `whsec_${randomBytes(32).toString('base64')}`;
let folder: string;
let file: string;
let receivers: Receiver[];

interface Receiver extends ReturnType<typeof startProgram> {
  url: string;
}

beforeEach(async () => {
  folder = await useFolder(onTestFinished);
  file = join(folder, 'events', 'jobs.sqlite');
  receivers = [];
});

afterEach(async () => {
  await Promise.all(receivers.map(({ end }) => end('SIGKILL')));
});

async function startReceiver(faults: Record<string, string> = {}): Promise<Receiver> {
  const options = ['--disable-warning=ExperimentalWarning', '--import', faultsFromOutside];
  const program = startProgram([process.execPath, ...options, 'examples/webhook-receiver.ts'], {
    env: { ...bareEnvironment(), PORT: '0', WEBHOOK_SECRET: secret, EVENTS_FILE: file, ...faults },
  });
  const receiver = { ...program, url: '' };
  receivers.push(receiver);
  [, receiver.url = ''] = await program.until(/^receiving at (\S+)$/m);
  return receiver;
}

/** Returns the status of the answer, or undefined if there was none. */
async function send(
  { url }: Receiver,
  id: string,
  { event = 'succeeded', status = 'succeeded', order = 'order-1', signedWith = secret } = {},
): Promise<number | undefined> {
  const intent = { id: 'pi_1', status, metadata: { order_id: order } };
  const body = JSON.stringify({ id, type: `payment_intent.${event}`, data: { payment_intent: intent } });
  const now = new Date();
  const headers = {
    'content-type': 'application/json',
    'webhook-id': id,
    'webhook-timestamp': String(Math.floor(now.getTime() / 1000)),
    'webhook-signature': new Webhook(signedWith).sign(id, now, body),
  };
  return fetch(url, { method: 'POST', headers, body }).then(
    (answer) => answer.status,
    () => undefined,
  );
}

function onJobs<T>(use: (database: DatabaseSync) => T): T {
  const database = new DatabaseSync(file, { timeout: 5_000 });
  try {
    return use(database);
  } finally {
    database.close();
  }
}

/** Simulates that a minute has passed: claimed jobs that are not done become due. */
const passAMinute = () =>
  onJobs((database) => database.exec('update jobs set due_at = 0 where due_at is not null'));

const openJobs = () =>
  onJobs((database) => database.prepare('select id from jobs where due_at is not null').all());

const untilNoJobIsOpen = () => expect.poll(openJobs).toEqual([]);

const fulfilled = (order: string) =>
  receivers.flatMap(({ printed }) => printed.output.split('\n')).filter((line) => line === `fulfil ${order}`)
    .length;

test('an order is fulfilled once, whatever events arrive', async () => {
  const receiver = await startReceiver();
  const other = `whsec_${randomBytes(32).toString('base64')}`;
  expect(await send(receiver, 'evt_0', { signedWith: other })).toBe(400);
  for (const [id, event, status] of [
    ['evt_1', 'processing', 'processing'],
    ['evt_2', 'succeeded', 'succeeded'],
    ['evt_2', 'succeeded', 'succeeded'],
    ['evt_3', 'overpaid', 'succeeded'],
    ['evt_4', 'reorged', 'succeeded'],
  ] as const) {
    expect(await send(receiver, id, { event, status })).toBe(200);
    await untilNoJobIsOpen();
  }
  const lines = () => (receiver.printed.errors + receiver.printed.output).trim().split('\n');
  await expect
    .poll(() => lines().filter((line) => !/^(?:refused: |receiving at )/.test(line)))
    .toEqual([
      'payment_intent.processing pi_1 evt_1',
      'payment_intent.succeeded pi_1 evt_2',
      'fulfil order-1',
      'payment_intent.overpaid pi_1 evt_3',
      'payment_intent.reorged pi_1 evt_4',
    ]);
});

test('work that throws is retried later, and does not end the process', async () => {
  const receiver = await startReceiver({ THROW_ONCE_AT: 'fulfil order-1' });
  expect(await send(receiver, 'evt_1')).toBe(200);
  await receiver.until(/the work of evt_1 is repeated in a minute: Error: thrown at/);
  // Other work goes on meanwhile.
  expect(await send(receiver, 'evt_2', { order: 'order-2' })).toBe(200);
  await expect.poll(() => fulfilled('order-2')).toBe(1);
  await expect.poll(openJobs).toEqual([{ id: 'evt_1' }]);
  passAMinute();
  await untilNoJobIsOpen();
  await expect.poll(() => fulfilled('order-1')).toBe(1);
  expect(receiver.child.exitCode).toBe(null);
});

// Before the insert, and after each step: the insert, the two calls that answer, claiming the job, both lines
// of the work, marking it done, and looking for more. Nothing changes between one step and the next.
const crashPoints = [1, 2, 4, 6, 8, 10, 12, 14, 16];
/** Between the work and its mark, the receiver cannot know that the work was done. */
const betweenWorkAndMark = 12;

test.each(crashPoints)('a receiver killed at point %d does the work after the next start', async (point) => {
  const first = await startReceiver({ KILL_AT: String(point) });
  const status = await send(first, 'evt_1');
  expect(await first.ended).toEqual([null, 'SIGKILL']);
  const second = await startReceiver();
  passAMinute();
  // The service sends again what was not answered, and nothing else.
  if (status !== 200) expect(await send(second, 'evt_1')).toBe(200);
  await untilNoJobIsOpen();
  await expect.poll(() => fulfilled('order-1')).toBe(point === betweenWorkAndMark ? 2 : 1);
});

test('two processes that share a file do the work of each event once', { timeout: 60_000 }, async () => {
  const both = await Promise.all([startReceiver(), startReceiver()]);
  const ids = Array.from({ length: 30 }, (_, i) => String(i));
  const statuses = await Promise.all(
    ids.flatMap((id) => both.map((receiver) => send(receiver, `evt_${id}`, { order: `order-${id}` }))),
  );
  expect(new Set(statuses)).toEqual(new Set([200]));
  await untilNoJobIsOpen();
  await expect.poll(() => ids.map((id) => fulfilled(`order-${id}`))).toEqual(ids.map(() => 1));
});
