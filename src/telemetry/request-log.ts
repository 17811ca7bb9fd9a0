import type { Logger } from 'pino';
import type { RequestContext, RequestObserver, RequestOutcome } from '../requests/request-context.ts';

/** Refusals of one kind logged individually in one second. Further ones share a line. */
const maxRefusalLines = 100;
const summaryIntervalMs = 1_000;

type Refusals = { door: string; rpc: string | undefined; code: RequestOutcome; count: number };

/**
 * Logs one line per request. A flood of refusals of one kind (door, method, code) or of successes without a
 * key is summarised each second. Other successes and `internal` errors always have a line.
 */
export function createRequestLog(logger: Logger) {
  const refusals = new Map<string, Refusals>();
  let timer: NodeJS.Timeout | undefined;

  const summarize = () => {
    timer = undefined;
    for (const { count, ...kind } of refusals.values()) {
      const more = count - maxRefusalLines;
      if (more <= 0) continue;
      logger.info(
        { ...kind, count: more },
        `${kind.rpc ?? 'request'} ${kind.code}, ${more} more in the last second`,
      );
    }
    refusals.clear();
  };

  const isSummarized = (context: RequestContext, rpc: string | undefined, code: RequestOutcome): boolean => {
    if (code === 'internal' || (code === 'ok' && context.identity !== undefined)) return false;
    const { door } = context;
    const key = `${door} ${rpc} ${code}`;
    const kind = refusals.get(key) ?? { door, rpc, code, count: 0 };
    kind.count++;
    refusals.set(key, kind);
    timer ??= setTimeout(summarize, summaryIntervalMs).unref();
    return kind.count > maxRefusalLines;
  };

  return {
    /** Writes the line of a request, or counts it for the summary of its second. */
    observe(...[context, rpc, outcome]: Parameters<RequestObserver>) {
      if (!isSummarized(context, rpc, outcome)) logRequest(logger, context, rpc, outcome);
    },
    /** Writes the summary of the current second. Call it after the last request. */
    stop() {
      clearTimeout(timer);
      summarize();
    },
  };
}

/** Maximum invalid fields named in a line. */
const maxFields = 10;
/** Only names like the contract's are logged: an unknown one may be a key or a secret, which are longer. */
const fieldName = /^[A-Za-z_][\w.[\]]{0,39}$/;

/** Returns the names of the invalid fields, without their values; undefined if there are none. */
function faultyFields({ error }: RequestContext): string[] | undefined {
  if (error === undefined || error.violations.length === 0) return undefined;
  const names = error.violations.map(({ field }) => (fieldName.test(field) ? field : '…'));
  return names.length > maxFields ? [...names.slice(0, maxFields), '…'] : names;
}

/**
 * Logs only the fields listed here: never headers, bodies, keys, client secrets or metadata. `internal`
 * errors are logged in full; `unavailable` and `chain_unwatched`, which operators can fix, with their reason.
 */
function logRequest(
  logger: Logger,
  context: RequestContext,
  rpc: string | undefined,
  outcome: RequestOutcome,
): void {
  const { identity, openedIntent, error } = context;
  const line = {
    request_id: context.requestId,
    door: context.door,
    rpc,
    merchant_id: identity?.merchantTypeId,
    key_id: identity?.keyTypeId,
    mode: identity?.mode,
    payment_intent: openedIntent?.typeId ?? context.paymentIntent,
    code: outcome,
    fields: faultyFields(context),
    replayed: context.replayed,
    trace_id: context.trace?.span.isRecording() ? context.trace.span.spanContext().traceId : undefined,
    duration_ms: Math.round((performance.now() - context.startedAtMs) * 1000) / 1000,
  };
  const message = `${rpc ?? 'request'} ${outcome}`;
  if (error?.code === 'internal') logger.error({ ...line, err: error.cause }, message);
  else if (error?.code === 'unavailable' || error?.code === 'chain_unwatched')
    logger.warn({ ...line, reason: error.cause instanceof Error ? error.cause.message : undefined }, message);
  else logger.info(line, message);
}
