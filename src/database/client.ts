// A `pg` client for a database of several hosts, of which one accepts writes. node-postgres knows one host,
// keeps the sessions of a server that has become read-only, and waits for a statement forever.

import pg from 'pg';
import type { DatabaseTimeouts } from '../config/config.ts';
import type { DatabaseLocation, DatabaseTarget } from '../config/database-location.ts';
import { databaseTargetOf, defaultConnectTimeoutMs } from '../config/database-location.ts';
import { noteDatabaseError, readOnly, serverGoneError, statementTimeout } from '../requests/unavailable.ts';

/** The connect timeout for each host if there are several: another one may answer. */
const connectToOneMs = 1_000;

/** `read_only_sql_transaction`, `admin_shutdown`, `crash_shutdown`, `cannot_connect_now`. */
const endsSession = new Set([readOnly, '57P01', '57P02', '57P03']);
/** The parameters in which a server reports that it accepts no writes, by the sessions that are wanted. */
const reportsReadOnly: Record<DatabaseTarget['sessions'], readonly string[]> = {
  any: [],
  'read-write': ['in_hot_standby', 'default_transaction_read_only'],
  primary: ['in_hot_standby'],
};
/**
 * If one of these fails, the session ends and the statement resolves; the next one rejects. A session that
 * ends has rolled back, and MikroORM never releases a connection on which one of these rejected.
 */
const endSessionIfFailed: ReadonlySet<unknown> = new Set(['begin', 'rollback']);
/** The function of PostgreSQL that waits for standbys when a transaction commits. */
const waitForStandbys = 'SyncRepWaitForLSN';
/** `transaction_resolution_unknown`. */
const outcomeUnknown = '08007';
/** `sqlclient_unable_to_establish_sqlconnection`, and what some proxies and poolers send in its place. */
const notConnected = '08001';
const internalError = 'XX000';

/** The host to connect to, by address. All clients of the process share it. */
const currentHosts = new Map<string, number>();

/** The servers of a database. */
interface Servers {
  address: string;
  target: DatabaseTarget;
  connectTimeoutMs: number;
  /** If undefined, a statement has no deadline, as a migration needs. */
  statementTimeoutMs: number | undefined;
}

export function serversOf(location: DatabaseLocation, timeouts?: DatabaseTimeouts): Servers {
  const target = databaseTargetOf(location);
  const { connectTimeoutMs = defaultConnectTimeoutMs, statementTimeoutMs } = timeouts ?? {};
  const toOneMs = target.hosts.length > 1 ? Math.min(connectTimeoutMs, connectToOneMs) : connectTimeoutMs;
  const address = 'url' in location ? location.url : location.socketFolder;
  return { address, target, connectTimeoutMs: toOneMs, statementTimeoutMs };
}

/**
 * Connects to the process's current host. A failure moves the process on to the next host. With several
 * hosts, connecting to one takes at most a second. A server without the wanted sessions counts as a failure.
 *
 * A session ends when its server no longer accepts writes or shuts down, and when a statement exceeds its
 * deadline: `pg`'s own `query_timeout` keeps the connection, whose next user waits behind the same statement.
 * A commit whose wait for a standby was canceled fails: PostgreSQL reports it as done, with a warning.
 */
export class DatabaseClient extends pg.Client {
  readonly #servers: Servers;
  readonly #host: number;
  /** The parameters in which the server has reported whether it accepts writes. */
  readonly #reported = new Map<string, string>();
  #deadline: NodeJS.Timeout | undefined;
  #isConnected = false;
  #isBusy = false;
  #isInTransaction = false;
  #mustEnd = false;

  constructor({ servers, ...config }: pg.ClientConfig & { servers: Servers }) {
    const { address, target, connectTimeoutMs } = servers;
    const current = currentHosts.get(address) ?? 0;
    super({ ...config, ...target.hosts[current], connectionTimeoutMillis: connectTimeoutMs });
    this.#servers = servers;
    this.#host = current;
    const disarm = () => {
      clearTimeout(this.#deadline);
      this.#isBusy = false;
    };
    // `drain` is emitted when no statement is left on the connection.
    this.on('end', disarm)
      // The pool adds its own listener only once the connection is open.
      .on('error', noteDatabaseError)
      .on('drain', () => {
        disarm();
        if (this.#mustEnd) this.#endSoon();
      });
    this.connection
      .on('readyForQuery', ({ status }: { status: string }) => {
        this.#isInTransaction = status !== 'I';
      })
      .on('error', noteDatabaseError)
      .on('errorMessage', ({ code = '' }: pg.DatabaseError) => {
        this.#mustEnd ||= endsSession.has(code);
        // A pooler whose server is gone accepts connections but refuses each statement.
        if (code === readOnly || code.startsWith('08')) this.#tryNextHost();
      })
      .on('notice', ({ routine }: pg.DatabaseError) => {
        if (routine === waitForStandbys) this.#failStatement();
      })
      .on('parameterStatus', ({ parameterName, parameterValue }: ParameterStatus) => {
        if (!reportsReadOnly[target.sessions].includes(parameterName)) return;
        this.#reported.set(parameterName, parameterValue);
        if (this.#isConnected && parameterValue === 'on') this.#endSoon();
      });
  }

  /** As in `pg`, whose types lack it. A session's own DateStyle stays, whatever the server's becomes. */
  getStartupConf(): object {
    const { getStartupConf } = pg.Client.prototype as unknown as { getStartupConf(): object };
    return { ...getStartupConf.call(this), DateStyle: 'ISO, MDY' };
  }

  // As in `pg`, with a callback or a promise.
  override connect(): Promise<pg.Client>;
  override connect(callback: Connected): void;
  override connect(callback?: Connected): Promise<pg.Client> | undefined {
    const connected = this.#connect();
    if (callback === undefined) return connected;
    connected.then<void, void>(
      (client) => (callback as (error: null, client: pg.Client) => void)(null, client),
      callback as (error: Error) => void,
    );
    return undefined;
  }

  async #connect(): Promise<pg.Client> {
    try {
      await super.connect();
      if (await this.#isReadOnly()) {
        throw serverGoneError('this server accepts no writes');
      }
      this.#isConnected = true;
      return this;
    } catch (reason) {
      this.#tryNextHost();
      super.end().catch(() => {});
      if (reason instanceof pg.DatabaseError && reason.code === internalError) reason.code = notConnected;
      noteDatabaseError(reason);
      throw reason;
    }
  }

  async #isReadOnly(): Promise<boolean> {
    const { sessions } = this.#servers.target;
    if (reportsReadOnly[sessions].every((name) => this.#reported.get(name) === 'off')) return false;
    // PostgreSQL 13 does not report this, and a pooler may report an earlier state of its server.
    const isReadOnly =
      sessions === 'primary' ? 'pg_is_in_recovery()' : "current_setting('transaction_read_only')::bool";
    const { rows }: pg.QueryResult<{ read_only: boolean }> = await this.query(
      `select ${isReadOnly} as read_only`,
    );
    return rows[0]?.read_only === true;
  }

  // Reflect.apply returns `any`, which fits every overload of `query`.
  override query(...args: unknown[]) {
    const { statementTimeoutMs: ms } = this.#servers;
    this.#isBusy = true;
    if (ms !== undefined) {
      clearTimeout(this.#deadline);
      const cut = () => this.#cut(`a statement took more than ${ms} ms`, statementTimeout);
      this.#deadline = setTimeout(cut, ms);
    }
    const result = Reflect.apply(super.query, this, args);
    if (!endSessionIfFailed.has(args[0]) || !(result instanceof Promise)) return result;
    return result.catch(() => {
      void this.end();
      return { command: '', rowCount: null, oid: 0, fields: [], rows: [] };
    });
  }

  /** The next client tries the next host. */
  #tryNextHost(): void {
    const { address, target } = this.#servers;
    const current = currentHosts.get(address) ?? 0;
    if (current === this.#host) currentHosts.set(address, (current + 1) % target.hosts.length);
  }

  /** Ends the session, with an error: the pool would keep an idle client that ends without one. */
  #endSoon(): void {
    this.#mustEnd = true;
    // A transaction that has begun is ended first.
    if (!this.#isBusy && !this.#isInTransaction) this.#cut('the server no longer accepts writes', readOnly);
  }

  /** Fails the statement, and ignores what the server sends afterwards. */
  #failStatement(): void {
    const reason = 'the commit may not have reached a standby';
    this.connection.emit('errorMessage', Object.assign(new Error(reason), { code: outcomeUnknown }));
    this.#cut(reason, outcomeUnknown);
  }

  #cut(reason: string, code: string): void {
    this.connection.stream.destroy(Object.assign(new Error(`Connection terminated: ${reason}`), { code }));
  }
}

type Connected = ((error: Error) => void) | ((error: null, client: pg.Client) => void);

type ParameterStatus = { parameterName: string; parameterValue: string };
