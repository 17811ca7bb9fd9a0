import type { ClientConfig } from 'pg';

/** How to reach a PostgreSQL: an address, or the folder of a local server's Unix socket. */
export type DatabaseLocation = { url: string } | SocketLocation;

export interface SocketLocation {
  socketFolder: string;
  user: string;
  database: string;
}

/** Milliseconds to wait for a connection before the database counts as unreachable, where nothing else is said. */
const defaultConnectTimeoutMs = 5_000;

/** What `pg` needs to connect. The address goes to it whole: its parameters, such as `sslmode`, count. */
export function pgConfigOf(
  location: DatabaseLocation,
  connectTimeoutMs: number = defaultConnectTimeoutMs,
): ClientConfig {
  return {
    ...('url' in location
      ? { connectionString: location.url }
      : { host: location.socketFolder, user: location.user, database: location.database }),
    connectionTimeoutMillis: connectTimeoutMs,
    application_name: 'payment-intent-service',
  };
}
