import { hash } from 'node:crypto';
import type { EntityManager } from '@mikro-orm/postgresql';
import type { Pool, QueryConfig, QueryResult } from 'pg';
import { inTurn } from './turns.ts';

/** A statement. Releases share a pooler's sessions, so its name has a digest of its text; empty: not prepared. */
export type PreparedStatement = { readonly name: string; readonly text: string };

/** Names a statement. A name has at most 63 bytes in all. */
export function preparedStatement(label: string, text: string): PreparedStatement {
  return { name: `${label}_${hash('sha256', text, 'hex').slice(0, 12)}`, text };
}

/**
 * Rows as one parameter, for `json_to_recordset`. 64-bit integers become strings. PostgreSQL always expects
 * the same number of rows and keeps its plan. With arrays it replans most runs, which takes a millisecond.
 */
export function jsonOfRows(rows: readonly object[]): string {
  return JSON.stringify(rows, (_, value) => (typeof value === 'bigint' ? String(value) : value));
}

/** The same for ids, each of them once. */
export function jsonOfIds(ids: readonly string[]): string {
  return jsonOfRows(Array.from(new Set(ids), (id) => ({ id })));
}

/**
 * Begins a transaction. If the process or its machine stops, PostgreSQL ends the transaction and frees its
 * locks after ten seconds. The wait for a lock is shorter than the default of `DATABASE_TIMEOUT`, so that no
 * abandoned statement stays in the queue.
 */
const begin = "begin; set local idle_in_transaction_session_timeout = '10s'; set local lock_timeout = '5s'";

/** Runs a statement with its values and returns PostgreSQL's result. */
export type RunPrepared = (statement: PreparedStatement, values: unknown[]) => Promise<QueryResult>;

export type PreparedStatements = ReturnType<typeof createPreparedStatements>;

const poolOf = (em: EntityManager): Promise<Pool> => em.getConnection().getNativeClient();

/** `invalid_sql_statement_name` and `duplicate_prepared_statement`. */
const nameErrors = /^(?:26000|42P05)$/;

const isNameError = (reason: unknown) => nameErrors.test((reason as { code?: string }).code ?? '');

/**
 * Runs prepared statements on MikroORM's connections. A pooler in transaction mode uses a different session
 * each time, in which a statement is not prepared, or is already. From the first such error on, statements
 * run unprepared. Only this function handles that: every prepared statement goes through it.
 */
export function createPreparedStatements(em: EntityManager) {
  let mayPrepare = true;

  /** Runs the work prepared. If that fails for being prepared, nothing was done: runs it again unprepared. */
  const prepared = async <T>(work: (textOf: (statement: PreparedStatement) => object) => Promise<T>) => {
    const unprepared = () => work(({ text }) => ({ text }));
    if (!mayPrepare) return unprepared();
    // This run was prepared, whatever others have learned meanwhile, so it too is repeated unprepared.
    return work(({ name, text }) => ({ name, text })).catch((reason) => {
      if (!isNameError(reason)) throw reason;
      mayPrepare = false;
      return unprepared();
    });
  };

  const run: RunPrepared = async (statement, values) => {
    const pool = await poolOf(em);
    return prepared((textOf) => pool.query({ ...textOf(statement), values } as QueryConfig));
  };

  const transaction = async <T>(work: (run: RunPrepared) => Promise<T>, limits = ''): Promise<T> => {
    const pool = await poolOf(em);
    return prepared(async (textOf) => {
      const client = await pool.connect();
      try {
        await client.query(`${begin}; ${limits}`);
        const result = await work((statement, values) =>
          client.query({ ...textOf(statement), values } as QueryConfig),
        );
        await client.query('commit');
        return result;
      } catch (reason) {
        await client.query('rollback');
        throw reason;
      } finally {
        client.release();
      }
    });
  };

  return {
    /** Runs one statement as its own transaction. */
    run,
    /** Runs a merchant's statement, mostly a read, when it is the merchant's turn: see `inTurn`. */
    read: (merchantId: string, ...statement: Parameters<RunPrepared>): Promise<QueryResult> =>
      inTurn(em, 'reads', merchantId, () => run(...statement)),
    /**
     * Runs several statements in one transaction. When this resolves, everything they wrote is durable.
     * Behind a pooler the work may be called twice, so it must have no effects except those of its
     * statements. `limits` is SQL that sets further limits for the transaction.
     */
    transaction,
    /** The same for a merchant's change, when it is the merchant's turn. Throws `unavailable`. */
    change: <T>(merchantId: string, work: (run: RunPrepared) => Promise<T>): Promise<T> =>
      inTurn(em, 'changes', merchantId, () => transaction(work)),
  };
}
