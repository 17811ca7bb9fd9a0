// Restores the cluster to a moment, and to everything that was archived, with the commands of
// docs/operations.md, while clients call.

import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { type Load, startLoad } from '../faults/support/load.ts';
import { startChain, type TestChain } from '../support/chain.ts';
import { documentedCommands } from '../support/documentation.ts';
import { type HaCluster, startHaCluster } from './support/cluster.ts';
import { openShop, type Shop } from './support/traffic.ts';

const run = promisify(execFile);

let chain: TestChain;
let cluster: HaCluster;
let shop: Shop;
let blocks: NodeJS.Timeout;

beforeAll(async () => {
  chain = await startChain();
  cluster = await startHaCluster({ RPC_URL_BASE_SEPOLIA: chain.url, WEBHOOK_ALLOW: '127.0.0.1' });
  shop = await openShop(cluster, chain);
  // `doctor` waits for watchers that read new blocks.
  blocks = setInterval(() => void chain.mine(), 1_000);
});

afterAll(async () => {
  clearInterval(blocks);
  await cluster.stop();
  await shop.receiver.close();
  await chain.stop();
});

/** The longest that a restore of so little data may take. */
const mostMs = 15 * 60_000;
let acknowledgedAtMs = 0;

const startCreates = (): Promise<Load> =>
  startLoad(cluster, {
    services: [cluster.endpoints],
    apiKey: shop.apiKey,
    callers: 8,
    restMs: 80,
    // Creates that were acknowledged after the moment.
    mayLose: true,
    onAcknowledged() {
      acknowledgedAtMs = Date.now();
    },
  });

/** Runs the commands of the runbook. Returns their duration. */
async function restore(env: Record<string, string>, change = (commands: string) => commands) {
  const beganAtMs = performance.now();
  const commands =
    change(await documentedCommands('Commands of a restore')) +
    (await documentedCommands('Before the doors open'));
  await run('bash', ['-ec', commands], { cwd: 'ops/ha', env: { ...cluster.env, ...env }, timeout: mostMs });
  return Math.round((performance.now() - beganAtMs) / 1_000);
}

const idsUpTo = (moment: string) =>
  cluster.query<{ id: string }>(
    'select id from payment_intents where created_at <= $1::timestamptz order by id',
    [moment],
  );

/** Resolves when the archive has everything committed so far, after a minute at most. */
async function untilArchived(): Promise<void> {
  const [{ segment } = { segment: '' }] = await cluster.query<{ segment: string }>(
    'select pg_walfile_name(pg_current_wal_lsn()) as segment',
  );
  const isArchived = `select from pg_stat_archiver where last_archived_wal >= '${segment}'`;
  await expect.poll(() => cluster.query(isArchived), { timeout: 120_000 }).toHaveLength(1);
}

test('a restore to a moment has everything from before and nothing from after it', {
  timeout: 2 * mostMs,
}, async () => {
  // Then the backup comes from another member.
  if ((await cluster.memberIn('Leader')) === 'one') {
    await cluster.member('one', 'ctl', 'switchover', '--force');
    await cluster.untilWhole();
  }
  const load = await startCreates();
  await load.progress(200);
  await cluster.member(await cluster.memberIn('Leader'), 'backup', 'diff');
  await load.progress(200);
  const [{ moment } = { moment: '' }] = await cluster.query<{ moment: string }>(
    "select (now() - interval '2 seconds')::text as moment",
  );
  const before = await idsUpTo(moment);
  await load.progress(200);
  await untilArchived();
  const tookS = await restore({ MOMENT: moment });
  await load.progress(100);
  await cluster.untilWhole(600_000);
  expect(await idsUpTo(moment)).toEqual(before);
  const { acknowledged, lost, doubled } = await load.finish();
  console.log(
    `restored to a moment in ${tookS} s; ${before.length} before it, ${lost} of ${acknowledged} after it, ${doubled} doubled`,
  );
});

test('a restore after the loss of every disk loses at most a minute', { timeout: 2 * mostMs }, async () => {
  const load = await startCreates();
  await untilArchived();
  await load.progress(1_000);
  for (const name of ['three', 'two', 'one']) await cluster.turnOff(name, ['patroni']);
  const diedAtMs = acknowledgedAtMs;
  for (const name of ['one', 'two', 'three']) {
    await run('find', [`${cluster.folder}/${name}/postgres`, '-mindepth', '1', '-delete']);
  }
  const tookS = await restore({}, (commands) =>
    commands.replace(/--type=time --target="[^"]*" --target-action=promote/, '--type=default'),
  );
  const [{ newest_ms } = { newest_ms: 0 }] = await cluster.query<{ newest_ms: number }>(
    `select (extract(epoch from max(created_at)) * 1000)::float as newest_ms
       from payment_intents where created_at < to_timestamp($1 / 1000.0)`,
    [diedAtMs],
  );
  const lostS = Math.round((diedAtMs - newest_ms) / 100) / 10;
  await load.progress(100);
  await cluster.untilWhole(600_000);
  const { acknowledged, lost, doubled } = await load.finish();
  console.log(
    `restored all in ${tookS} s; the last ${lostS} s are lost: ${lost} of ${acknowledged}, ${doubled} doubled`,
  );
  expect(lostS).toBeLessThan(60);
});
