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

export interface Statement {
  /** `INSERT` or `SELECT`. */
  operation: string;
  table: string;
  /** The number of creates that it writes or looks up together. */
  creates?: number;
}
