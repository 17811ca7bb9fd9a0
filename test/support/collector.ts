// A minimal OpenTelemetry collector: receives spans as OTLP over HTTP in JSON, and keeps them.

import { EventEmitter, once } from 'node:events';
import http from 'node:http';
import { json } from 'node:stream/consumers';
import { type Listening, listen } from './listen.ts';

export interface ReceivedSpan {
  traceId: string;
  spanId: string;
  parentSpanId: string | undefined;
  name: string;
  /** 2 is the span of a server, 3 that of a client. */
  kind: number;
  /** 2 is an error. */
  status: number;
  attributes: Record<string, unknown>;
  resource: Record<string, unknown>;
  startNs: bigint;
  endNs: bigint;
}

export interface Collector extends Listening {
  spans: ReceivedSpan[];
  /** Resolves with the spans of a trace once it has that many. */
  trace(traceId: string, spans: number): Promise<ReceivedSpan[]>;
}

interface Attribute {
  key: string;
  value: Record<string, unknown>;
}

interface ExportRequest {
  resourceSpans: {
    resource: { attributes: Attribute[] };
    scopeSpans: {
      spans: {
        traceId: string;
        spanId: string;
        parentSpanId?: string;
        name: string;
        kind: number;
        status: { code?: number };
        attributes: Attribute[];
        startTimeUnixNano: string;
        endTimeUnixNano: string;
      }[];
    }[];
  }[];
}

export async function startCollector(): Promise<Collector> {
  const spans: ReceivedSpan[] = [];
  const received = new EventEmitter().setMaxListeners(0);
  const server = http.createServer(async (request, response) => {
    const { resourceSpans } = (await json(request)) as ExportRequest;
    for (const { resource, scopeSpans } of resourceSpans) {
      for (const span of scopeSpans.flatMap((scope) => scope.spans)) {
        spans.push({
          traceId: span.traceId,
          spanId: span.spanId,
          parentSpanId: span.parentSpanId,
          name: span.name,
          kind: span.kind,
          status: span.status.code ?? 0,
          attributes: valuesOf(span.attributes),
          resource: valuesOf(resource.attributes),
          startNs: BigInt(span.startTimeUnixNano),
          endNs: BigInt(span.endTimeUnixNano),
        });
      }
    }
    response.setHeader('content-type', 'application/json').end('{}');
    received.emit('spans');
  });
  return {
    ...(await listen(server)),
    spans,
    async trace(traceId, count) {
      for (;;) {
        const found = spans.filter((span) => span.traceId === traceId);
        if (found.length >= count) return found;
        await once(received, 'spans');
      }
    },
  };
}

/** Attributes by their keys. An integer arrives as a number or as a string. */
function valuesOf(attributes: readonly Attribute[]): Record<string, unknown> {
  return Object.fromEntries(
    attributes.map(({ key, value }) => [
      key,
      value.intValue === undefined ? Object.values(value)[0] : Number(value.intValue),
    ]),
  );
}
