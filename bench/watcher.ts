// A process that watches chains like the role `watcher`, and records when it has committed each block.

import http from 'node:http';
import { chains } from '../src/contract/chains.ts';
import { createOrm } from '../src/database/orm.ts';
import { createPositioner } from '../src/events/position-events.ts';
import { watchChains } from '../src/processes/watch-chains.ts';
import { startRepeater } from '../src/scheduling/repeater.ts';
import { createLogger } from '../src/telemetry/logging.ts';
import { createMetrics } from '../src/telemetry/metrics.ts';
import { createDeliveries } from '../src/webhooks/delivery-queue.ts';
import type { Watched } from './following.ts';

const { LOCATION = '', POLL_MS, PORT, ...environment } = process.env;
const orm = createOrm(JSON.parse(LOCATION), 10);
const { em } = orm;
const logger = createLogger('error', process.stderr);
const watched: Watched = { blocks: [], requests: {}, longestGapMs: 0, longestWorkMs: 0 };

/** The processor time of this thread, in ms. Unlike the clock, it leaves out time that others took. */
const busy = () => {
  const { user, system } = process.threadCpuUsage();
  return (user + system) / 1_000;
};
let [turnedAt, busyAt] = [performance.now(), busy()];
setInterval(() => {
  const [now, busyNow] = [performance.now(), busy()];
  watched.longestGapMs = Math.max(watched.longestGapMs, now - turnedAt - 1);
  watched.longestWorkMs = Math.max(watched.longestWorkMs, busyNow - busyAt);
  [turnedAt, busyAt] = [now, busyNow];
}, 1).unref();

const { positionAll } = createPositioner(em, createDeliveries);
const positions = startRepeater({
  name: 'positions of events',
  work: async () => {
    await positionAll();
    return false;
  },
  intervalMs: undefined,
  logger,
});
const metrics = createMetrics();
const watching = await watchChains(em, {
  nodes: chains.flatMap((chain) => {
    const url = environment[chain.rpcVariable];
    return url === undefined ? [] : [{ ...chain, urls: [url] as const }];
  }),
  databaseTimeoutMs: 10_000,
  metrics: {
    ...metrics,
    chain: (...of) => ({
      ...metrics.chain(...of),
      block: (block) => void watched.blocks.push({ ...block, committedAtMs: Date.now() }),
      nodeRequest(method) {
        watched.requests[method] = (watched.requests[method] ?? 0) + 1;
      },
    }),
  },
  logger,
  onEvent: positions.wake,
  unattributedMinUnits: 10_000n,
  ...(POLL_MS && { pollMs: Number(POLL_MS) }),
});

const server = http.createServer((_, response) => {
  response.end(JSON.stringify(watched));
  [watched.longestGapMs, watched.longestWorkMs] = [0, 0];
});
server.listen(Number(PORT), '127.0.0.1', () => console.log('ready'));
process.once('SIGTERM', async () => {
  server.close();
  server.closeAllConnections();
  await watching.stop();
  await positions.stop();
  await orm.close();
});
