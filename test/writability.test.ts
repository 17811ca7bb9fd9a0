// A service whose database answers but cannot store intents is not ready until it can.

import { afterAll, expect, test } from 'vitest';
import { loadConfig } from '../src/config/config.ts';
import { createOrm, migrate } from '../src/database/orm.ts';
import { assertSettings, createDatabaseProbe } from '../src/database/writability.ts';
import { createReadiness } from '../src/doors/operations/readiness.ts';
import { openDatabase } from '../src/processes/open-database.ts';
import { canLimitDisk, startOwnPostgres } from './support/own-postgres.ts';
import { grantServiceRights } from './support/service-rights.ts';

const postgres = await startOwnPostgres({ isMigrated: true, ...(canLimitDisk && { diskMb: 100 }) });
await postgres.query(`
  create role reader login; create role writer login; create role standby login; create role moved login;
  grant select on all tables in schema public to reader, writer, standby, moved;
  ${grantServiceRights('writer')}
  ${grantServiceRights('standby')}
  ${grantServiceRights('moved')}
  alter role standby set default_transaction_read_only = on`);

afterAll(() => postgres.stop());

async function withReadiness(
  role: string,
  use: (
    check: () => Promise<string>,
    onFailedWrite: (reason: unknown) => void,
    refusals: readonly (string | undefined)[],
  ) => Promise<void>,
): Promise<void> {
  const orm = createOrm({ url: postgres.url(role, 'postgres') }, 2);
  const refusals: (string | undefined)[] = [];
  const onRefusal = (refusal: string | undefined) => void refusals.push(refusal);
  const { probe, onFailedWrite } = createDatabaseProbe(orm.em, { onRefusal });
  try {
    await use(createReadiness(probe).check, onFailedWrite, refusals);
  } finally {
    await orm.close();
  }
}

test.each([
  ['writer', 'ready'],
  ['reader', 'database_not_writable'],
  ['standby', 'database_not_writable'],
])('as the database role %s: %s', (role, status) =>
  withReadiness(role, async (check) => {
    expect(await check()).toBe(status);
  }),
);

test('is ready again after the rights are granted, and says once what was missing', () =>
  withReadiness('writer', async (check, _, refusals) => {
    expect(await check()).toBe('ready');
    await postgres.query('revoke delete on audit_log from writer');
    expect(await check()).toBe('database_not_writable');
    expect(await check()).toBe('database_not_writable');
    await postgres.query('grant delete on audit_log to writer');
    expect(await check()).toBe('ready');
    expect(refusals).toEqual([
      'the role lacks rights: as the owner of the tables, run grant delete on audit_log to writer;',
      undefined,
    ]);
  }));

test.each([
  ['bytea_output', 'escape'],
  ['default_transaction_isolation', 'serializable'],
  ['client_min_messages', 'error'],
  ['synchronous_commit', 'off'],
  ['synchronous_commit', 'local'],
  ['standard_conforming_strings', 'off'],
  ['session_replication_role', 'replica'],
])('does not start with %s = %s, and names it in the message', async (name, value) => {
  await postgres.query(`create role other login; alter role other set ${name} = ${value.replace(/ /g, '')}`);
  const config = loadConfig({ DATABASE_URL: postgres.url('other', 'postgres') }, []);
  await expect(openDatabase(config)).rejects.toThrow(
    `${name} is "${value}", with which the service does not work: reset it for the role and the database`,
  );
  await postgres.query('drop role other');
});

test("times are read right, although the server's DateStyle changes meanwhile", async () => {
  const orm = createOrm({ url: postgres.url('writer', 'postgres') }, 1);
  const moment = '2026-12-05T00:00:00.000Z';
  const read = async () => {
    const [{ at }] = await orm.em.fork().execute<[{ at: string }]>(`select timestamptz '${moment}' as at`);
    return new Date(at).toISOString();
  };
  expect(await read()).toBe(moment);
  await postgres.query(`alter system set "DateStyle" = 'SQL, DMY'`);
  await postgres.query('select pg_reload_conf()');
  const style = () => postgres.query('show datestyle');
  await expect.poll(style, { interval: 10 }).toEqual([{ DateStyle: 'SQL, DMY' }]);
  expect(await read()).toBe(moment);
  // A pooler may not pass it on.
  await orm.em.fork().execute(`set "DateStyle" = 'German'`);
  await expect(assertSettings(orm.em)).rejects.toThrow('DateStyle is "German');
  await orm.close();
  await postgres.query('alter system reset "DateStyle"');
  await postgres.query('select pg_reload_conf()');
});

test('does not start in a schema that does not exist, or a database of another encoding', async () => {
  await postgres.query('create role other login; alter role other set search_path = gone');
  await postgres.query(`create database latin1 encoding 'LATIN1' template template0`);
  const open = (role: string, database: string) =>
    openDatabase(loadConfig({ DATABASE_URL: postgres.url(role, database) }, []));
  await expect(open('other', 'postgres')).rejects.toThrow(
    'search_path is gone, with no schema that the role may use',
  );
  await expect(open('writer', 'latin1')).rejects.toThrow(
    'the encoding LATIN1, which does not hold every text',
  );
  await postgres.query('drop role other');
});

test('does not begin anew beside its own tables, or in those of another program', async () => {
  const url = postgres.url('other', 'postgres');
  await postgres.query('create role other superuser login; create schema empty; create schema rails');
  await postgres.query('create table rails.schema_migrations (version text)');
  const refusals = {
    empty: "search_path is empty, and the service's tables are those beside public.schema_migrations",
    rails: "search_path is rails, and the service's tables are those beside public.schema_migrations",
  };
  for (const [schema, refusal] of Object.entries(refusals)) {
    await postgres.query(`alter role other set search_path = ${schema}`);
    await expect(openDatabase(loadConfig({ DATABASE_URL: url }, []))).rejects.toThrow(refusal);
    await expect(migrate({ url })).rejects.toThrow(refusal);
  }
  await postgres.query('create database rails');
  const shared = { url: postgres.url('other', 'rails') };
  await postgres.query('alter role other set search_path = public');
  await postgres.query('create table schema_migrations (version text)', 'rails');
  await expect(migrate(shared)).rejects.toThrow("schema_migrations is another program's: give the service");
  await postgres.query('drop schema empty; drop schema rails cascade; drop role other');
});

test('is not ready while writes fail, even if the probe succeeds', async () => {
  await postgres.query('revoke temporary on database postgres from public');
  await withReadiness('writer', async (check, onFailedWrite) => {
    const full = Object.assign(new Error('quota exceeded'), { code: '53100' });
    onFailedWrite(full);
    expect(await check()).toBe('ready');
    onFailedWrite(full);
    expect(await check()).toBe('database_not_writable');
  });
  await postgres.query('grant temporary on database postgres to public');
});

test('a write that succeeds restores the trust in the probe', async () => {
  await postgres.query('revoke temporary on database postgres from public');
  const orm = createOrm({ url: postgres.url('writer', 'postgres') }, 2);
  const { probe, onFailedWrite, onWrite } = createDatabaseProbe(orm.em);
  const full = Object.assign(new Error('quota exceeded'), { code: '53100' });
  onFailedWrite(full);
  expect(await probe()).toBe(true);
  onFailedWrite(full);
  expect(await probe()).toBe(false);
  onWrite();
  expect(await probe()).toBe(true);
  await orm.close();
  await postgres.query('grant temporary on database postgres to public');
});

test('ends its session on a server that has become read-only', async () => {
  await withReadiness('moved', async (check) => {
    expect(await check()).toBe('ready');
    // Like a demoted server, on which open sessions keep their settings.
    await postgres.query('alter role moved set default_transaction_read_only = on');
    await postgres.query("select pg_terminate_backend(pid) from pg_stat_activity where usename = 'moved'");
    await expect.poll(check).toBe('database_not_writable');
    await postgres.query('alter role moved reset default_transaction_read_only');
    await expect.poll(check).toBe('ready');
  });
});

test.runIf(canLimitDisk)('is not ready on a full disk, after a write has failed', () =>
  withReadiness('postgres', async (check, onFailedWrite) => {
    await postgres.fillDisk();
    const reason = await postgres
      .query(`create table filled as select repeat('x', 8000) from generate_series(1, 10000)`)
      .catch((error) => error);
    expect(reason).toMatchObject({ code: '53100' });
    onFailedWrite(reason);
    expect(await check()).toBe('database_not_writable');
  }),
);
