import pg from 'pg';
import { type DatabaseLocation, pgConfigOf } from '../../src/config/database-location.ts';

/** Opens a separate connection to a database of a test. */
export async function openClient(location: DatabaseLocation): Promise<pg.Client> {
  const client = new pg.Client(pgConfigOf(location));
  await client.connect();
  return client;
}
