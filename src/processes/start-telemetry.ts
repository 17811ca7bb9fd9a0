import type { Logger } from 'pino';
import manifest from '../../package.json' with { type: 'json' };
import type { Config } from '../config/config.ts';
import type { RequestObserver } from '../requests/request-context.ts';
import type { Tracing } from '../requests/tracing.ts';
import { createMetrics, type Metrics } from '../telemetry/metrics.ts';
import { createRequestLog, type RequestLog } from '../telemetry/request-log.ts';
import { startTracing } from '../telemetry/tracing.ts';

export interface Telemetry {
  metrics: Metrics;
  requestLog: RequestLog;
  tracing: Tracing | undefined;
  onEnd: RequestObserver;
}

/** Creates the observers of completed requests. */
export async function startTelemetry(config: Config, logger: Logger): Promise<Telemetry> {
  const metrics = createMetrics();
  const tracing = config.tracing ? await startTracing(manifest.version, logger) : undefined;
  const requestLog = createRequestLog(logger);
  return {
    metrics,
    requestLog,
    tracing,
    onEnd(context, rpc, outcome) {
      requestLog.observe(context, rpc, outcome);
      metrics.request(context, rpc, outcome);
      tracing?.end(context, outcome);
    },
  };
}
