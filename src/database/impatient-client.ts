import pg from 'pg';

/**
 * `pg`'s client, with a connection that is cut when a statement outlasts its time. `pg`'s own `query_timeout` stops
 * waiting and leaves the connection as it is, so that whoever gets it from the pool next waits behind the same
 * statement, or for an answer that a broken network will never bring.
 */
export function impatientClient(statementTimeoutMs: number): typeof pg.Client {
  return class ImpatientClient extends pg.Client {
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

    override query(...args: unknown[]): never {
      clearTimeout(this.#timer);
      this.#timer = setTimeout(() => {
        const { stream } = (this as unknown as { connection: { stream: { destroy(error: Error): void } } })
          .connection;
        stream.destroy(
          new Error(`Connection terminated: a statement took more than ${statementTimeoutMs} ms`),
        );
      }, statementTimeoutMs);
      return (super.query as (...args: unknown[]) => unknown).apply(this, args) as never;
    }
  };
}
