// How many signed deliveries a second one process makes, and what limits it; and how late an event reaches a
// working endpoint while others never answer.

import { setTimeout as sleep } from 'node:timers/promises';
import { formatIdentifier } from '../src/database/identifiers.ts';
import {
  type Arrivals,
  createEndpoints,
  createMerchants,
  loopbackAllowed,
  makeDeliveries,
  type Receiver,
  startReceiver,
  untilAnswered,
  verifyKept,
} from './deliveries.ts';
import { fillPaymentIntents } from './fill.ts';
import {
  inTurn,
  median,
  onThisMachine,
  type PreparedDatabase,
  percentile,
  postgresCpuSeconds,
  prepareAnother,
  prepareDatabase,
  publish,
  type Running,
  type Setting,
  startOurs,
  table,
  withSetting,
} from './setting.ts';

const merchants = 20;
const endpointsEach = 5;
/** Deliveries that warm the process up, so that the JIT compiler has optimised it. */
const warmUpDeliveries = 4_000;
/** Deliveries for each second that the measurement should take. */
const deliveriesPerSecond = 2_000;
const hangingEndpoints = 50;
/** Deliveries that wait for each endpoint that hangs. */
const waitingEach = 100;
const eventsPerSecond = 50;

interface Throughput {
  perSecond: number;
  /** Processor time, in microseconds a delivery. */
  service: number;
  postgres: number;
  receiver: number;
}

const neighbours = ['none', 'of other merchants', 'of the same merchant'] as const;
type Neighbours = (typeof neighbours)[number];

interface Latency {
  events: number;
  p50Ms: number;
  p99Ms: number;
  maxMs: number;
}

export async function measureWebhooks({
  rounds,
  seconds,
}: {
  rounds: number;
  seconds: number;
}): Promise<void> {
  await withSetting(async (setting) => {
    const admin = await prepareDatabase(setting.postgres);
    const receiver = await startReceiver();
    const throughputs: Throughput[] = [];
    let verified = 0;
    const latencies: Record<Neighbours, Latency[]> = {
      none: [],
      'of other merchants': [],
      'of the same merchant': [],
    };
    for (let round = 0; round < rounds; round++) {
      const database = await prepareAnother(admin, `deliveries_${round}`);
      const { throughput, verified: some } = await measureThroughput(setting, database, receiver, seconds);
      await database.orm.close();
      throughputs.push(throughput);
      verified += some;
      console.error(`${Math.round(throughput.perSecond)} deliveries/s`);
      for (const kind of inTurn(neighbours, round)) {
        const other = await prepareAnother(admin, `latency_${neighbours.indexOf(kind)}_${round}`);
        const latency = await measureLatency(other, receiver, kind, seconds);
        await other.orm.close();
        latencies[kind].push(latency);
        console.error(
          `endpoints that hang ${kind}: p50 ${latency.p50Ms} ms, p99 ${latency.p99Ms} ms, at most ${latency.maxMs} ms`,
        );
      }
    }
    await Promise.all([receiver.stop(), admin.orm.close()]);
    await publish('results-webhooks.md', report(throughputs, verified, latencies, rounds, seconds));
  });
}

/** Delivers a backlog that is held back until the process is warm. */
async function measureThroughput(
  setting: Setting,
  database: PreparedDatabase,
  receiver: Receiver,
  seconds: number,
): Promise<{ throughput: Throughput; verified: number }> {
  const { orm } = database;
  const merchantIds = await createMerchants(database, merchants);
  const secrets = new Map<string, string>();
  for (const [m, merchantId] of merchantIds.entries()) {
    const urls = Array.from({ length: endpointsEach }, (_, e) => receiver.url('answers', `${m}-${e}`));
    for (const [path, secret] of await createEndpoints(database, merchantId, urls)) secrets.set(path, secret);
  }
  const eventsEach = (deliveries: number) => Math.ceil(deliveries / (merchants * endpointsEach));
  const measured = eventsEach(deliveriesPerSecond * seconds);
  await makeDeliveries(database, merchantIds, measured);
  await orm.em.execute("update webhook_deliveries set next_attempt_at = now() + interval '1 day'");
  await makeDeliveries(database, merchantIds, eventsEach(warmUpDeliveries));
  await receiver.forget();
  const service = await startOurs(
    { ...database.environment, ...loopbackAllowed, ROLES: 'deliveries' },
    'HTTP_PORT',
  );
  await untilAnswered(receiver, warmUpDeliveries);
  await untilRecorded(database, "status = 'pending' and next_attempt_at < now() + interval '1 hour'");
  await orm.em.execute('checkpoint');
  await receiver.forget();

  const deliveries = measured * merchants * endpointsEach;
  await orm.em.execute("update webhook_deliveries set next_attempt_at = now() where status = 'pending'");
  await untilAnswered(receiver, 1);
  const before = await cpuOf(setting, service, receiver);
  await untilAnswered(receiver, deliveries);
  await untilRecorded(database, "status = 'pending'");
  const after = await cpuOf(setting, service, receiver);
  const arrivals = await receiver.arrivals();
  await service.stop();
  if (arrivals.count !== deliveries) {
    throw new Error(`${arrivals.count} requests have arrived for ${deliveries} deliveries`);
  }
  const microsEach = (of: keyof typeof after) => ((after[of] - before[of]) * 1e6) / deliveries;
  return {
    throughput: {
      perSecond: (deliveries * 1000) / (arrivals.lastAtMs - arrivals.firstAtMs),
      service: microsEach('service'),
      postgres: microsEach('postgres'),
      receiver: microsEach('receiver'),
    },
    verified: verifyKept(arrivals, secrets),
  };
}

async function untilRecorded({ orm }: PreparedDatabase, condition: string): Promise<void> {
  for (;;) {
    const [row] = await orm.em.execute<{ left: boolean }[]>(
      `select exists (select from webhook_deliveries where ${condition}) as left`,
    );
    if (row?.left !== true) return;
    await sleep(50);
  }
}

async function cpuOf(setting: Setting, service: Running, receiver: Running) {
  return {
    service: await service.cpuSeconds(),
    postgres: await postgresCpuSeconds(setting),
    receiver: await receiver.cpuSeconds(),
  };
}

/** Cancels intents at a steady pace. Each cancel is an event for one endpoint that answers. */
async function measureLatency(
  database: PreparedDatabase,
  receiver: Receiver,
  kind: Neighbours,
  seconds: number,
): Promise<Latency> {
  const { orm, merchantId, apiKey, environment } = database;
  const hanging = Array.from({ length: hangingEndpoints }, (_, i) => receiver.url('hangs', i));
  if (kind === 'of other merchants') {
    const others = await createMerchants(database, hangingEndpoints);
    for (const [i, url] of hanging.entries()) await createEndpoints(database, others[i] ?? '', [url]);
    await makeDeliveries(database, others, waitingEach);
  }
  if (kind === 'of the same merchant') {
    await createEndpoints(database, merchantId, hanging);
    await makeDeliveries(database, [merchantId], waitingEach);
  }
  await createEndpoints(database, merchantId, [receiver.url('answers', 'healthy')]);
  // The first ones are canceled before the measurement.
  const warmUp = eventsPerSecond;
  const count = eventsPerSecond * seconds;
  await fillPaymentIntents(orm.em, [merchantId], 'open', count + warmUp);
  const ids = (
    await orm.em.execute<{ id: string }[]>("select id from payment_intents where status = 'requires_payment'")
  ).map(({ id }) => formatIdentifier('pi', id));

  await receiver.forget();
  const service = await startOurs({ ...environment, ...loopbackAllowed }, 'HTTP_PORT');
  await cancelEach(service, apiKey, ids.splice(0, warmUp));
  await untilAnswered(receiver, warmUp);
  await cancelEach(service, apiKey, ids);
  await untilAnswered(receiver, warmUp + count);
  const { byEvent, hanging: unanswered } = await receiver.arrivals();
  if (kind !== 'none' && unanswered < hangingEndpoints) throw new Error(`only ${unanswered} requests hang`);
  await receiver.forget();
  const created = await orm.em.execute<{ id: string; at: string }[]>(
    `select id, extract(epoch from created_at) * 1000 as at from events
      where type = 'payment_intent.canceled' order by created_at offset ${warmUp}`,
  );
  await service.stop();
  return latencyOf(byEvent, created);
}

async function cancelEach({ port }: Running, apiKey: string, ids: readonly string[]): Promise<void> {
  const startedAtMs = performance.now();
  const headers = { authorization: `Bearer ${apiKey}`, 'content-type': 'application/json' };
  const answers = ids.map(async (id, i) => {
    await sleep(Math.max(0, startedAtMs + (i * 1000) / eventsPerSecond - performance.now()));
    const url = `http://127.0.0.1:${port}/v1/payment_intents/${id}/cancel`;
    const answer = await fetch(url, { method: 'POST', headers, body: '{}' });
    if (answer.status !== 200)
      throw new Error(`a cancel was answered ${answer.status}: ${await answer.text()}`);
    await answer.arrayBuffer();
  });
  await Promise.all(answers);
}

function latencyOf(byEvent: Arrivals['byEvent'], created: readonly { id: string; at: string }[]): Latency {
  const late = created.flatMap(({ id, at }) => {
    const arrivedAtMs = byEvent[formatIdentifier('evt', id)];
    return arrivedAtMs === undefined ? [] : [Math.round(arrivedAtMs - Number(at))];
  });
  return {
    events: late.length,
    p50Ms: percentile(late, 0.5),
    p99Ms: percentile(late, 0.99),
    maxMs: percentile(late, 1),
  };
}

function report(
  throughputs: readonly Throughput[],
  verified: number,
  latencies: Record<Neighbours, readonly Latency[]>,
  rounds: number,
  seconds: number,
): string {
  const of = (figure: keyof Throughput) => throughputs.map((throughput) => throughput[figure]);
  const processes = ['service', 'postgres', 'receiver'] as const;
  const names = { service: 'our process', postgres: 'PostgreSQL', receiver: 'the receiver' };
  const cores = (name: (typeof processes)[number]) =>
    throughputs.map((throughput) => (throughput[name] * throughput.perSecond) / 1e6);
  const all = throughputs.map((t) => ((t.service + t.postgres + t.receiver) * t.perSecond) / 1e6);
  const paces = of('perSecond');
  const figure = (kind: Neighbours, name: keyof Latency) => median(latencies[kind].map((l) => l[name]));
  return `# Webhooks

\`npm run bench -- --webhooks\` ${onThisMachine()}; ${rounds} rounds, PostgreSQL with its default settings and the receiver on the same machine.

## Deliveries a second

${(Math.ceil((deliveriesPerSecond * seconds) / (merchants * endpointsEach)) * merchants * endpointsEach).toLocaleString('en')} deliveries wait for ${merchants * endpointsEach} endpoints of ${merchants} merchants. One process with \`ROLES=deliveries\` sends them, from the first arrival to the last. The receiver is one process that answers 204 at once. ${verified.toLocaleString('en')} of the requests were kept, and their signatures verified.

**${Math.round(median(paces)).toLocaleString('en')} deliveries/s** (${Math.round(Math.min(...paces)).toLocaleString('en')} to ${Math.round(Math.max(...paces)).toLocaleString('en')}; target: at least 1,500).

${table(
  ['processor time', 'µs a delivery', 'cores in use'],
  [
    ...processes.map((name) => [names[name], Math.round(median(of(name))), median(cores(name)).toFixed(2)]),
    [
      'together',
      Math.round(median(throughputs.map((t) => t.service + t.postgres + t.receiver))),
      median(all).toFixed(2),
    ],
  ],
)}

Our process is one thread: it is the limit if it uses nearly one core, and the machine is the limit if all its cores are in use.

## Endpoints that never answer

From the moment of the event to its arrival at an endpoint that answers, at ${eventsPerSecond} events a second for ${seconds} s, while ${hangingEndpoints} other endpoints never answer. Each of those has ${waitingEach} deliveries waiting when the process starts, and those of the same merchant get each event besides. One process with all roles.

${table(
  ['endpoints that never answer', 'p50 ms', 'p99 ms', 'at most, ms', 'target of p99'],
  neighbours.map((kind) => [
    kind,
    Math.round(figure(kind, 'p50Ms')),
    Math.round(figure(kind, 'p99Ms')),
    Math.max(...latencies[kind].map(({ maxMs }) => maxMs)),
    kind === 'none' ? '' : 'under 500 ms',
  ]),
)}
`;
}
