// Standard output is not read, because the journal is stuck or the reader of a pipe hangs.

import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { open } from 'node:fs/promises';
import { afterEach, expect, test } from 'vitest';
import { type Door, doors, openCalls } from '../support/call.ts';
import { choosePorts } from '../support/listen.ts';
import { metric } from '../support/metrics.ts';
import { endAll, startProcess, untilReadyz, useCluster } from './support/process.ts';

const cluster = useCluster();

afterEach(endAll);

test('the service continues, its memory is bounded, and it logs how many lines were dropped', async () => {
  const service = await startProcess(cluster);
  const create = async (count: number) => {
    for (let i = 0; i < count; i++) {
      const { code } = await service.call(
        'createPaymentIntent',
        { amount_units: 1 },
        { door: doors[i % 2] as Door },
      );
      expect(code).toBe('ok');
    }
  };
  const load = (each: number) => Promise.all(Array.from({ length: 32 }, () => create(each)));
  const dropped = () => metric(service, 'payment_intents_log_lines_dropped_total');
  await load(40);
  expect(await dropped()).toBe(0);

  service.readLog(false);
  const before = await service.residentMb();
  // With about 350 bytes in a line, this is more than the pipe and the buffer of 4 MiB hold.
  await load(500);
  const droppedLines = await dropped();
  expect(droppedLines).toBeGreaterThan(1_000);
  const grewMb = (await service.residentMb()) - before;
  expect(grewMb).toBeLessThan(60);

  service.readLog(true);
  await create(1);
  await expect
    .poll(() => service.log.filter(({ level }) => level === 'warn'), { timeout: 5_000, interval: 20 })
    .toEqual([
      expect.objectContaining({
        dropped: expect.any(Number),
        message: 'log lines were dropped: standard output is not read fast enough',
      }),
    ]);
  console.log(`dropped ${droppedLines} lines; memory ${grewMb > 0 ? '+' : ''}${Math.round(grewMb)} MB`);
});

test('the service continues if the disk of the log is full', async () => {
  const ports = await choosePorts();
  const full = await open('/dev/full', 'w');
  const child = spawn(process.execPath, ['src/main.ts'], {
    env: { PATH: process.env.PATH, DATABASE_URL: cluster.url, ...cluster.secrets, RATE_LIMIT: '0', ...ports },
    stdio: ['ignore', full.fd, 'ignore'],
  });
  const exited = once(child, 'exit');
  const urls = {
    publicUrl: `http://127.0.0.1:${ports.HTTP_PORT}`,
    internalUrl: `http://127.0.0.1:${ports.GRPC_PORT}`,
    operationsUrl: `http://127.0.0.1:${ports.METRICS_PORT}`,
  };
  await untilReadyz(urls, 200, 10_000);
  const { call, close } = openCalls(urls, cluster.apiKey);
  for (let i = 0; i < 100; i++) {
    for (const door of doors) {
      const { code } = await call('createPaymentIntent', { amount_units: 1 }, { door });
      expect(code).toBe('ok');
    }
  }
  close();
  child.kill('SIGTERM');
  expect(await exited).toEqual([0, null]);
  await full.close();
});
