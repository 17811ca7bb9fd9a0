// Spans of the work for requests, deliveries and chains. Until `tracing.ts` has started the SDK,
// OpenTelemetry's API does nothing, so callers need not know whether traces are on.

import type { Attributes, Span, SpanOptions } from '@opentelemetry/api';
import { propagation, ROOT_CONTEXT, SpanKind, SpanStatusCode, trace } from '@opentelemetry/api';
import manifest from '../../package.json' with { type: 'json' };
import { type Trace, traceparentOf } from '../requests/trace.ts';

export const serviceName = 'payment-intent-service';
/** Longest time to export the last spans. */
export const maxStopMs = 2_000;
export const tracer = trace.getTracer(serviceName, manifest.version);

interface Statement {
  /** `INSERT` or `SELECT`. */
  operation: string;
  table: string;
  /** The number of creates that it writes or looks up together. */
  creates?: number;
}

/** Runs a statement for these requests. Each gets its own span for it, so that every trace is complete. */
export function traceStatement<T>(
  { operation, table, creates }: Statement,
  requests: readonly { trace: Trace | undefined }[],
  run: () => Promise<T>,
): Promise<T> {
  const attributes = {
    'db.system.name': 'postgresql',
    'db.operation.name': operation,
    'db.collection.name': table,
    ...(creates !== undefined && { 'payment_intents.commit_batch_size': creates }),
  };
  const spans = requests.flatMap(({ trace }) =>
    trace?.span.isRecording()
      ? tracer.startSpan(`${operation} ${table}`, { kind: SpanKind.CLIENT, attributes }, trace.inside)
      : [],
  );
  return inSpans(spans, run);
}

/** Runs a webhook attempt in a span. `traceparent`: the trace of the change that the event reports. */
export function traceDelivery<T extends { statusCode: number | undefined; error: string | undefined }>(
  { url, eventId, traceparent }: { url: string; eventId: string; traceparent: string | null },
  run: () => Promise<T>,
): Promise<T> {
  const parent = traceparent === null ? ROOT_CONTEXT : propagation.extract(ROOT_CONTEXT, { traceparent });
  const attributes = {
    'http.request.method': 'POST',
    ...serverOf(new URL(url)),
    'payment_intents.event_id': eventId,
  };
  const span = tracer.startSpan('webhook POST', { kind: SpanKind.CLIENT, attributes }, parent);
  return inSpans([span], async () => {
    const result = await run();
    if (result.statusCode !== undefined) span.setAttribute('http.response.status_code', result.statusCode);
    if (result.error !== undefined) {
      const errorType = result.statusCode === undefined ? result.error : String(result.statusCode);
      span.setAttribute('error.type', errorType).setStatus({ code: SpanStatusCode.ERROR });
    }
    return result;
  });
}

/** The work of a watcher. */
interface ChainWork {
  name: 'block' | 'confirmation' | 'reorganisation' | 'second reading';
  chainId: number;
  /** The block that is read, confirmed or reverted to. */
  block: number;
  /** The number of transfers, if known beforehand. */
  transfers?: number;
  /** When the work began, by `performance.now()`; now if undefined. */
  sinceMs?: number;
}

/** Runs the work of a watcher in a trace of its own. */
export function traceChainWork<T>(
  { name, chainId, block, transfers, sinceMs }: ChainWork,
  run: () => Promise<T>,
): Promise<T> {
  const options: SpanOptions = {
    root: true,
    attributes: {
      'payment_intents.chain_id': chainId,
      'payment_intents.block': block,
      ...(transfers !== undefined && { 'payment_intents.transfers': transfers }),
    },
    ...(sinceMs !== undefined && { startTime: performance.timeOrigin + sinceMs }),
  };
  return tracer.startActiveSpan(name, options, (span) => inSpans([span], run));
}

/** Runs a part of the current work for a chain in its own span. */
function tracePart<T>(name: string, attributes: Attributes, run: () => Promise<T>): Promise<T> {
  if (trace.getActiveSpan() === undefined) return run();
  return tracer.startActiveSpan(name, { kind: SpanKind.CLIENT, attributes }, (span) => inSpans([span], run));
}

/** Runs a request to a node in a span of a watcher's current work. Without such work there is no span. */
export function traceNodeRequest<T>(method: string, node: URL, run: () => Promise<T>): Promise<T> {
  return tracePart(method, { 'rpc.system.name': 'jsonrpc', 'rpc.method': method, ...serverOf(node) }, run);
}

/** The same for a transaction. */
export function traceTransaction<T>(run: () => Promise<T>): Promise<T> {
  return tracePart('COMMIT', { 'db.system.name': 'postgresql', 'db.operation.name': 'COMMIT' }, run);
}

/** The `traceparent` of the current work of a watcher, or null. */
export function chainTraceparent(): string | null {
  const span = trace.getActiveSpan();
  return traceparentOf(span && { span });
}

/** Runs the work and ends its spans. If it fails, they get the type of the error. */
async function inSpans<T>(spans: readonly Span[], run: () => Promise<T>): Promise<T> {
  try {
    return await run();
  } catch (reason) {
    const { code, fault, name } = reason as { code?: unknown; fault?: unknown; name?: unknown };
    const isSqlState = typeof code === 'string' && /^[0-9A-Z]{5}$/.test(code);
    for (const span of spans) {
      span
        .setAttributes({
          'error.type': String(fault ?? code ?? name),
          ...(isSqlState && { 'db.response.status_code': code }),
        })
        .setStatus({ code: SpanStatusCode.ERROR });
    }
    throw reason;
  } finally {
    for (const span of spans) span.end();
  }
}

function serverOf({ hostname, port }: URL): Attributes {
  return { 'server.address': hostname, ...(port !== '' && { 'server.port': Number(port) }) };
}
