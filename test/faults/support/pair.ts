// A primary and its synchronous standby for each test, like a database that can fail over.

import { afterEach, beforeEach } from 'vitest';
import { type OwnPostgres, startOwnPostgres } from '../../support/own-postgres.ts';
import { type Cluster, endAll, queryOnce, withMerchant } from './process.ts';

export interface Pair extends Pick<Cluster, 'url' | 'secrets' | 'apiKey' | 'folder' | 'query'> {
  primary: OwnPostgres;
  standby: OwnPostgres;
  /** Makes the standby the primary, without a synchronous standby. */
  promote(): Promise<void>;
  /** Ends the primary and promotes the standby. Resolves with the time of the promotion. */
  failOver(signal: NodeJS.Signals): Promise<number>;
}

export function usePair(): Pair {
  const pair = {} as Pair;
  beforeEach(async () => void Object.assign(pair, await openPair()));
  afterEach(async () => {
    await endAll();
    await pair.standby.stop();
    await pair.primary.stop();
  });
  return pair;
}

async function openPair(): Promise<Pair> {
  const primary = await startOwnPostgres({
    isMigrated: true,
    settings: ['wal_keep_size = 256MB', 'archive_mode = on', "archive_command = 'true'"],
  });
  const url = primary.url('postgres', 'postgres');
  const known = await withMerchant({ url });
  const standby = await startOwnPostgres({ standbyOf: primary });
  await primary.query("alter system set synchronous_standby_names = 'standby'");
  await primary.query('select pg_reload_conf()');
  const promote = async () => {
    await standby.query('alter system reset synchronous_standby_names');
    await standby.query('select pg_promote(true, 30)');
  };
  return {
    ...known,
    primary,
    standby,
    folder: primary.folder,
    // The standby comes first, because the service has to find the primary itself.
    url: `postgresql://postgres@127.0.0.1:${standby.port},127.0.0.1:${primary.port}/postgres`,
    query: (sql, values) => queryOnce({ url: standby.url('postgres', 'postgres') }, sql, values),
    promote,
    async failOver(signal) {
      await primary.end(signal);
      await promote();
      return performance.now();
    },
  };
}
