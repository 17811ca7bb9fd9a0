import type { Attributes, Context, Span } from '@opentelemetry/api';

/** What a request asks for, in words of few values. */
export interface Operation {
  /** The span's name: `POST /v1/payment_intents`. */
  name: string;
  attributes: Attributes;
  /** The status of an answer that is no error. */
  okStatus: Attributes;
}

/** The span of a request, for whatever is done on its behalf. */
export interface Trace {
  span: Span;
  operation: Operation;
  /** The parent of spans inside it. */
  inside: Context;
}

export interface Statement {
  /** `INSERT` or `SELECT`. */
  operation: string;
  table: string;
  /** Creates that it writes or looks for together. */
  creates?: number;
}
