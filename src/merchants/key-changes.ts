import pg from 'pg';
import type { Logger } from 'pino';
import { type DatabaseLocation, pgConfigOf } from '../config/database-location.ts';
import { keysChangedChannel } from '../database/entities/merchant.ts';

/** Pause before listening again. */
const retryMs = 1_000;

export interface KeyChanges {
  stop(): Promise<void>;
}

/**
 * Calls `onChange` whenever any process changes a key or a payout wallet. Uses a connection of its own, which LISTEN
 * needs. If that connection is lost, it listens again and calls `onChange`, because notifications may have been missed.
 * Behind PgBouncer in transaction mode none arrive, and only the cache's time limit applies.
 */
export async function listenForKeyChanges(
  location: DatabaseLocation,
  onChange: () => void,
  logger: Logger,
): Promise<KeyChanges> {
  let client: pg.Client | undefined;
  let retry: NodeJS.Timeout | undefined;
  let stopped = false;

  const listen = async () => {
    const connection = new pg.Client({ ...pgConfigOf(location), keepAlive: true });
    let lost = false;
    const onLost = (reason?: unknown) => {
      if (lost) return;
      lost = true;
      client = undefined;
      if (stopped) return;
      logger.warn({ err: reason }, 'not receiving changes of API keys; listening again soon');
      retry = setTimeout(() => void listen(), retryMs);
      connection.end().catch(() => {});
    };
    connection.on('error', onLost);
    connection.on('end', onLost);
    connection.on('notification', ({ payload }) => {
      onChange();
      logger.debug({ payload }, 'an API key or a payout wallet has changed');
    });
    try {
      await connection.connect();
      await connection.query(`listen ${keysChangedChannel}`);
      if (stopped) return void (await connection.end());
      client = connection;
      onChange();
    } catch (error) {
      onLost(error);
    }
  };

  await listen();
  return {
    async stop() {
      stopped = true;
      clearTimeout(retry);
      await client?.end();
    },
  };
}
