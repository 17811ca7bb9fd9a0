import { hash } from 'node:crypto';
import type { EntityManager } from '@mikro-orm/postgresql';
import type { Pool, QueryResult } from 'pg';

/**
 * A statement for `prepare`. Its name carries a digest of its text: behind a pooler two releases share sessions, and
 * a name must never stand for two texts.
 */
export interface PreparedStatement {
  readonly name: string;
  readonly text: string;
}

/** Names a statement, at most 63 bytes in all. */
export function preparedStatement(label: string, text: string): PreparedStatement {
  return { name: `${label}_${hash('sha256', text, 'hex').slice(0, 12)}`, text };
}

/** Runs a statement with its values and returns PostgreSQL's result. */
export type RunPrepared = (statement: PreparedStatement, values: unknown[]) => Promise<QueryResult>;

/** `invalid_sql_statement_name` and `duplicate_prepared_statement`. */
const notAsPrepared = /^(?:26000|42P05)$/;

/**
 * Runs statements prepared on MikroORM's connections, and unprepared from the moment a pooler in transaction mode
 * shows itself: it hands out another session each time, where a statement is not prepared, or is already. The one
 * place that knows; every prepared statement goes through it.
 */
export function createRunPrepared(em: EntityManager): RunPrepared {
  let mayPrepare = true;
  return async ({ name, text }, values) => {
    const pool: Pool = await em.getConnection().getNativeClient();
    if (!mayPrepare) return pool.query({ text, values });
    // Whatever others in flight learn meanwhile, this run was prepared, and is run unprepared if that fails.
    return pool.query({ name, text, values }).catch((reason) => {
      if (!notAsPrepared.test((reason as { code?: string }).code ?? '')) throw reason;
      mayPrepare = false;
      // Such a statement was refused before it did anything.
      return pool.query({ text, values });
    });
  };
}
