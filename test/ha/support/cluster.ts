// The cluster of `ops/ha`, started as by an operator, with ways to end or freeze its parts.

import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { chmod, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { createInterface } from 'node:readline';
import { parseEnv, promisify } from 'node:util';
import type pg from 'pg';
import { vi } from 'vitest';
import { connectToAny, createOrm, endSessions } from '../../../src/database/orm.ts';
import type { Endpoints } from '../../support/call.ts';
import { freezeServer } from '../../support/own-postgres.ts';

const run = promisify(execFile);

export type Role = 'Leader' | 'Sync Standby' | 'Replica';

interface Member {
  name: string;
  role: Role;
  state: string;
}

export type HaCluster = Awaited<ReturnType<typeof startHaCluster>>;

/** Starts everything, in about a minute. Fails with the names of missing packages. */
export async function startHaCluster(settings: Record<string, string> = {}) {
  const folder = await mkdtemp(join(tmpdir(), 'pi-ha-'));
  await chmod(folder, 0o755);
  const env = { PATH: `${dirname(process.execPath)}:${process.env.PATH}`, HA: folder, ...settings };
  const child = spawn(join('ops/ha', 'up.sh'), { env, stdio: ['ignore', 'pipe', 'pipe'] });
  const ended = once(child, 'exit');
  let complaints = '';
  child.stderr.on('data', (chunk) => {
    complaints += chunk;
  });
  await new Promise<void>((resolve, reject) => {
    void ended.then(() => reject(new Error(complaints)));
    createInterface({ input: child.stdout }).on('line', (line) => {
      if (line.startsWith('Ctrl-C')) resolve();
    });
  });

  const secrets = parseEnv(await readFile(join(folder, 'service.env'), 'utf8'));
  const location = { url: secrets.DATABASE_URL as string };
  const orm = createOrm(location, 2, { connectTimeoutMs: 5_000, statementTimeoutMs: 60_000 });
  const pool = await orm.em.getConnection().getNativeClient();
  const member = async (...args: string[]) => (await run('ops/ha/member.sh', args, { env })).stdout;
  const admin = async (...args: string[]) =>
    JSON.parse(
      (await run(process.execPath, ['src/admin.ts', ...args, '--json'], { env: { ...env, ...secrets } }))
        .stdout,
    );
  const members = async (): Promise<Member[]> =>
    JSON.parse(await member('one', 'ctl', 'list', '--format', 'json')).map(
      (row: Record<'Member' | 'Role' | 'State', string>) => ({
        name: row.Member,
        role: row.Role,
        state: row.State,
      }),
    );
  const firstLine = async (path: string) =>
    Number((await readFile(join(folder, path), 'utf8')).split('\n')[0]);
  const postmaster = (name: string) => firstLine(`${name}/postgres/postmaster.pid`);
  const program = (name: string) => firstLine(`${name}.pid`);

  return {
    folder,
    env: { ...env, ...secrets },
    endpoints: {
      publicUrl: 'http://127.0.0.1:18080',
      internalUrl: 'http://127.0.0.1:18081',
    } satisfies Endpoints,
    /** Runs a program of a member, as `member.sh` does. */
    member,
    /** Runs the admin tool, and returns its JSON. */
    admin,
    async query<T extends pg.QueryResultRow>(sql: string, values: unknown[] = []): Promise<T[]> {
      await connectToAny(orm, location);
      return (await pool.query<T>(sql, values)).rows;
    },
    async memberIn(role: Role): Promise<string> {
      const found = (await members()).find((each) => each.role === role);
      if (found === undefined) throw new Error(`there is no ${role}`);
      return found.name;
    },
    /** Resolves when a primary, a synchronous standby and another standby work, and every program runs. */
    untilWhole: (timeoutMs = 180_000) =>
      vi.waitUntil(
        async () => {
          const all = await members().catch(() => []);
          const roles = all
            .filter(({ state }) => /^(running|streaming)$/.test(state))
            .map(({ role }) => role);
          return roles.toSorted().join() === 'Leader,Replica,Sync Standby';
        },
        { timeout: timeoutMs, interval: 1_000 },
      ),
    async killPostgres(name: string) {
      process.kill(await postmaster(name), 'SIGKILL');
    },
    /** Ends a program, which is then restarted. */
    async end(name: string, signal: NodeJS.Signals) {
      process.kill(await program(name), signal);
    },
    /** Kills PostgreSQL and programs of a member at once, and keeps them down. Returns how to start them. */
    async turnOff(name: string, kinds = ['patroni', 'etcd']): Promise<() => Promise<void>> {
      const programs = kinds.map((kind) => `${kind}-${name}`);
      for (const each of programs) await writeFile(join(folder, `${each}.down`), '');
      const pids = await Promise.all([postmaster(name), ...programs.map(program)]);
      for (const pid of pids) process.kill(pid, 'SIGKILL');
      return async () => {
        for (const each of programs) await rm(join(folder, `${each}.down`));
      };
    },
    /** Freezes Patroni, and PostgreSQL unless told otherwise. Returns a function that lets them continue. */
    async freeze(name: string, { postgres = true, patroni = true } = {}): Promise<() => void> {
      const pids: number[] = [];
      if (patroni) {
        const pid = await program(`patroni-${name}`);
        process.kill(pid, 'SIGSTOP');
        pids.push(pid);
      }
      if (postgres) pids.push(...(await freezeServer(await postmaster(name))));
      return () => {
        for (const pid of pids.toReversed()) {
          try {
            process.kill(pid, 'SIGCONT');
          } catch {
            // The process has ended meanwhile.
          }
        }
      };
    },
    async stop() {
      await endSessions(orm);
      child.kill('SIGINT');
      await ended;
      await rm(folder, { recursive: true, force: true });
    },
  };
}
