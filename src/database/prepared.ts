import { hash } from 'node:crypto';
import type { EntityManager } from '@mikro-orm/postgresql';
import type { Pool, QueryConfig, QueryResult } from 'pg';
import { inChangeTurn, turnsOf } from './turns.ts';

/** A statement for `prepare`. Its name has a digest of its text: releases share a pooler's sessions, never one name. */
export type PreparedStatement = { readonly name: string; readonly text: string };

/** Names a statement, at most 63 bytes in all. */
export function preparedStatement(label: string, text: string): PreparedStatement {
  return { name: `${label}_${hash('sha256', text, 'hex').slice(0, 12)}`, text };
}

/**
 * Rows as one value of a statement, for `json_to_recordset`. Integers of 64 bits are written as texts. However many they
 * are, PostgreSQL expects the same number of rows, so it keeps the plan; with arrays it plans most runs anew, for a millisecond.
 */
export function jsonOfRows(rows: readonly object[]): string {
  return JSON.stringify(rows, (_, value) => (typeof value === 'bigint' ? String(value) : value));
}

/** Each of the ids once, as such rows. */
export function jsonOfIds(ids: readonly string[]): string {
  return jsonOfRows(Array.from(new Set(ids), (id) => ({ id })));
}

/**
 * Begins a transaction. If the process or its machine stops, PostgreSQL ends the transaction, and frees its locks, after ten
 * seconds. A lock is waited for less long than the process waits for an answer, so that no abandoned statement stays in the
 * queue.
 */
const begin = "begin; set local idle_in_transaction_session_timeout = '10s'; set local lock_timeout = '5s'";

/** Runs a statement with its values and returns PostgreSQL's result. */
export type RunPrepared = (statement: PreparedStatement, values: unknown[]) => Promise<QueryResult>;

export type PreparedStatements = ReturnType<typeof createPreparedStatements>;

const poolOf = (em: EntityManager): Promise<Pool> => em.getConnection().getNativeClient();

/** `invalid_sql_statement_name` and `duplicate_prepared_statement`. */
const notAsPrepared = /^(?:26000|42P05)$/;

const isNotAsPrepared = (reason: unknown) => notAsPrepared.test((reason as { code?: string }).code ?? '');

/**
 * Runs statements prepared on MikroORM's connections, and unprepared from the moment a pooler in transaction mode
 * shows itself: it hands out another session each time, where a statement is not prepared, or is already. The one
 * place that knows; every prepared statement goes through it.
 */
export function createPreparedStatements(em: EntityManager) {
  let mayPrepare = true;

  /** Runs the work prepared, and once more unprepared if that fails for being prepared: then it did nothing. */
  const prepared = async <T>(work: (textOf: (statement: PreparedStatement) => object) => Promise<T>) => {
    const unprepared = () => work(({ text }) => ({ text }));
    if (!mayPrepare) return unprepared();
    // Whatever others in flight learn meanwhile, this run was prepared, and is run unprepared if that fails.
    return work(({ name, text }) => ({ name, text })).catch((reason) => {
      if (!isNotAsPrepared(reason)) throw reason;
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
    /** Runs one statement, which is a transaction by itself. */
    run,
    /** Runs a statement that only reads, for a merchant that has asked, when it is its turn. Throws `unavailable`. */
    async read(merchantId: string, ...statement: Parameters<RunPrepared>): Promise<QueryResult> {
      return turnsOf(await poolOf(em), 'reads')(merchantId, () => run(...statement));
    },
    /**
     * Runs several statements in one transaction: what they wrote is durable when this resolves, or none of it is there.
     * Behind a pooler the work may be called twice, so it has no effects but those of its statements. `limits` sets
     * what else is to hold for the transaction.
     */
    transaction,
    /** The same for a change that a merchant has asked for, when it is its turn. Throws `unavailable`. */
    change: <T>(merchantId: string, work: (run: RunPrepared) => Promise<T>): Promise<T> =>
      inChangeTurn(em, merchantId, () => transaction(work)),
  };
}
