import { readFile } from 'node:fs/promises';
import http2 from 'node:http2';
import { setTimeout as sleep } from 'node:timers/promises';
import { parser as promqlParser } from '@prometheus-io/lezer-promql';
import { expect, test, vi } from 'vitest';
import { parse as parseYaml } from 'yaml';
import manifest from '../package.json' with { type: 'json' };
import { chainNamed } from '../src/contract/chains.ts';
import { catalogue } from '../src/contract/error-catalogue.ts';
import { readClockAheadMs } from '../src/database/replication.ts';
import { createMetrics } from '../src/telemetry/metrics.ts';
import { blockCreates } from './support/blocker.ts';
import { doors } from './support/call.ts';
import { startChain, type TestChain } from './support/chain.ts';
import { httpRequest, startService, type TestService } from './support/service.ts';
import { useService } from './support/use-service.ts';

const service = await useService();

/** All samples of `GET /metrics` by name and labels, as in `up{job="x"}`. */
async function scrape(from: TestService = service): Promise<Map<string, number>> {
  const answer = await fetch(`${from.operationsUrl}/metrics`);
  expect(answer.status).toBe(200);
  expect(answer.headers.get('content-type')).toBe('text/plain; version=0.0.4; charset=utf-8');
  const samples = (await answer.text()).split('\n').filter((line) => line !== '' && !line.startsWith('#'));
  return new Map(
    samples.map((line) => {
      const space = line.lastIndexOf(' ');
      return [line.slice(0, space), Number(line.slice(space + 1))];
    }),
  );
}

const authorization = () => `Bearer ${service.merchant.keys.testnet.apiKey}`;
const requests = (door: string, method: string, code: string) =>
  `payment_intents_requests_total{door="${door}",method="${method}",code="${code}"}`;

test('counts every request once, by door, method and code, with its duration', async () => {
  for (const door of doors) {
    for (let i = 0; i < 3; i++)
      await service.call(
        'createPaymentIntent',
        { amount_units: 1 },
        { door, authorization: authorization() },
      );
    await service.call('createPaymentIntent', { amount_units: 0 }, { door, authorization: authorization() });
    await service.call('createPaymentIntent', { amount_units: 1 }, { door, apiKey: null });
  }
  await httpRequest(`${service.publicUrl}/nothing?${'x'.repeat(100)}`, {});
  const samples = await scrape();
  for (const door of ['public', 'internal']) {
    expect(samples.get(requests(door, 'CreatePaymentIntent', 'ok'))).toBe(3);
    expect(samples.get(requests(door, 'CreatePaymentIntent', 'invalid_body'))).toBe(1);
    expect(samples.get(requests(door, 'CreatePaymentIntent', 'api_key_missing'))).toBe(1);
    const labels = `door="${door}",method="CreatePaymentIntent"`;
    expect(samples.get(`payment_intents_request_duration_seconds_count{${labels}}`)).toBe(5);
    expect(samples.get(`payment_intents_request_duration_seconds_bucket{le="10",${labels}}`)).toBe(5);
  }
  // An unknown path does not create a series.
  expect(samples.get(requests('public', 'none', 'not_found'))).toBe(1);
});

test('the size of each group commit', async () => {
  const before = await scrape();
  const [{ n } = { n: 0 }] = await service.query<{ n: number }>(
    'select count(*)::int as n from payment_intents',
  );
  await Promise.all(
    Array.from({ length: 40 }, () =>
      service.call(
        'createPaymentIntent',
        { amount_units: 1 },
        { door: 'grpc', authorization: authorization() },
      ),
    ),
  );
  const after = await scrape();
  expect(before.get('payment_intents_commit_batch_size_sum')).toBe(n);
  expect(after.get('payment_intents_commit_batch_size_sum')).toBe(n + 40);
  const statements = (samples: Map<string, number>) =>
    samples.get('payment_intents_commit_batch_size_count') ?? 0;
  expect(statements(after) - statements(before)).toBeLessThan(40);
  expect(after.get('payment_intents_commit_duration_seconds_count')).toBe(statements(after));
  expect(after.get('payment_intents_commit_queue_length')).toBe(0);
});

test('cached and uncached key lookups', async () => {
  const lookups = (samples: Map<string, number>, result: string) =>
    samples.get(`payment_intents_key_lookups_total{result="${result}"}`) ?? 0;
  const mainnet = `Bearer ${service.merchant.keys.mainnet.apiKey}`;
  const before = await scrape();
  await service.call('createPaymentIntent', { amount_units: 1 }, { authorization: mainnet });
  await service.call('createPaymentIntent', { amount_units: 1 }, { authorization: mainnet });
  const after = await scrape();
  expect(lookups(after, 'miss') - lookups(before, 'miss')).toBe(1);
  expect(lookups(after, 'hit') - lookups(before, 'hit')).toBe(1);
});

test('the pool, open connections, readiness, the event loop and the build', async () => {
  const session = http2.connect(service.internalUrl);
  await new Promise((resolve) => session.once('remoteSettings', resolve));
  const samples = await scrape();
  const state = (name: string) => samples.get(`payment_intents_database_connections{state="${name}"}`);
  expect((state('idle') ?? 0) + (state('busy') ?? 0)).toBeGreaterThan(0);
  expect(state('awaited')).toBe(0);
  // The session above and that of the gRPC client.
  expect(samples.get('payment_intents_open_connections{port="internal"}')).toBe(2);
  expect(samples.get('payment_intents_ready')).toBe(1);
  expect(samples.get('nodejs_eventloop_lag_p99_seconds')).toBeGreaterThan(0);
  expect(samples.get('process_resident_memory_bytes')).toBeGreaterThan(10_000_000);
  expect(
    samples.get(`payment_intents_build_info{version="${manifest.version}",node="${process.version}"}`),
  ).toBe(1);
  session.close();
});

test("how far this machine's clock is ahead of the database's", async () => {
  vi.spyOn(Date, 'now').mockReturnValue(Date.now() + 3_600_000);
  const aheadMs = await readClockAheadMs(service.database.orm.em).finally(() => vi.restoreAllMocks());
  expect(Math.round(aheadMs / 60_000)).toBe(60);
  expect((await scrape()).get('payment_intents_clock_ahead_seconds')).toBeLessThan(60);
});

test('a process that no longer watches a chain does not export its last reorganisation', async () => {
  const metrics = createMetrics();
  const chain = metrics.chain('testnet', 'base', { blockTimeMs: 200, faults: [], events: [] });
  const depth = 'payment_intents_chain_reorganisation_depth_blocks{';
  chain.reorganisation({ depth: 3, transfers: 0, isFinal: false });
  expect((await metrics.text()).body).toContain(depth);
  chain.leaseLost();
  expect((await metrics.text()).body).not.toContain(depth);
});

test('without TLS no certificate is due to be replaced', async () => {
  const text = await (await fetch(`${service.operationsUrl}/metrics`)).text();
  expect(text).toContain('\npayment_intents_tls_certificate_due_timestamp_seconds +Inf\n');
});

test('the public port has no metrics', async () => {
  expect((await fetch(`${service.publicUrl}/metrics`)).status).toBe(404);
});

test('the series of alerts exist from the start, at zero', async () => {
  const fresh = await startService();
  const samples = await scrape(fresh);
  for (const door of ['public', 'internal']) {
    for (const code of Object.keys(catalogue)) {
      expect([code, samples.get(requests(door, 'CreatePaymentIntent', code))]).toEqual([code, 0]);
    }
  }
  await fresh.close();
});

test('creates that wait for the database, and callers that wait for a connection', async () => {
  const blocked = await startService({
    ...{ DATABASE_POOL: '1', QUEUE_TIMEOUT: '60', DATABASE_TIMEOUT: '60', DATABASE_CONNECT_TIMEOUT: '60' },
  });
  await blocked.call('createPaymentIntent', { amount_units: 1 });
  const blocker = await blockCreates(blocked.location);
  const create = () => blocked.call('createPaymentIntent', { amount_units: 1 });
  // One statement uses the only connection, the next waits for it, and the rest wait for a statement to end. Creates that
  // arrive at once share a statement, so a probe separates them: a scrape takes seconds while the database is blocked.
  const creates: ReturnType<typeof create>[] = [];
  const createSome = async () => {
    for (let i = 0; i < 8; i++) {
      creates.push(create());
      await fetch(`${blocked.operationsUrl}/healthz`);
    }
    return scrape(blocked);
  };
  for (;;) {
    const samples = await createSome();
    const isPositive = (series: string) => (samples.get(series) ?? 0) > 0;
    if (
      isPositive('payment_intents_database_connections{state="awaited"}') &&
      isPositive('payment_intents_commit_queue_length')
    )
      break;
  }
  await blocker.release();
  expect(new Set((await Promise.all(creates)).map(({ code }) => code))).toEqual(new Set(['ok']));
  expect((await scrape(blocked)).get('payment_intents_commit_queue_length')).toBe(0);
  await blocked.close();
});

/** Makes a payment. Resolves when the service has seen it. */
async function payOnce(chain: TestChain): Promise<void> {
  const [payer] = chain.accounts;
  await chain.mint(payer.address, 1n);
  await chain.transfer({ from: payer.address, to: service.merchant.wallets.testnet.base, amountUnits: 1n });
  await chain.mine();
  await service.loggedLine(({ event }) => typeof event === 'string');
}

/** The queries in the dashboard and the rules, and the alerts in the documentation and the rules. */
async function givenQueries() {
  const dashboard = JSON.parse(await readFile('ops/grafana-dashboard.json', 'utf8')) as {
    panels: { title: string; targets: { expr: string }[] }[];
  };
  const operations = await readFile('docs/operations.md', 'utf8');
  const { groups } = parseYaml(await readFile('ops/prometheus-rules.yaml', 'utf8')) as {
    groups: { rules: { alert: string; expr: string; labels: { severity: string } }[] }[];
  };
  const given = groups.flatMap(({ rules }) => rules);
  return {
    dashboard: dashboard.panels.flatMap(({ targets }) => targets.map(({ expr }) => expr)),
    rules: given.map(({ expr }) => expr),
    documented: [...operations.matchAll(/^\| `(PaymentIntents\w+)`, (\w+) /gm)].map(([, ...row]) => row),
    // On a testnet, some pages are tickets.
    alerts: given.map(({ alert, labels }) => [alert, /page/.exec(labels.severity)?.[0] ?? labels.severity]),
  };
}

test('the documentation explains exactly the shipped alerts', async () => {
  const { documented, alerts } = await givenQueries();
  expect(alerts).toEqual(documented);
});

test('the alert on clocks has the limit that its summary and the documentation give', async () => {
  const rules = await readFile('ops/prometheus-rules.yaml', 'utf8');
  const [, expression, summary] =
    /- alert: PaymentIntentsClock\n +expr: (.+)\n(?:.+\n)+? +summary: (.+)/.exec(rules) ?? [];
  expect(expression).toBe('max by (instance) (abs(payment_intents_clock_ahead_seconds)) > 10');
  const row = /^\| `PaymentIntentsClock`.*$/m.exec(await readFile('docs/operations.md', 'utf8'))?.[0];
  for (const text of [summary, row]) expect(text).toMatch(/more than 10 s(?:econds)? apart/);
});

test('every query of the dashboard and every alert is valid PromQL on existing series', async () => {
  for (const door of doors)
    await service.call('createPaymentIntent', { amount_units: 1 }, { door, authorization: authorization() });
  const chain = await startChain();
  const nodes = { ...chainNamed('testnet', 'base'), urls: [chain.url] as const };
  await service.server.watch([nodes], 50);
  service.server.addFacilitator({ ...nodes, facilitator: { url: chain.url } });
  await payOnce(chain);
  const isMeasured = (name: string) => name.startsWith('payment_intents_chain_unconfirmed_oldest_seconds{');
  let samples: string[] = [];
  // The last thing that is measured after a block.
  while (!samples.some(isMeasured)) {
    samples = [...(await scrape()).keys()];
    await sleep(20);
  }
  await chain.stop();
  const { dashboard, rules } = await givenQueries();
  const queries = [...dashboard, ...rules];
  expect(queries.length).toBeGreaterThan(20);
  for (const query of queries) {
    // Grafana's variables take the place of durations.
    const promql = query.replaceAll('$__rate_interval', '5m');
    promqlParser.parse(promql).iterate({
      enter: ({ type, from }) => {
        if (type.isError) throw new Error(`no PromQL at ${from}: ${query}`);
      },
    });
    const selectors = [...query.matchAll(/((?:payment_intents|nodejs|process)_\w+)(?:\{([^}]*)\})?/g)];
    expect(selectors.length, query).toBeGreaterThan(0);
    for (const [, name = '', matchers = ''] of selectors) {
      const series = samples.filter((sample) => sample.replace(/\{.*/, '') === name);
      expect(series.length, `${name} in ${query}`).toBeGreaterThan(0);
      // Prometheus adds the labels job and instance; every other label must be one of the series.
      const labels = [...matchers.matchAll(/(\w+)(?:=~|=)/g), ...query.matchAll(/by \(([\w, ]+)\)/g)]
        .flatMap(([, found = '']) => found.split(/, */))
        .filter((label) => !['job', 'instance'].includes(label));
      for (const label of name.startsWith('process_') ? [] : labels)
        expect(series[0], query).toContain(`${label}="`);
      for (const [, label, value] of matchers.matchAll(/(\w+)="([^"$]*)"/g)) {
        expect(series.join('\n'), query).toContain(`${label}="${value}"`);
      }
    }
  }
});
