import pg from 'pg';
import type { Logger } from 'pino';
import { type DatabaseLocation, pgConfigOf } from '../config/database-location.ts';
import { keysChangedChannel } from '../database/entities/merchant.ts';

/** Milliseconds between two tries to listen again. */
const retryMs = 1_000;

export interface KeyChanges {
  stop(): Promise<void>;
}

/**
 * Calls `onChange` whenever a key or a payout wallet changes anywhere, on a connection of its own (LISTEN needs
 * one). Where that connection is lost it listens anew, and calls `onChange` then too: what happened meanwhile went
 * unheard. Behind PgBouncer in transaction mode nothing is ever heard, and the cache's time limit holds alone.
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
