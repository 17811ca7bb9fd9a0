// `admin doctor` on databases that the shared PostgreSQL cannot simulate: one whose role lacks rights, a read-only one,
// one on a full disk, and the embedded one in each of its states.

import { chmod, readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, onTestFinished, test, vi } from 'vitest';
import { startEmbeddedPostgres } from '../src/embedded/postgres.ts';
import { diagnose } from '../src/processes/doctor.ts';
import { runAdmin } from './support/admin.ts';
import { useFolder } from './support/folder.ts';
import { canLimitDisk, type OwnPostgres, startOwnPostgres } from './support/own-postgres.ts';
import { startProgram } from './support/program.ts';
import { grantServiceRights } from './support/service-rights.ts';
import { anyPorts, bareEnvironment, newSecrets } from './support/test-environment.ts';

if (!canLimitDisk) console.log('skipped: a disk of its own is mounted as root (unshare --mount)');

interface Finding {
  check: string;
  ok: boolean;
  message: string;
}

async function doctor(env: NodeJS.ProcessEnv): Promise<Map<string, Finding>> {
  const { stdout } = await runAdmin(['doctor', '--json'], { ...bareEnvironment(), ...anyPorts, ...env });
  return new Map((JSON.parse(stdout) as Finding[]).map((finding) => [finding.check, finding]));
}

describe('an external database', () => {
  let postgres: OwnPostgres;
  const secrets = newSecrets();
  const as = (role: string) => doctor({ DATABASE_URL: postgres.url(role, 'postgres'), ...secrets });

  beforeAll(async () => {
    postgres = await startOwnPostgres({ isMigrated: true });
    await postgres.query(`
      create role "Read-er" login;
      create role reader login;
      create role writer login;
      create role standby login;
      grant select on all tables in schema public to "Read-er", writer, standby;
      ${grantServiceRights('"Read-er"')}
      ${grantServiceRights('writer')}
      ${grantServiceRights('standby')}
      revoke insert on payment_intents from "Read-er";
      alter role standby set default_transaction_read_only = on;
      revoke temporary on database postgres from public;
      grant temporary on database postgres to "Read-er"`);
  });

  afterAll(() => postgres.stop());

  test('a role without INSERT fails, with the grant to run', async () => {
    expect((await as('Read-er')).get('rights')).toEqual({
      check: 'rights',
      ok: false,
      message:
        'the role lacks rights: as the owner of the tables, run grant insert on payment_intents to "Read-er";',
    });
  });

  test('the connections that its role may still open are counted, and fsync must be on', async () => {
    await postgres.query('alter role writer connection limit 3');
    expect((await as('writer')).get('database')?.message).toMatch(/, 2 connections free$/);
    await postgres.query('alter system set fsync = off');
    await postgres.query('select pg_reload_conf()');
    await expect.poll(async () => (await as('writer')).get('database')?.message).toMatch(/: fsync is off/);
    await postgres.query('alter system reset fsync');
    await postgres.query('select pg_reload_conf(); alter role writer connection limit -1');
  });

  test('changed sorting rules fail, with the commands to run', async () => {
    await postgres.query(
      "create database sorted template template0 encoding 'UTF8' locale_provider icu icu_locale 'und'",
    );
    await postgres.query("update pg_database set datcollversion = '1' where datname = 'sorted'");
    const found = await doctor({ DATABASE_URL: postgres.url('postgres', 'sorted'), ...secrets });
    expect(found.get('database')).toMatchObject({
      ok: false,
      message: expect.stringMatching(
        /run reindex database sorted; alter database sorted refresh collation version$/,
      ),
    });
  });

  test('a server older than PostgreSQL 14 fails', async () => {
    // This function hides PostgreSQL's own.
    await postgres.query(`
      create schema old;
      create function old.current_setting(name text) returns text language sql as
        $$ select case name when 'server_version_num' then '130014' else pg_catalog.current_setting(name) end $$;
      create role old superuser login;
      alter role old set search_path = old, pg_catalog, public`);
    const { ok, message } = (await as('old')).get('database') as Finding;
    expect([ok, message]).toEqual([false, expect.stringMatching(/: it has to be PostgreSQL 14 or newer$/)]);
    await postgres.query('drop schema old cascade; drop role old');
  });

  test('a clock that is ten seconds wrong fails', async () => {
    const env = {
      ...bareEnvironment(),
      ...anyPorts,
      ...secrets,
      DATABASE_URL: postgres.url('writer', 'postgres'),
    };
    const realNow = Date.now;
    const clock = vi.spyOn(Date, 'now');
    onTestFinished(() => clock.mockRestore());
    const isOk = async (offMs: number) => {
      clock.mockImplementation(() => realNow() + offMs);
      for await (const { check, ok } of diagnose(env)) if (check === 'clock') return ok;
    };
    expect([await isOk(-10_000), await isOk(0), await isOk(10_000)]).toEqual([false, true, false]);
  });

  test('a role without any rights fails', async () => {
    const { ok, message } = (await as('reader')).get('database') as Finding;
    expect([ok, message]).toEqual([
      false,
      expect.stringMatching(
        /permission denied for table schema_migrations\): grant the role of DATABASE_URL/,
      ),
    ]);
  });

  test('a role with the documented rights passes', async () => {
    const findings = await as('writer');
    expect([...findings.values()].filter(({ ok }) => !ok)).toEqual([]);
    expect(findings.get('disk')?.message).toMatch(/^not checked: .* Grant it temporary on the database$/);
  });

  test('a read-only database, such as a standby, fails', async () => {
    const { ok, message } = (await as('standby')).get('rights') as Finding;
    expect([ok, message]).toEqual([
      false,
      expect.stringMatching(/read-only transaction: .*DATABASE_URL has to name the primary/),
    ]);
  });
});

test.runIf(canLimitDisk)('a full disk fails', { timeout: 120_000 }, async () => {
  const postgres = await startOwnPostgres({ isMigrated: true, diskMb: 100 });
  try {
    const env = { DATABASE_URL: postgres.url('postgres', 'postgres'), ...newSecrets() };
    expect((await doctor(env)).get('disk')).toEqual({
      check: 'disk',
      ok: true,
      message: '16 MB can be written',
    });
    await postgres.fillDisk();
    // PostgreSQL is running and answers.
    const findings = await doctor(env);
    expect(findings.get('database')?.ok).toBe(true);
    expect(findings.get('disk')).toMatchObject({
      ok: false,
      message: expect.stringMatching(/No space left on device: make room on the database's disk$/),
    });
  } finally {
    await postgres.stop();
  }
});

describe('the embedded database', async () => {
  const folder = await useFolder();
  await chmod(folder, 0o755);
  const dataDir = join(folder, 'data');

  test('is not created, started or changed by the check', { timeout: 120_000 }, async () => {
    const absent = await doctor({ DATA_DIR: dataDir });
    expect(absent.get('database')).toMatchObject({
      ok: true,
      message: expect.stringMatching(/not created yet/),
    });
    expect(await readdir(folder)).toEqual([]);

    const postgres = await startEmbeddedPostgres(dataDir);
    const running = await doctor({ DATA_DIR: dataDir });
    // It has neither a schema nor secrets, and the check creates none.
    expect(running.get('database')).toMatchObject({
      ok: false,
      message: expect.stringMatching(/secrets in .* cannot be used \(there is none\)/),
    });
    expect((await readdir(dataDir)).sort()).toEqual(['postgres']);
    // It had no users before the check, so the check does not stop it.
    expect(await readdir(join(dataDir, 'postgres'))).toContain('postmaster.pid');

    await postgres.stop();
    const stopped = await doctor({ DATA_DIR: dataDir });
    expect(stopped.get('database')).toMatchObject({
      ok: true,
      message: expect.stringMatching(/not running/),
    });
    expect(await readdir(join(dataDir, 'postgres'))).not.toContain('postmaster.pid');
  });

  test('is checked while the service uses it', { timeout: 120_000 }, async () => {
    const service = startProgram([process.execPath, 'src/main.ts'], {
      env: { ...bareEnvironment(), ...anyPorts, DATA_DIR: dataDir },
    });
    await service.until(/"ready"/);
    const findings = await doctor({ DATA_DIR: dataDir });
    expect([...findings.values()].filter(({ ok }) => !ok)).toEqual([]);
    expect(findings.get('database')?.message).toMatch(/^PostgreSQL .*, embedded/);
    expect([...findings.keys()]).toEqual(
      expect.arrayContaining(['schema', 'rights', 'disk', 'secrets', 'clock']),
    );
    expect(await service.end('SIGTERM')).toEqual([0, null]);
  });
});
