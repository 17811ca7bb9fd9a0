import { expect, test } from 'vitest';
import { endSessions } from '../src/database/orm.ts';
import { httpRequest } from './support/doors.ts';
import { startService } from './support/service.ts';
import { createMerchantCalls } from './support/settlement.ts';

// PostgreSQL keeps the plan of a prepared statement until it has new statistics of its tables. A plan that was made when
// a table was small has to be good when it is large.
test('intents that are asked for at the same time are looked up in an index, in a new database too', async () => {
  const service = await startService({ ROLES: 'api' });
  const reading = await startService({ ROLES: 'api', RATE_LIMIT_CHECKOUT: '0' }, { beside: service });
  const intents = await Promise.all(
    Array.from({ length: 8 }, () => createMerchantCalls(service).createIntent()),
  );
  const key = service.merchant.keys.testnet.apiKey;
  const statusOf = async (path: string, credential: string) => {
    const headers = { authorization: `Bearer ${credential}` };
    return (await httpRequest(`${reading.publicUrl}/v1/${path}`, { method: 'GET', headers })).status;
  };
  // The first five runs of a statement have plans of their own.
  for (let run = 0; run < 10; run++) {
    const asked = intents.flatMap(({ id, client_secret }) => [
      statusOf(`payment_intents/${id}`, key),
      statusOf('checkout', client_secret),
    ]);
    expect(new Set(await Promise.all(asked))).toEqual(new Set([200]));
  }
  // A session's counts are complete when it has ended.
  await reading.server.close();
  await endSessions(reading.database.orm);
  const scans = await service.query(
    `select seq_scan::int, idx_scan::int from pg_stat_user_tables where relname = 'payment_intents'`,
  );
  expect(scans).toMatchObject([{ seq_scan: 0 }]);
  expect(scans[0]?.idx_scan).toBeGreaterThan(100);
  await service.close();
});
