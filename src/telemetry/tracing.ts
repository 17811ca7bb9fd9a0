// OpenTelemetry traces, if its standard variables turn them on. Spans are started and ended by hand: its
// instrumentations patch modules and cannot see which creates share a statement. Names and attributes are
// those of the semantic conventions, https://opentelemetry.io/docs/specs/semconv/.

import { setTimeout as sleep } from 'node:timers/promises';
import type { Attributes, DiagLogFunction, DiagLogger, TextMapGetter } from '@opentelemetry/api';
import {
  DiagLogLevel,
  diag,
  propagation,
  ROOT_CONTEXT,
  SpanKind,
  SpanStatusCode,
  trace,
} from '@opentelemetry/api';
import { defaultResource, resourceFromAttributes } from '@opentelemetry/resources';
import { NodeSDK } from '@opentelemetry/sdk-node';
import type { Logger } from 'pino';
import manifest from '../../package.json' with { type: 'json' };
import { catalogue, type ErrorCode } from '../contract/error-catalogue.ts';
import type { RequestContext, RequestOutcome } from '../requests/request-context.ts';
import type { RequestHeader } from '../requests/request-header.ts';
import type { Operation } from '../requests/trace.ts';
import { maxStopMs, serviceName, tracer } from './spans.ts';

/** Traces requests. `spans.ts` traces what is done for them. */
export type Tracing = ReturnType<typeof startTracing>;

/** Starts OpenTelemetry by the `OTEL_*` variables; problems go to `logger`. Global: once per process. */
export function startTracing(logger: Logger) {
  const sdk = new NodeSDK({
    // Attributes from the variables take precedence.
    resource: defaultResource().merge(
      resourceFromAttributes({ 'service.name': serviceName, 'service.version': manifest.version }),
    ),
    // Metrics and logs are not sent by OpenTelemetry.
    metricReaders: [],
    logRecordProcessors: [],
  });
  diag.setLogger(diagnosticsTo(logger), { logLevel: DiagLogLevel.WARN, suppressOverrideMessage: true });
  sdk.start();
  return {
    begin: beginRequest,
    end: endRequest,
    /** Exports the remaining spans within two seconds. Logs it if that takes longer. */
    stop: () => stopSdk(sdk, logger),
  };
}

const headerGetter: TextMapGetter<RequestHeader> = {
  get: (header, name) => header.get(name.toLowerCase()) ?? undefined,
  // The usual propagators do not list keys.
  keys: () => [],
};

/** Begins the span of a request, as a child of the span in its `traceparent` header. */
function beginRequest(context: RequestContext, operation: Operation, header: RequestHeader): void {
  const parent = propagation.extract(ROOT_CONTEXT, header, headerGetter);
  const attributes = { ...operation.attributes, 'payment_intents.request_id': context.requestId };
  const span = tracer.startSpan(operation.name, { kind: SpanKind.SERVER, attributes }, parent);
  context.trace = { span, operation, inside: trace.setSpan(parent, span) };
}

/** Ends the span. Does nothing for a request that was refused before its span began. */
function endRequest({ trace, door, identity, replayed }: RequestContext, outcome: RequestOutcome): void {
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

async function stopSdk(sdk: NodeSDK, logger: Logger): Promise<void> {
  const isLate = sleep(maxStopMs, undefined, { ref: false }).then(() => {
    throw new Error(`the collector did not answer within ${maxStopMs} ms`);
  });
  await Promise.race([sdk.shutdown(), isLate]).catch((reason) => {
    logger.warn({ err: reason }, 'the last spans could not be sent');
  });
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
