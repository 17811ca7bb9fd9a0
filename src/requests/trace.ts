import type { Attributes, Context, Span } from '@opentelemetry/api';

/** The operation of a request, with attributes that have few distinct values. */
export interface Operation {
  /** The span's name: `POST /v1/payment_intents`. */
  name: string;
  attributes: Attributes;
  /** The status attribute of a successful answer. */
  okStatus: Attributes;
}

/** The span of a request, the parent of all work done for it. */
export interface Trace {
  span: Span;
  operation: Operation;
  /** The context for spans inside it. */
  inside: Context;
}

/** Returns the trace as a `traceparent` header (W3C Trace Context), or null if it is not sampled. */
export function traceparentOf(trace: Pick<Trace, 'span'> | undefined): string | null {
  if (!trace?.span.isRecording()) return null;
  const { traceId, spanId } = trace.span.spanContext();
  return `00-${traceId}-${spanId}-01`;
}
