import { createServer } from 'node:net';
import grpc from '@grpc/grpc-js';
import { describe, expect, onTestFinished, test } from 'vitest';
import { catalogue, type ErrorCode, toErrorJson } from '../src/contract/error-catalogue.ts';
import { createOrm } from '../src/database/orm.ts';
import { ServiceError, toConnectError, toServiceError } from '../src/requests/errors.ts';
import { isDatabaseUnavailable, isServerGone, mayHaveRun } from '../src/requests/unavailable.ts';
import { doors } from './support/call.ts';
import { listenInTest } from './support/listen.ts';
import { openClient } from './support/open-client.ts';
import { httpRequest } from './support/service.ts';
import { useService } from './support/use-service.ts';

describe('the catalogue', () => {
  const codes = Object.keys(catalogue) as ErrorCode[];

  test.each(codes)('%s: its message passes through grpc-message unchanged', (code) => {
    // grpc-js decodes with decodeURI, which leaves these percent-encoded.
    expect(decodeURI(encodeURIComponent(catalogue[code].message))).toBe(catalogue[code].message);
    expect(catalogue[code].message).toMatch(/^[A-Z][^=/:,;?&+$#@]*\.$/);
  });

  test('errors outside the catalogue are internal, and their text is not sent to the client', () => {
    const secret = new Error('relation "payment_intents" of user payments does not exist');
    const error = toServiceError(secret);
    expect(error).toMatchObject({ code: 'internal', cause: secret });
    expect(JSON.stringify(toErrorJson(error, 'req_1', '/docs'))).not.toMatch(/relation/);
    const { message, details } = toConnectError(error, 'req_1');
    expect(message + JSON.stringify(details.map((detail) => detail.value))).not.toMatch(/relation/);
    expect(toServiceError(error)).toBe(error);
  });
});

describe('which database errors are retryable', () => {
  const sqlState = (code: string) => Object.assign(new Error('x'), { code });
  test.each<[string, unknown, boolean]>([
    ['connection refused', sqlState('ECONNREFUSED'), true],
    ['the socket is gone', sqlState('ENOENT'), true],
    ['too many wait at the socket', sqlState('EAGAIN'), true],
    ['admin shutdown', sqlState('57P01'), true],
    ['starting up', sqlState('57P03'), true],
    ['too many connections', sqlState('53300'), true],
    ['deadlock', sqlState('40P01'), true],
    ['serialization failure', sqlState('40001'), true],
    ['connection terminated', new Error('Connection terminated unexpectedly'), true],
    ['the pool is exhausted', new Error('timeout exceeded when trying to connect'), true],
    ['one of several hosts does not answer', new Error('timeout expired'), true],
    ['wrapped', new Error('outer', { cause: sqlState('57P01') }), true],
    ['unique violation', sqlState('23505'), false],
    ['check violation', sqlState('23514'), false],
    ['syntax error', sqlState('42601'), false],
    ['a login that is refused', Object.assign(new Error('x'), { code: '28P01', severity: 'FATAL' }), true],
    ['a refusal of ours', new ServiceError('invalid_body'), false],
    ['no error at all', 'x', false],
  ])('%s', (_, reason, unavailable) => {
    expect(isDatabaseUnavailable(reason)).toBe(unavailable);
  });
});

describe('whether a statement of a session that ended may have run', () => {
  const ended = (severity: string, code: string) => Object.assign(new Error('x'), { severity, code });
  test.each<[string, unknown, boolean, boolean]>([
    ["a pooler's own code, its server gone", ended('FATAL', 'XX000'), true, true],
    ['a panic while committing', ended('PANIC', '58030'), true, true],
    ['never connected', ended('ERROR', '08001'), true, false],
    ['too many wait at the socket', ended('', 'EAGAIN'), true, false],
    ['a role that may not connect', ended('FATAL', '28000'), false, false],
    ['a bug of the server', ended('ERROR', 'XX000'), false, false],
  ])('%s', (_, reason, isGone, mayHave) => {
    expect([isServerGone(reason), mayHaveRun(reason)]).toEqual([isGone, mayHave]);
  });

  const fields = ['SERROR', 'CXX000', "MCouldn't connect to compute node", ''];
  const body = Buffer.from(`${fields.join('\0')}\0`);
  const head = Buffer.from('E\0\0\0\0');
  head.writeInt32BE(4 + body.length, 1);
  test.each([
    ["a proxy's internal error in place of a session", 'disable', Buffer.concat([head, body])],
    ['a server that cannot start a process for TLS', 'require', 'Ecould not fork new process\n\0'],
  ])('%s counts as a server that was not reached', async (_, sslmode, answer) => {
    const proxy = await listenInTest(createServer((socket) => socket.once('data', () => socket.end(answer))));
    const url = `postgresql://payments@${new URL(proxy).host}/payments?sslmode=${sslmode}`;
    const orm = createOrm({ url }, 1);
    onTestFinished(() => orm.close());
    const reason = await orm.em
      .fork()
      .execute('select 1')
      .catch((error: unknown) => error);
    expect([isServerGone(reason), mayHaveRun(reason)]).toEqual([true, false]);
  });
});

describe('server errors', async () => {
  const service = await useService({ QUEUE_TIMEOUT: '1' });

  test.each(doors)(
    'over %s the answer is internal, and the log has the cause with the request id',
    async (door) => {
      await service.query('alter table payment_intents rename to elsewhere');
      const answer = await service.call('createPaymentIntent', { amount_units: 1 }, { door });
      await service.query('alter table elsewhere rename to payment_intents');
      expect(answer).toMatchObject({
        code: 'internal',
        status: door === 'json' ? 500 : grpc.status.INTERNAL,
        message: catalogue.internal.message,
        details: [],
      });
      const line = service.log.find(({ request_id }) => request_id === answer.requestId);
      expect(line).toMatchObject({
        level: 'error',
        code: 'internal',
        err: { message: expect.stringMatching(/payment_intents/) },
      });
    },
  );

  test('while the database is down requests are unavailable with Retry-After; the service recovers without a restart', async () => {
    // Simulates the end of PostgreSQL: sessions are cut, and new ones are refused.
    const admin = await openClient({ ...service.location, database: 'postgres' });
    const { database } = service.location;
    const cut = async (allow: boolean) => {
      await admin.query(`alter database ${database} with allow_connections ${allow}`);
      if (!allow)
        await admin.query(`select pg_terminate_backend(pid) from pg_stat_activity where datname = $1`, [
          database,
        ]);
    };
    for (const door of doors)
      expect((await service.call('createPaymentIntent', { amount_units: 1 }, { door })).code).toBe('ok');
    await cut(false);
    const readyz = () => httpRequest(`${service.operationsUrl}/readyz`, { method: 'GET' });
    const answers = [];
    for (const door of doors) {
      answers.push(await service.call('createPaymentIntent', { amount_units: 1 }, { door }));
    }
    const { headers } = await httpRequest(
      `${service.publicUrl}/v1/payment_intents`,
      {
        headers: {
          Authorization: `Bearer ${service.merchant.keys.testnet.apiKey}`,
          'Content-Type': 'application/json',
        },
      },
      '{"amount_units":1}',
    );
    // Readiness does not report a failover of a few seconds.
    await expect.poll(async () => (await readyz()).status).toBe(503);
    expect((await readyz()).body).toBe('{"status":"database_unreachable"}\n');
    await cut(true);
    await admin.end();
    expect(answers).toMatchObject([
      { code: 'unavailable', status: 503 },
      { code: 'unavailable', status: grpc.status.UNAVAILABLE },
    ]);
    expect(headers['retry-after']).toBe('1');
    for (const door of doors)
      expect((await service.call('createPaymentIntent', { amount_units: 1 }, { door })).code).toBe('ok');
    expect((await readyz()).status).toBe(200);
  });
});
