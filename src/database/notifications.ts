import pg from 'pg';
import type { Logger } from 'pino';
import { type DatabaseLocation, pgConfigOf } from '../config/database-location.ts';

/** Pause before listening again. */
const retryMs = 1_000;

export interface Notifications {
  stop(): Promise<void>;
}

/**
 * Calls the handler of a channel whenever any process notifies it, with what it sent. Uses a connection of its own,
 * which LISTEN needs. If that connection is lost, it listens again and calls every handler, because notifications may
 * have been missed. Behind PgBouncer in transaction mode none arrive: each handler's owner has another way to learn what
 * it needs, only later.
 */
export async function listenForNotifications(
  location: DatabaseLocation,
  handlers: Readonly<Record<string, () => void>>,
  logger: Logger,
): Promise<Notifications> {
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
      logger.warn({ err: reason }, 'not receiving notifications of the database; listening again soon');
      retry = setTimeout(() => void listen(), retryMs);
      connection.end().catch(() => {});
    };
    connection.on('error', onLost);
    connection.on('end', onLost);
    connection.on('notification', ({ channel, payload }) => {
      handlers[channel]?.();
      logger.debug({ channel, payload }, 'notified');
    });
    try {
      await connection.connect();
      for (const channel of Object.keys(handlers)) await connection.query(`listen ${channel}`);
      if (stopped) return void (await connection.end());
      client = connection;
      for (const handle of Object.values(handlers)) handle();
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
