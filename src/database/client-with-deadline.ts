import pg from 'pg';

/**
 * `pg`'s client, with a connection that is cut when a statement outlasts its time. `pg`'s own `query_timeout` stops
 * waiting and leaves the connection as it is, so that whoever gets it from the pool next waits behind the same
 * statement, or for an answer that a broken network will never bring.
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
      // Emitted whenever no statement is left on the connection.
      this.on('drain', disarm).on('end', disarm);
    }

    // Reflect.apply returns `any`, which fits every overload of `query`.
    override query(...args: unknown[]) {
      clearTimeout(this.#timer);
      this.#timer = setTimeout(() => {
        this.connection.stream.destroy(
          new Error(`Connection terminated: a statement took more than ${statementTimeoutMs} ms`),
        );
      }, statementTimeoutMs);
      return Reflect.apply(super.query, this, args);
    }
  };
}
