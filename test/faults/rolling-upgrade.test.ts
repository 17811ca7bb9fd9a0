// Processes of the release before events and webhooks keep working during the migration and a rollout.

import { join } from 'node:path';
import { afterEach, beforeAll, expect, test } from 'vitest';
import { migrate } from '../../src/database/orm.ts';
import { pagesOf } from '../support/call.ts';
import { startReceiver } from '../support/receiver.ts';
import { postJson } from '../support/service.ts';
import { report, startLoad } from './support/load.ts';
import { endAll, type ServiceProcess, startProcess, useCluster } from './support/process.ts';
import { hasReleasedCode, releasedMigrations, unpackRelease } from './support/release.ts';

if (!hasReleasedCode)
  console.log('skipped: the code of the release before is not in this clone (git fetch --unshallow)');

let folder: string;

const cluster = useCluster(releasedMigrations);

beforeAll(async () => {
  folder = join(cluster.folder, 'release');
  if (hasReleasedCode) await unpackRelease(folder);
});

afterEach(endAll);

const startOld = async () => startProcess(cluster, {}, { folder });

/** A create, and its first answer. */
interface Created {
  idempotencyKey: string;
  body: string;
  id: string;
  answer: string;
}

async function create({ publicUrl }: ServiceProcess, idempotencyKey: string, body: string) {
  const headers = { 'idempotency-key': idempotencyKey };
  const answer = await postJson(`${publicUrl}/v1/payment_intents`, cluster.apiKey, body, { headers });
  return { status: answer.status, replayed: answer.headers['idempotent-replayed'], body: answer.body };
}

function createSome(service: ServiceProcess, name: string, count: number): Promise<Created[]> {
  return Promise.all(
    Array.from({ length: count }, async (_, i) => {
      const idempotencyKey = `${name}-${i}`;
      const body = JSON.stringify({ amount_units: i + 1, metadata: { order: idempotencyKey } });
      const answer = await create(service, idempotencyKey, body);
      expect([answer.status, answer.replayed]).toEqual([201, undefined]);
      return { idempotencyKey, body, id: JSON.parse(answer.body).id, answer: answer.body };
    }),
  );
}

/** Repeats the creates, all at once. */
const retry = (service: ServiceProcess, created: readonly Created[]) =>
  Promise.all(created.map(({ idempotencyKey, body }) => create(service, idempotencyKey, body)));

const firstAnswers = (created: readonly Created[]) =>
  created.map(({ answer }) => ({ status: 201, replayed: 'true', body: answer }));

/** Makes intents look as if they were created two hours ago. */
async function age(created: Created[]): Promise<Created[]> {
  const rows = await cluster.query<{ key: string; before: Date; after: Date }>(
    `update payment_intents i set created_at = i.created_at - interval '2 hours', expires_at = i.expires_at - interval '2 hours'
       from payment_intents b where b.id = i.id and i.idempotency_key = any ($1)
     returning i.idempotency_key as key, b.expires_at as before, i.expires_at as after`,
    [created.map(({ idempotencyKey }) => idempotencyKey)],
  );
  return created.map((each) => {
    const row = rows.find(({ key }) => key === each.idempotencyKey);
    const [before, after] = [row?.before.toISOString() ?? '', row?.after.toISOString() ?? ''];
    expect(each.answer).toContain(before);
    return { ...each, answer: each.answer.replace(before, after) };
  });
}

async function cancelAll({ call }: ServiceProcess, ids: readonly string[]): Promise<void> {
  const answers = await Promise.all(ids.map((id) => call('cancelPaymentIntent', { id })));
  expect(answers.map(({ code, json }) => `${code} ${json.status}`)).toEqual(ids.map(() => 'ok canceled'));
}

test.skipIf(!hasReleasedCode)('a release with events and webhooks is rolled out under load', async () => {
  const old = await startOld();
  const load = await startLoad(cluster, { services: [old], apiKey: cluster.apiKey, callers: 8 });
  const before = await createSome(old, 'before', 60);
  await load.progress(150);

  const startedAtMs = performance.now();
  const ran = await migrate(cluster.location);
  console.log(`${ran.length} migrations in ${Math.round(performance.now() - startedAtMs)} ms`);
  expect(ran.slice(0, 2)).toEqual(['2026-11-22-follow-payment-intents', '2026-11-22-deliver-webhooks']);
  const after = await createSome(old, 'after', 60);
  await load.progress(150);

  const next = await startProcess(cluster, { WEBHOOK_ALLOW: '127.0.0.1' });
  const receiver = await startReceiver();
  const endpoint = await next.call('createWebhookEndpoint', { url: receiver.url });
  expect(endpoint.code).toBe('ok');

  // Intents of the test, and some that the load creates meanwhile.
  const open = [...before.splice(0, 20), ...after.splice(0, 20)];
  const canceled = [...before.splice(0, 20), ...after.splice(0, 20)];
  const { json } = await next.call('listPaymentIntents', { page_size: 100 });
  const own = new Set([...open, ...canceled, ...before, ...after].map(({ id }) => id));
  const ofLoad = json.payment_intents.map(({ id }) => id).filter((id) => !own.has(id));
  expect(ofLoad.length).toBeGreaterThan(20);
  await Promise.all([cancelAll(next, [...canceled.map(({ id }) => id), ...ofLoad]), load.progress(150)]);
  const expired = await age([...before, ...after]);
  await load.progress(150);
  const ended = new Map([
    ...[...canceled.map(({ id }) => id), ...ofLoad].map((id): [string, string] => [id, 'canceled']),
    ...expired.map(({ id }): [string, string] => [id, 'expired']),
  ]);
  const requests = await receiver.arrived(ended.size);

  const figures = await load.finish();
  expect(load.failures).toEqual(new Map());
  report(figures, { canceled: canceled.length + ofLoad.length, expired: expired.length });

  // Each intent has one complete event.
  expect(requests).toHaveLength(ended.size);
  for (const { body } of requests) {
    const { type, sequence, data } = JSON.parse(body);
    const { id } = data.payment_intent;
    expect([type, sequence]).toEqual([`payment_intent.${ended.get(id)}`, 1]);
    const { client_secret, ...intent } = (await next.call('getPaymentIntent', { id })).json;
    expect(data.payment_intent).toEqual(intent);
    ended.delete(id);
  }
  expect(ended.size).toBe(0);
  const [positions] = await cluster.query(
    'select count(*)::int as events, count(distinct position)::int as positions, max(position)::int as last from events',
  );
  const count = requests.length;
  expect(positions).toEqual({ events: count, positions: count, last: count });
  // The new process has every intent of the old one in its lists.
  const [total] = await cluster.query<{ n: number }>('select count(*)::int as n from payment_intents');
  const listed = (await pagesOf(next.call, 'listPaymentIntents', { page_size: 100 })).flat();
  expect(new Set(listed.map(({ id }) => id)).size).toBe(total?.n);

  // A retry gets the first answer from the new process, and from the old one while the intent is open.
  for (const each of [open, canceled, expired]) {
    expect(await retry(next, each)).toEqual(firstAnswers(each));
  }
  // A rollback: another old process starts on the new schema.
  for (const service of [old, await startOld()]) {
    const [ofOpen, ofEnded] = await Promise.all([
      retry(service, open),
      retry(service, [...canceled, ...expired]),
    ]);
    expect(ofOpen).toEqual(firstAnswers(open));
    // As docs/operations.md says: the old code does not know the status of an intent that has ended.
    expect(ofEnded.map(({ status, body }) => [status, JSON.parse(body).error.code])).toEqual(
      ofEnded.map(() => [500, 'internal']),
    );
    await createSome(service, `at-last-${service.pid}`, 20);
  }
  const [now] = await cluster.query<{ n: number }>('select count(*)::int as n from payment_intents');
  expect(now?.n).toBe((total?.n ?? 0) + 40);
  await receiver.close();
  expect(next.log.filter(({ level }) => level === 'error' || level === 'fatal')).toEqual([]);
  for (const each of [old, next]) expect(await each.end('SIGTERM')).toEqual({ code: 0, signal: null });
});
