// Traces by OpenTelemetry, if its standard variables turn them on. Spans are started and ended by hand: its
// instrumentations patch modules and cannot see which creates share a statement. Names and attributes are those of the
// semantic conventions, https://opentelemetry.io/docs/specs/semconv/.

import type {
  Attributes,
  DiagLogFunction,
  DiagLogger,
  SpanOptions,
  TextMapGetter,
  Tracer,
} from '@opentelemetry/api';
import type { NodeSDK } from '@opentelemetry/sdk-node';
import type { Logger } from 'pino';
import { catalogue, type ErrorCode } from '../contract/error-catalogue.ts';
import type { RequestContext, RequestOutcome } from '../requests/request-context.ts';
import {
  type ChainWork,
  type Operation,
  type Statement,
  type Trace,
  traceparentOfSpan,
} from '../requests/trace.ts';
import type { Tracing } from '../requests/tracing.ts';

const serviceName = 'payment-intent-service';
const maxStopMs = 2_000;

type OpenTelemetry = typeof import('@opentelemetry/api');

/**
 * Starts OpenTelemetry, which reads the `OTEL_*` variables of this process and reports problems to `logger`. Call it
 * once per process: its providers are global.
 */
export async function startTracing(version: string, logger: Logger): Promise<Tracing> {
  const otel = await import('@opentelemetry/api');
  const sdk = await startSdk(otel, version, logger);
  const tracer = otel.trace.getTracer(serviceName, version);
  return {
    begin: (context, operation, header) => beginRequest(otel, tracer, context, operation, header),
    end: (context, outcome) => endRequest(otel, context, outcome),
    statement: (statement, traces, run) => traceStatement(otel, tracer, statement, traces, run),
    delivery: (delivery, run) => traceDelivery(otel, tracer, delivery, run),
    chainWork: (work, run) => traceChainWork(otel, tracer, work, run),
    nodeRequest: ({ method, node }, run) =>
      tracePart(
        otel,
        tracer,
        method,
        { 'rpc.system.name': 'jsonrpc', 'rpc.method': method, ...serverOf(node) },
        run,
      ),
    transaction: (run) =>
      tracePart(
        otel,
        tracer,
        'COMMIT',
        { 'db.system.name': 'postgresql', 'db.operation.name': 'COMMIT' },
        run,
      ),
    chainTraceparent: () => traceparentOfSpan(otel.trace.getActiveSpan()),
    stop: () => stopSdk(sdk, logger),
  };
}

async function startSdk(
  { diag, DiagLogLevel }: OpenTelemetry,
  version: string,
  logger: Logger,
): Promise<NodeSDK> {
  const [{ NodeSDK }, { defaultResource, resourceFromAttributes }] = await Promise.all([
    import('@opentelemetry/sdk-node'),
    import('@opentelemetry/resources'),
  ]);
  const sdk = new NodeSDK({
    // Attributes from the variables take precedence.
    resource: defaultResource().merge(
      resourceFromAttributes({ 'service.name': serviceName, 'service.version': version }),
    ),
    // Metrics and logs are not sent by OpenTelemetry.
    metricReaders: [],
    logRecordProcessors: [],
  });
  diag.setLogger(diagnosticsTo(logger), { logLevel: DiagLogLevel.WARN, suppressOverrideMessage: true });
  sdk.start();
  return sdk;
}

const headerGetter: TextMapGetter<Headers> = {
  get: (header, name) => header.get(name) ?? undefined,
  keys: (header) => [...header.keys()],
};

function beginRequest(
  { propagation, ROOT_CONTEXT, SpanKind, trace }: OpenTelemetry,
  tracer: Tracer,
  context: RequestContext,
  operation: Operation,
  header: Headers,
): void {
  const parent = propagation.extract(ROOT_CONTEXT, header, headerGetter);
  const span = tracer.startSpan(
    operation.name,
    {
      kind: SpanKind.SERVER,
      attributes: { ...operation.attributes, 'payment_intents.request_id': context.requestId },
    },
    parent,
  );
  context.trace = { span, operation, inside: trace.setSpan(parent, span) };
}

function endRequest(
  { SpanStatusCode }: OpenTelemetry,
  { trace, door, identity, replayed }: RequestContext,
  outcome: RequestOutcome,
): void {
  if (trace === undefined) return;
  const { span, operation } = trace;
  span.setAttributes({
    ...(outcome === 'ok' ? operation.okStatus : errorStatusOf(door, outcome)),
    ...(identity && {
      'payment_intents.merchant_id': identity.merchantTypeId,
      'payment_intents.key_id': identity.keyTypeId,
    }),
    ...(replayed && { 'payment_intents.replayed': true }),
    'payment_intents.code': outcome,
  });
  // Client mistakes are not server errors.
  if (outcome === 'internal' || outcome === 'unavailable' || outcome === 'deadline_exceeded') {
    span.setAttribute('error.type', outcome).setStatus({ code: SpanStatusCode.ERROR });
  }
  span.end();
}

async function traceStatement<T>(
  { SpanKind, SpanStatusCode }: OpenTelemetry,
  tracer: Tracer,
  { operation, table, creates }: Statement,
  traces: readonly (Trace | undefined)[],
  run: () => Promise<T>,
): Promise<T> {
  const attributes = {
    'db.system.name': 'postgresql',
    'db.operation.name': operation,
    'db.collection.name': table,
    ...(creates !== undefined && { 'payment_intents.commit_batch_size': creates }),
  };
  const spans = traces.flatMap((trace) =>
    trace?.span.isRecording()
      ? tracer.startSpan(`${operation} ${table}`, { kind: SpanKind.CLIENT, attributes }, trace.inside)
      : [],
  );
  try {
    return await run();
  } catch (reason) {
    const { code, name } = reason as { code?: unknown; name?: unknown };
    const isSqlState = typeof code === 'string' && /^[0-9A-Z]{5}$/.test(code);
    for (const span of spans) {
      span
        .setAttributes({
          'error.type': String(code ?? name),
          ...(isSqlState && { 'db.response.status_code': code }),
        })
        .setStatus({ code: SpanStatusCode.ERROR });
    }
    throw reason;
  } finally {
    for (const span of spans) span.end();
  }
}

const carrierGetter: TextMapGetter<Readonly<Record<string, string>>> = {
  get: (carrier, name) => carrier[name],
  keys: (carrier) => Object.keys(carrier),
};

async function traceDelivery<T extends { statusCode: number | undefined; error: string | undefined }>(
  { propagation, ROOT_CONTEXT, SpanKind, SpanStatusCode }: OpenTelemetry,
  tracer: Tracer,
  { url, eventId, traceparent }: { url: string; eventId: string; traceparent: string | null },
  run: () => Promise<T>,
): Promise<T> {
  const parent =
    traceparent === null ? ROOT_CONTEXT : propagation.extract(ROOT_CONTEXT, { traceparent }, carrierGetter);
  const { hostname, port } = new URL(url);
  const attributes = {
    'http.request.method': 'POST',
    'server.address': hostname,
    ...(port !== '' && { 'server.port': Number(port) }),
    'payment_intents.event_id': eventId,
  };
  const span = tracer.startSpan('webhook POST', { kind: SpanKind.CLIENT, attributes }, parent);
  try {
    const result = await run();
    if (result.statusCode !== undefined) span.setAttribute('http.response.status_code', result.statusCode);
    if (result.error !== undefined) {
      const errorType = result.statusCode === undefined ? result.error : String(result.statusCode);
      span.setAttribute('error.type', errorType).setStatus({ code: SpanStatusCode.ERROR });
    }
    return result;
  } finally {
    span.end();
  }
}

function traceChainWork<T>(
  otel: OpenTelemetry,
  tracer: Tracer,
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
  return traceActive(otel, tracer, name, options, run);
}

/** A span of the current work for a chain. */
function tracePart<T>(
  otel: OpenTelemetry,
  tracer: Tracer,
  name: string,
  attributes: Attributes,
  run: () => Promise<T>,
): Promise<T> {
  if (otel.trace.getActiveSpan() === undefined) return run();
  return traceActive(otel, tracer, name, { kind: otel.SpanKind.CLIENT, attributes }, run);
}

function traceActive<T>(
  { SpanStatusCode }: OpenTelemetry,
  tracer: Tracer,
  name: string,
  options: SpanOptions,
  run: () => Promise<T>,
): Promise<T> {
  return tracer.startActiveSpan(name, options, async (span) => {
    try {
      return await run();
    } catch (reason) {
      const { code, fault, name } = reason as { code?: unknown; fault?: unknown; name?: unknown };
      span
        .setAttribute('error.type', String(fault ?? code ?? name))
        .setStatus({ code: SpanStatusCode.ERROR });
      throw reason;
    } finally {
      span.end();
    }
  });
}

function serverOf(host: string): Attributes {
  const { hostname, port } = new URL(`http://${host}`);
  return { 'server.address': hostname, ...(port !== '' && { 'server.port': Number(port) }) };
}

async function stopSdk(sdk: NodeSDK, logger: Logger): Promise<void> {
  let timer: NodeJS.Timeout | undefined;
  const timeout = new Promise<never>((_, reject) => {
    timer = setTimeout(
      () => reject(new Error(`the collector did not answer within ${maxStopMs} ms`)),
      maxStopMs,
    );
  });
  await Promise.race([sdk.shutdown(), timeout]).catch((reason) => {
    logger.warn({ err: reason }, 'the last spans could not be sent');
  });
  clearTimeout(timer);
}

/** Returns the status attribute of a failed request, by its door. A canceled HTTP request has none. */
function errorStatusOf(door: RequestContext['door'], outcome: RequestOutcome): Attributes {
  const row = Object.hasOwn(catalogue, outcome) ? catalogue[outcome as ErrorCode] : undefined;
  if (door === 'public') return row === undefined ? {} : { 'http.response.status_code': row.httpStatus };
  if (outcome === 'canceled') return { 'rpc.status_code': 'CANCELLED' };
  const grpcCode = row === undefined ? outcome : row.grpcCode.replace(/\B[A-Z]/g, '_$&');
  return { 'rpc.status_code': grpcCode.toUpperCase() };
}

/** Returns a logger for OpenTelemetry's own problems. All are warnings: payments work without a collector. */
function diagnosticsTo(logger: Logger): DiagLogger {
  const warn: DiagLogFunction = (...parts) => {
    // Parts that are not strings may be spans.
    const texts = parts.filter((part) => typeof part === 'string').map(messageOf);
    logger.warn(`OpenTelemetry: ${texts.join(' ')}`);
  };
  const ignore: DiagLogFunction = () => {};
  return { error: warn, warn, info: ignore, debug: ignore, verbose: ignore };
}

/** Returns the message of an error, which OpenTelemetry passes as JSON with its stack trace. */
function messageOf(text: string): string {
  if (!text.startsWith('{')) return text;
  try {
    const { message, code, name } = JSON.parse(text) as Record<string, string | undefined>;
    return message ?? code ?? name ?? text;
  } catch {
    return text;
  }
}
