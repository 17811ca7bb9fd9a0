import type { Logger } from 'pino';
import type { Config } from '../config/config.ts';
import type { RequestObserver } from '../requests/request-context.ts';
import { createMetrics } from '../telemetry/metrics.ts';
import { createRequestLog } from '../telemetry/request-log.ts';

export type Telemetry = Awaited<ReturnType<typeof startTelemetry>>;

/** Creates the observers of completed requests. */
export async function startTelemetry(config: Config, logger: Logger) {
  const metrics = createMetrics();
  // Loads OpenTelemetry.
  const tracing = config.tracing ? (await import('../telemetry/tracing.ts')).startTracing(logger) : undefined;
  const requestLog = createRequestLog(logger);
  const onEnd: RequestObserver = (context, rpc, outcome) => {
    requestLog.observe(context, rpc, outcome);
    metrics.request(context, rpc, outcome);
    tracing?.end(context, outcome);
  };
  return { metrics, requestLog, tracing, onEnd };
}
