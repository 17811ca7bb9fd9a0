import type pg from 'pg';
import type { Logger } from 'pino';
import { type DatabaseLocation, defaultConnectTimeoutMs } from '../config/database-location.ts';
import { DatabaseClient, serversOf } from './client.ts';

const retryMs = 1_000;
/** How often the connection is tested: one that broke silently would never notify again. */
const tryEveryMs = 8_000;
const timeouts = { connectTimeoutMs: defaultConnectTimeoutMs, statementTimeoutMs: 2_000 };

/**
 * Calls a channel's handler whenever any process notifies the channel. Uses a connection of its own, which
 * LISTEN needs. Each time it connects, it calls every handler, because notifications may have been missed.
 * Behind PgBouncer in transaction mode none arrive: each handler's owner also learns what it needs in another
 * way, only later.
 */
export async function listenForNotifications(
  location: DatabaseLocation,
  handlers: Readonly<Record<string, () => void>>,
  logger: Logger,
) {
  const servers = serversOf(location, timeouts);
  const channels = Object.keys(handlers);
  const [first] = channels;
  let client: pg.Client | undefined;
  let retry: NodeJS.Timeout | undefined;
  let stopped = false;

  const listen = async () => {
    const connection = new DatabaseClient({ servers, keepAlive: true });
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
      for (const channel of channels) await connection.query(`listen ${channel}`);
      if (stopped) return void (await connection.end());
      client = connection;
      for (const handle of Object.values(handlers)) handle();
    } catch (error) {
      onLost(error);
    }
  };

  await listen();
  const trying = setInterval(() => client?.query(`listen ${first}`).catch(() => {}), tryEveryMs).unref();
  return {
    async stop() {
      stopped = true;
      clearInterval(trying);
      clearTimeout(retry);
      await client?.end();
    },
  };
}
