import type { Attributes, Context, Span } from '@opentelemetry/api';

/** The operation of a request, in attributes with few distinct values. */
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
export function traceparentOf(trace: Trace | undefined): string | null {
  return traceparentOfSpan(trace?.span);
}

/** The same of a span. */
export function traceparentOfSpan(span: Span | undefined): string | null {
  if (span === undefined || !span.isRecording()) return null;
  const { traceId, spanId } = span.spanContext();
  return `00-${traceId}-${spanId}-01`;
}

/** What a watcher does for a chain. */
export interface ChainWork {
  name: 'block' | 'confirmation' | 'reorganisation' | 'second reading';
  chainId: number;
  /** The block that is read, confirmed or reverted to. */
  block: number;
  /** Transfers that it concerns, where that is known before. */
  transfers?: number;
  /** When it began, by `performance.now()`, unless it begins now. */
  sinceMs?: number;
}

export interface Statement {
  /** `INSERT` or `SELECT`. */
  operation: string;
  table: string;
  /** The number of creates that it writes or looks up together. */
  creates?: number;
}
