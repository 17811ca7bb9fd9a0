// The role, the database and the rights, created by the commands in docs/operations.md.

import { execFile } from 'node:child_process';
import { glob, readFile } from 'node:fs/promises';
import { promisify } from 'node:util';
import { create } from '@bufbuild/protobuf';
import pg from 'pg';
import { getAddress } from 'viem/utils';
import { afterAll, expect, test } from 'vitest';
import { listAttention, resolveAttention } from '../src/console/attention.ts';
import { createAuditRemoval } from '../src/console/audit.ts';
import { createReportFolding, getSummary } from '../src/console/reports.ts';
import type { ConsoleCaller } from '../src/console/rights.ts';
import {
  GetSummaryRequestSchema,
  ListAttentionRequestSchema,
  ResolveAttentionRequestSchema,
} from '../src/contract/gen/console/v1/console_service_pb.ts';
import { parseIdentifier } from '../src/database/identifiers.ts';
import { createOrm } from '../src/database/orm.ts';
import { type Cluster, endAll, startProcess } from './faults/support/process.ts';
import { runAdmin } from './support/admin.ts';
import { doors } from './support/call.ts';
import { asSuperuser, documentedCommands } from './support/documentation.ts';
import { startOwnPostgres } from './support/own-postgres.ts';
import { succeeds } from './support/succeeds.ts';
import { anyPorts, newSecrets } from './support/test-environment.ts';
import { insertTransfers, insertWatchedChain } from './support/transfer-rows.ts';

const run = promisify(execFile);
const hasPsql = succeeds('psql', '--version');
if (!hasPsql) console.log('skipped: no psql is installed (apt-get install postgresql-client)');

const secrets = newSecrets();

const postgres = await startOwnPostgres({
  hba: ['local all postgres trust', 'host all all 127.0.0.1/32 scram-sha-256'],
});

afterAll(async () => {
  await endAll();
  await postgres.stop();
});

const sh = (script: string) => run('sh', ['-c', asSuperuser(postgres) + script]);
const url = (role: string) => `postgresql://${role}:PASSWORD@127.0.0.1:${postgres.port}/payments`;

async function admin(role: string, ...args: string[]) {
  const env = { ...process.env, DATABASE_URL: url(role), ...anyPorts, ...secrets };
  const { code, stdout, stderr } = await runAdmin(['--json', ...args], env);
  expect([code, stderr.replace(/^admin: note: .*\n/, '')]).toEqual([0, '']);
  return JSON.parse(stdout);
}

test('no statement of the service reads the table networks, which is only for people', async () => {
  for await (const name of glob('src/**/*.ts')) {
    if (name.includes('migrations')) continue;
    expect([name, /\b(?:from|join) networks\b/.test(await readFile(name, 'utf8'))]).toEqual([name, false]);
  }
});

/** What the console reads and writes, as the service's role. */
async function useConsole(merchantId: string, transfer: string): Promise<void> {
  const orm = createOrm({ url: url('payments_service') }, 2);
  const merchant = { merchantId, mode: 'testnet' };
  const caller = { session: { merchant }, merchant } as unknown as ConsoleCaller;
  const context = { context: {} } as never;
  expect(await createReportFolding(orm.em)()).toBe(false);
  expect(await createAuditRemoval(orm.em)()).toBe(false);
  const range = { firstDay: '2026-11-01', lastDay: '2026-11-02', timeZone: 'Europe/Berlin' };
  await getSummary(orm.em).run(create(GetSummaryRequestSchema, range), caller, context);
  const list = async () => {
    const { items = [] } = await listAttention(orm.em, 1n).run(
      create(ListAttentionRequestSchema),
      caller,
      context,
    );
    // Without the item of this test's chain, which nobody watches.
    return items.filter(({ subject }) => subject !== undefined);
  };
  const items = await list();
  expect(items.map(({ subject }) => subject)).toEqual([transfer]);
  const id = items[0]?.id ?? '';
  await resolveAttention(orm.em, 1n).run(create(ResolveAttentionRequestSchema, { id }), caller, context);
  expect(await list()).toEqual([]);
  await orm.close();
}

async function asService(sql: string): Promise<void> {
  const client = new pg.Client(url('payments_service'));
  await client.connect();
  await client.query(sql).finally(() => client.end());
}

/** The triggers that book figures have the owner's rights, which must not serve anything else. */
const becomeOwner = () =>
  asService(
    `create temp table report_changes (like public.report_changes);
     create function pg_temp.own() returns trigger language plpgsql as $$
       begin grant all on public.api_keys to payments_service; return null; end $$;
     create trigger t before insert on pg_temp.report_changes for each statement execute function pg_temp.own();
     grant all on pg_temp.report_changes to public;
     update transfers set state = state where false;
     insert into api_keys select * from api_keys where false`,
  );
const forgeFigures = () =>
  asService(
    `create temp table mine (like public.transfers);
     create trigger t after update on mine referencing old table as was new table as now
       for each statement execute function public.report_transfers()`,
  );

const unwatchedChain = ['--mode', 'testnet', '--chain', 'base', '--yes'];

test.runIf(hasPsql)(
  'a role with only the documented rights creates an intent and attributes a transfer on a new database',
  { timeout: 120_000 },
  async () => {
    await sh(await documentedCommands('From nothing'));
    expect((await admin('payments', 'migrate')).applied.length).toBeGreaterThan(0);
    expect((await admin('payments', 'doctor')).filter(({ ok }: { ok: boolean }) => !ok)).toEqual([]);

    await sh(await documentedCommands('Rights'));
    expect((await admin('payments_service', 'doctor')).filter(({ ok }: { ok: boolean }) => !ok)).toEqual([]);

    const refused = await postgres.query(
      `select relname from pg_class
        where relnamespace = 'public'::regnamespace and relkind = 'r'
          and not has_table_privilege('payments_service', oid, 'select')`,
      'payments',
    );
    // It explains the numbers of networks to people.
    expect(refused).toEqual([{ relname: 'networks' }]);

    // Another role of the cluster could take the service's advisory locks.
    await postgres.query("create role stranger login password 'PASSWORD'");
    await expect(new pg.Client(url('stranger')).connect()).rejects.toThrow(/permission denied for database/);

    // The rights that the documentation lists for administration.
    await postgres.query(
      `create role administrator login password 'PASSWORD';
     grant connect on database payments to administrator;
     grant select on schema_migrations, merchants, payout_wallets, api_keys, key_checks to administrator;
     grant select, insert, update on console_sessions to administrator;
     grant insert on merchants to administrator;
     grant select, insert, update on audit_log to administrator;
     grant select, insert, update on checkout_settings to administrator;
     grant insert, update on payout_wallets, api_keys to administrator;
     grant select on watched_chains, block_headers to administrator;
     grant delete on watched_chains, block_headers to administrator`,
      'payments',
    );
    const wallet = ['--mode', 'testnet', '--wallet', `0x${'1'.repeat(40)}`];
    const { merchant_id } = await admin('administrator', 'merchant', 'create', '--name', 'x', ...wallet);
    await admin('administrator', 'merchant', 'set-wallet', '--merchant', merchant_id, ...wallet);
    const origins = ['--mode', 'testnet', '--origins', 'https://shop.example'];
    await admin('administrator', 'merchant', 'set-origins', '--merchant', merchant_id, ...origins);
    const mode = ['--merchant', merchant_id, '--mode', 'testnet'];
    const { key_id } = await admin('administrator', 'key', 'create', ...mode);
    const { api_key } = await admin('administrator', 'key', 'rotate', '--key', key_id, '--overlap', '1h');
    await admin('administrator', 'key', 'revoke', '--key', key_id);
    const link = await admin('administrator', 'console', 'link', '--for', 'Anna');
    await admin('administrator', 'console', 'revoke', '--session', link.session_id);

    // Starting the service takes only these two fields of a cluster.
    const cluster = { url: url('payments_service'), secrets } as Cluster;
    const service = await startProcess(cluster);
    for (const door of doors) {
      const create = () =>
        service.call(
          'createPaymentIntent',
          { amount_units: 5 },
          { door, apiKey: api_key, idempotencyKey: door },
        );
      expect(await create()).toMatchObject({ code: 'ok' });
      expect(await create()).toMatchObject({ code: 'ok', replayed: true });
    }

    // The chain of the transfer is watched.
    const owner = new pg.Client(url('payments'));
    await owner.connect();
    const rows = { query: async (sql: string, values?: unknown[]) => (await owner.query(sql, values)).rows };
    const address = getAddress(`0x${'1'.repeat(40)}`);
    const wallets = { base: address, polygon: address };
    await insertWatchedChain(rows, {});
    const [transfer = ''] = await insertTransfers(
      rows,
      { id: parseIdentifier('mer', merchant_id) as string, wallets: { testnet: wallets, mainnet: wallets } },
      [{ amountUnits: 5 }],
    );
    await owner.end();
    await useConsole(parseIdentifier('mer', merchant_id) as string, transfer);
    await expect(becomeOwner()).rejects.toThrow('permission denied for table api_keys');
    await expect(forgeFigures()).rejects.toThrow(/permission denied for function/);
    const { json: intent } = await service.call(
      'createPaymentIntent',
      { amount_units: 5 },
      { apiKey: api_key },
    );
    const checkout = await fetch(`${service.publicUrl}/v1/checkout`, {
      headers: { authorization: `Bearer ${intent.client_secret}` },
    });
    expect(await checkout.json()).toMatchObject({ status: 'requires_payment', amount_units: 5 });
    for (const door of doors) {
      const request = { id: transfer, payment_intent: intent.id, allow_ended: true };
      const attributed = await service.call('attributeTransfer', request, { door, apiKey: api_key });
      expect(attributed).toMatchObject({ code: 'ok', json: { payment_intent: intent.id } });
    }
    expect(await service.end('SIGTERM')).toMatchObject({ code: 0 });
    expect(service.log.filter(({ message }) => String(message).includes('failed'))).toEqual([]);
    const unwatched = await admin('administrator', 'chain', 'unwatch', ...unwatchedChain);
    expect(unwatched).toMatchObject({ watched: 'no' });
  },
);
