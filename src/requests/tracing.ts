import type { RequestContext, RequestOutcome } from './request-context.ts';
import type { ChainWork, Operation, Statement, Trace } from './trace.ts';

/** Traces requests and the work done for them. Implemented in src/telemetry/. */
export interface Tracing {
  /** Begins the span of a request, as a child of the span in its `traceparent` header. */
  begin(context: RequestContext, operation: Operation, header: Headers): void;
  /** Ends the span. Does nothing for a request that was refused before its span began. */
  end(context: RequestContext, outcome: RequestOutcome): void;
  /**
   * Runs a statement that serves these requests. Each request gets its own span for it, so that every trace is complete.
   */
  statement<T>(
    statement: Statement,
    traces: readonly (Trace | undefined)[],
    run: () => Promise<T>,
  ): Promise<T>;
  /** Runs a webhook attempt in a span of the trace in `traceparent`, which is that of the change reported by the event. */
  delivery<T extends { statusCode: number | undefined; error: string | undefined }>(
    delivery: { url: string; eventId: string; traceparent: string | null },
    run: () => Promise<T>,
  ): Promise<T>;
  /** Runs the work of a watcher in a trace of its own. */
  chainWork<T>(work: ChainWork, run: () => Promise<T>): Promise<T>;
  /** Runs a request to a node in a span of the current work of a watcher. Without such work there is no span. */
  nodeRequest<T>(request: { method: string; node: string }, run: () => Promise<T>): Promise<T>;
  /** The same for a transaction. */
  transaction<T>(run: () => Promise<T>): Promise<T>;
  /** The `traceparent` of the current work of a watcher, or null. */
  chainTraceparent(): string | null;
  /** Exports the remaining spans within two seconds. Logs it if that takes longer. */
  stop(): Promise<void>;
}
