import pg from 'pg';
import { statementTimeout } from './unavailable.ts';

/**
 * Returns `pg`'s client, with a connection that is cut when a statement exceeds its deadline. `pg`'s own
 * `query_timeout` stops waiting but keeps the connection. Its next user in the pool then waits behind the same
 * statement, or for a result that a broken network never delivers.
 */
export function clientWithDeadline(statementTimeoutMs: number): typeof pg.Client {
  return class ClientWithDeadline extends pg.Client {
    #timer: NodeJS.Timeout | undefined;

    constructor(config?: pg.ClientConfig) {
      super(config);
      const disarm = () => {
        clearTimeout(this.#timer);
        this.#timer = undefined;
      };
      // Emitted when no statement is left on the connection.
      this.on('drain', disarm).on('end', disarm);
    }

    // Reflect.apply returns `any`, which fits every overload of `query`.
    override query(...args: unknown[]) {
      clearTimeout(this.#timer);
      this.#timer = setTimeout(() => {
        this.connection.stream.destroy(
          Object.assign(
            new Error(`Connection terminated: a statement took more than ${statementTimeoutMs} ms`),
            { code: statementTimeout },
          ),
        );
      }, statementTimeoutMs);
      return Reflect.apply(super.query, this, args);
    }
  };
}
