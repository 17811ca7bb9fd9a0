// Sessions that end while they are in use.

import net from 'node:net';
import type { EntityManager } from '@mikro-orm/postgresql';
import type { Pool } from 'pg';
import { afterAll, expect, test } from 'vitest';
import { createOrm } from '../src/database/orm.ts';
import { createPreparedStatements, preparedStatement } from '../src/database/prepared.ts';
import { listen } from './support/listen.ts';
import { useService } from './support/use-service.ts';

const service = await useService({ ROLES: 'api' });
const orm = createOrm(service.location, 2, { connectTimeoutMs: 2_000, statementTimeoutMs: 10_000 });
afterAll(() => orm.close());

const { transaction } = createPreparedStatements(orm.em);
const pidOf = preparedStatement('own_pid', 'select pg_backend_pid() as pid');
const one = preparedStatement('one', 'select 1 as one');
const end = (pid: number) => service.query(`select pg_terminate_backend($1)`, [pid]);

const transactions: [string, () => Promise<unknown>][] = [
  [
    'of MikroORM',
    () =>
      orm.em.fork().transactional(async (tx: EntityManager) => {
        const [row] = await tx.execute<{ pid: number }[]>(pidOf.text);
        await end(row?.pid ?? 0);
        await tx.execute(one.text);
      }),
  ],
  [
    'of prepared statements',
    () =>
      transaction(async (run) => {
        const { rows } = await run(pidOf, []);
        await end(rows[0].pid);
        await run(one, []);
      }),
  ],
];

test.each(transactions)('a transaction %s whose session ends leaks no connection', async (_, run) => {
  const pool: Pool = await orm.em.getConnection().getNativeClient();
  // One more than the pool has connections.
  for (let i = 0; i < 3; i++) await expect(run()).rejects.toThrow(/terminat|not queryable|EPIPE|ECONNRESET/);
  expect(pool.totalCount).toBe(0);
  expect(await orm.em.fork().execute(one.text)).toEqual([{ one: 1 }]);
});

test('a session whose server has become read-only is used for no other statement', async () => {
  const { socketFolder, user, database } = service.location;
  const host = encodeURIComponent(socketFolder);
  const url = `postgresql://${user}@localhost/${database}?host=${host}&target_session_attrs=read-write`;
  const other = createOrm({ url }, 1);
  const { run } = createPreparedStatements(other.em);
  await run(preparedStatement('demote', 'set default_transaction_read_only = on'), []);
  expect(await run(one, [])).toMatchObject({ rows: [{ one: 1 }] });
  await other.close();
});

test('a stalled transaction loses its locks after ten seconds; one that waits gives up sooner', async () => {
  const lock = preparedStatement('test_lock', 'select pg_advisory_xact_lock(1)');
  const { promise: stopped, resolve: goOn } = Promise.withResolvers<void>();
  const { promise: locked, resolve: onLocked } = Promise.withResolvers<void>();
  const standing = transaction(async (run) => {
    await run(lock, []);
    onLocked();
    await stopped;
  });
  await locked;
  await expect(transaction((run) => run(lock, []))).rejects.toMatchObject({ code: '55P03' });
  await service.query(lock.text);
  goOn();
  await expect(standing).rejects.toThrow(/terminat|not queryable|idle-in-transaction/);
});

test('a session that ends as soon as it starts does not end the process', async () => {
  const message = (type: string, text: string) => {
    const body = Buffer.from(text, 'latin1');
    const head = Buffer.alloc(5);
    head.write(type);
    head.writeInt32BE(body.length + 4, 1);
    return Buffer.concat([head, body]);
  };
  // Authenticated, ready, and shut down, in one piece.
  const whole = Buffer.concat([
    message('R', '\0\0\0\0'),
    message('Z', 'I'),
    message('E', 'SFATAL\0VFATAL\0C57P01\0Mterminating connection\0\0'),
  ]);
  const server = await listen(
    net.createServer((socket) => socket.on('error', () => {}).once('data', () => socket.end(whole))),
  );
  const short = createOrm({ url: `postgresql://u@127.0.0.1:${server.port}/d` }, 1, {
    connectTimeoutMs: 1_000,
    statementTimeoutMs: 1_000,
  });
  await expect(short.em.fork().execute('select 1')).rejects.toThrow();
  await short.close();
  await server.close();
});
