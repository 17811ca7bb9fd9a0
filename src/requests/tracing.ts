import type { RequestContext, RequestOutcome } from './request-context.ts';
import type { Operation, Statement, Trace } from './trace.ts';

/** Traces of requests and of what is done for them. Implemented in src/telemetry/. */
export interface Tracing {
  /** Begins the span of a request, inside the one that its `traceparent` header names. */
  begin(context: RequestContext, operation: Operation, header: Headers): void;
  /** Ends it; does nothing for a request that was refused before it began. */
  end(context: RequestContext, outcome: RequestOutcome): void;
  /**
   * Runs a statement that serves these requests: each of them gets a span of its own for it, so that every trace is
   * whole by itself.
   */
  statement<T>(
    statement: Statement,
    traces: readonly (Trace | undefined)[],
    run: () => Promise<T>,
  ): Promise<T>;
  /** Sends what is left, if that takes no more than two seconds; the log says so if it does. */
  stop(): Promise<void>;
}
