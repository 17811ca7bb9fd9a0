// The merchants' door: JSON over HTTP, transcoded from the contract's google.api.http annotations. It goes
// bytes -> message -> interceptors -> method -> bytes by itself; Connect's own HTTP handling is several times
// slower and speaks another JSON.

import type { ServerResponse } from 'node:http';
import type { Http2ServerResponse } from 'node:http2';
import type { DescService, Message } from '@bufbuild/protobuf';
import { type ContextValues, createContextValues, type Interceptor } from '@connectrpc/connect';
import type { Logger } from 'pino';
import {
  catalogue,
  type ErrorCode,
  type FieldViolation,
  toErrorJson,
} from '../../contract/error-catalogue.ts';
import { type HttpRoute, httpRoutesOf } from '../../contract/http-routes.ts';
import { createJsonCodec, type JsonCodec } from '../../contract/json/json-codec.ts';
import { expectationFailed } from '../../contract/limits.ts';
import { invalidBody, ServiceError, toServiceError } from '../../requests/errors.ts';
import {
  newRequestContext,
  type RequestContext,
  type RequestObserver,
  type RequestOutcome,
  requestContextKey,
} from '../../requests/request-context.ts';
import type { Operation } from '../../requests/trace.ts';
import type { Tracing } from '../../requests/tracing.ts';
import type { GateContext } from '../authentication.ts';
import { docUrlOf } from '../doc-url.ts';
import type { Connection } from '../listener.ts';
import { behindInterceptors, type MethodCall, type UnaryMethod } from '../method-call.ts';
import { countOf, headersOf, type NodeRequest, pathOf } from '../node-headers.ts';
import { isLastOfConnection } from '../pipelining.ts';
import { assertDeclaredSize, ClientGone, discardBody, limitStream, readBody } from '../request-body.ts';
import { UnidentifiedStreams } from '../unidentified-streams.ts';
import type { Documentation } from './documentation.ts';
import { parseJsonBody } from './json-body.ts';

type Response = ServerResponse | Http2ServerResponse;

export interface TranscodedService {
  service: DescService;
  /** Methods by their name in the descriptor's `localName`. */
  methods: Readonly<Record<string, UnaryMethod>>;
  /**
   * The rules of a method, so that a request with faults of shape hears of its other faults in the same
   * answer. A request with a fault of shape never reaches its method, whether or not its rules are here.
   */
  violationsOf?: Readonly<Record<string, (message: never, values: ContextValues) => FieldViolation[]>>;
}

export interface PublicDoorOptions {
  services: readonly TranscodedService[];
  interceptors: readonly Interceptor[];
  gate: (context: GateContext) => Promise<void>;
  logger: Logger;
  onEnd: RequestObserver;
  tracing?: Tracing | undefined;
  isDraining: () => boolean;
  /** Told of the connection of each request whose key is valid. */
  keepConnection: (connection: Connection) => void;
  requestTimeoutMs: number;
  scheme: 'http' | 'https';
  documentation: Documentation;
  /** Lets the reference page of this port send requests, with testnet keys only. */
  allowsTryIt: boolean;
}

interface Endpoint extends HttpRoute {
  input: JsonCodec<HttpRoute['method']['input']>;
  output: JsonCodec<HttpRoute['method']['output']>;
  call: (call: MethodCall) => Promise<{ message: Message; header: Headers }>;
  violationsOf: (message: Message, values: ContextValues) => FieldViolation[];
  operation: Operation;
}

/**
 * The request listener of the public door. Everything is prepared here, once: throws where an annotation or a
 * message of the contract has a form that it cannot serve.
 */
export function createPublicDoor(
  options: PublicDoorOptions,
): (request: NodeRequest, response: Response) => void {
  const endpoints = compileEndpoints(options);
  const { documentation } = options;
  const unidentified = new UnidentifiedStreams();

  return (request, response) => {
    const context = newRequestContext('public');
    if ('stream' in request) {
      const { stream } = request;
      limitStream(stream, options.requestTimeoutMs);
      unidentified.add(stream);
      unidentified.removeWhenClosed(stream);
      context.onIdentified = () => unidentified.remove(stream);
    }
    const path = pathOf(request);
    const isDocument = documentation.has(path);
    const byMethod = endpoints.get(path);
    const endpoint = byMethod?.get(request.method ?? '');
    const rpc = isDocument ? 'documentation' : endpoint?.method.name;
    const done = (): RequestOutcome => 'ok';
    const fail = (reason: unknown): RequestOutcome =>
      reason instanceof ClientGone ? 'canceled' : refuse(reason, request, response, context, options);
    const serveDocument = async () => {
      assertHttp(request);
      await documentation.serve(path, request, response as ServerResponse, context.requestId);
    };
    const served = isDocument
      ? serveDocument().then(done, fail)
      : answer(request, response, byMethod, endpoint, context, options).then(({ status, body, header }) => {
          send(request, response, status, body, context, header, options);
          return done();
        }, fail);
    served
      .then((outcome) => {
        if ('stream' in request && context.identity === undefined) unidentified.answered(request.stream);
        options.onEnd(context, rpc, outcome);
      })
      .catch((reason) => {
        options.logger.error({ err: reason, request_id: context.requestId }, 'an answer could not be sent');
        request.destroy();
      });
  };
}

function refuse(
  reason: unknown,
  request: NodeRequest,
  response: Response,
  context: RequestContext,
  options: PublicDoorOptions,
): ErrorCode {
  const error = toServiceError(reason);
  context.error = error;
  if (response.destroyed) return error.code;
  const body = JSON.stringify(
    toErrorJson(error, context.requestId, docUrlOf(error.code, request, options.scheme)),
  );
  const httpStatus = error.httpStatus ?? catalogue[error.code].httpStatus;
  const headers = Object.entries({ ...context.rateLimit, ...error.httpHeaders });
  send(request, response, httpStatus, body, context, headers, options);
  discardBody(request);
  return error.code;
}

/** Of a method and path that are not there. */
const maxPathShown = 120;

interface Answer {
  status: number;
  body: string;
  header: Iterable<[string, string]>;
}

async function answer(
  request: NodeRequest,
  response: Response,
  byMethod: ReadonlyMap<string, Endpoint> | undefined,
  endpoint: Endpoint | undefined,
  context: RequestContext,
  options: PublicDoorOptions,
): Promise<Answer> {
  assertHttp(request);
  if (byMethod === undefined) {
    const asked = `${request.method} ${pathOf(request)}`;
    const short = asked.length > maxPathShown ? `${asked.slice(0, maxPathShown)}…` : asked;
    throw new ServiceError('not_found', {
      message: `There is no ${short.toWellFormed()} here. The reference at /docs lists what there is.`,
    });
  }
  const isTrial = options.allowsTryIt && comesFromReferencePage(request);
  if (request.headers.origin !== undefined && !isTrial) throw new ServiceError('browser_forbidden');
  if (endpoint === undefined) {
    const allowed = [...byMethod.keys()];
    throw new ServiceError('method_not_allowed', {
      message: `There is no ${request.method} here: ${pathOf(request)} answers ${allowed.join(' and ')}.`,
      httpHeaders: { Allow: allowed.join(', ') },
    });
  }
  const values = createContextValues().set(requestContextKey, context);
  const header = headersOf(request);
  options.tracing?.begin(context, endpoint.operation, header);
  await options.gate({ values, requestHeader: header });
  options.keepConnection(('stream' in request ? request.stream.session : undefined) ?? request.socket);
  if (isTrial && context.identity?.mode !== 'testnet') throw new ServiceError('browser_forbidden');
  assertJson(header);

  assertDeclaredSize(request);
  if (header.get('expect')?.toLowerCase() === '100-continue') response.writeContinue();
  const json = parseJsonBody(await readBody(request, options.requestTimeoutMs));
  const { message, violations } = endpoint.input.decode(json);
  if (message === undefined || violations.length > 0) {
    throw invalidBody(allViolations(endpoint, message, violations, values));
  }

  const result = await endpoint.call({ message, header, values, url: endpoint.path });
  return {
    status: endpoint.successStatus,
    body: endpoint.output.encode(result.message),
    header: result.header,
  };
}

/**
 * True for a request that a browser sends from this port's own page on this machine. Held against two fixed names:
 * with the `Host` header, which a rebound name of a hostile page controls, any origin could match.
 */
function comesFromReferencePage(request: NodeRequest): boolean {
  const { origin } = request.headers;
  if (origin === undefined) return false;
  const port = request.socket.localPort;
  return ['localhost', '127.0.0.1'].some((host) => origin === `http://${host}:${port}`);
}

function compileEndpoints({
  services,
  interceptors,
  scheme,
}: PublicDoorOptions): Map<string, Map<string, Endpoint>> {
  const endpoints = new Map<string, Map<string, Endpoint>>();
  for (const { service, methods, violationsOf } of services) {
    for (const route of httpRoutesOf(service)) {
      const { localName } = route.method;
      const implementation = methods[localName];
      if (implementation === undefined)
        throw new Error(`${service.typeName}.${route.method.name} is not implemented`);
      const byMethod = endpoints.get(route.path) ?? new Map<string, Endpoint>();
      if (byMethod.has(route.httpMethod)) {
        throw new Error(`${route.httpMethod} ${route.path} is annotated on two methods`);
      }
      byMethod.set(route.httpMethod, {
        ...route,
        input: createJsonCodec(route.method.input),
        output: createJsonCodec(route.method.output),
        call: behindInterceptors(route.method, implementation, interceptors),
        violationsOf: (message, values) => violationsOf?.[localName]?.(message as never, values) ?? [],
        operation: {
          name: `${route.httpMethod} ${route.path}`,
          attributes: {
            'http.request.method': route.httpMethod,
            'http.route': route.path,
            'url.path': route.path,
            'url.scheme': scheme,
          },
          okStatus: { 'http.response.status_code': route.successStatus },
        },
      });
      endpoints.set(route.path, byMethod);
    }
  }
  return endpoints;
}

/** The faults of shape, and the broken rules of the fields that had none. */
function allViolations(
  endpoint: Endpoint,
  message: Message | undefined,
  violations: FieldViolation[],
  values: ContextValues,
): FieldViolation[] {
  if (message === undefined) return violations;
  const faulty = new Set(violations.map(({ field }) => field));
  const broken = endpoint.violationsOf(message, values).filter(({ field }) => !faulty.has(field));
  return [...violations, ...broken];
}

/**
 * What Node's parser lets pass: no `Host` or two of them (RFC 9112, section 3.2), codings other than chunked that nobody
 * would undo, and expectations other than `100-continue`.
 */
function assertHttp(request: NodeRequest): void {
  const { 'transfer-encoding': coding, expect } = request.headers;
  if (expect !== undefined && expect.toLowerCase() !== '100-continue') {
    throw new ServiceError('invalid_body', { message: expectationFailed, httpStatus: 417 });
  }
  if ('stream' in request) return;
  const hosts = countOf(request, 'host');
  if (hosts > 1 || (hosts === 0 && request.httpVersion !== '1.0')) {
    throw new ServiceError('invalid_body', { message: `The request has ${hosts} Host headers. Send one.` });
  }
  if (coding !== undefined && coding.toLowerCase() !== 'chunked') {
    throw new ServiceError('unsupported_media_type', {
      message: 'The body has a transfer coding that is not read here. Send it plain or chunked.',
      httpHeaders: { Accept: 'application/json' },
    });
  }
}

function assertJson(header: Headers): void {
  const [mediaType, ...parameters] = (header.get('content-type') ?? '').toLowerCase().split(';');
  const isUtf8 = parameters.every((parameter) => /^(?:charset="?utf-8"?)?$/.test(parameter.trim()));
  const encoding = header.get('content-encoding') ?? 'identity';
  if (mediaType?.trim() !== 'application/json' || !isUtf8 || encoding.toLowerCase() !== 'identity') {
    throw new ServiceError('unsupported_media_type', {
      message: 'The body has to be JSON without any content encoding. Send Content-Type: application/json.',
      httpHeaders: { Accept: 'application/json' },
    });
  }
}

function send(
  request: NodeRequest,
  response: Response,
  status: number,
  body: string,
  context: RequestContext,
  headers: Iterable<[string, string]>,
  { isDraining }: PublicDoorOptions,
): void {
  const all: Record<string, string | number> = {
    'Content-Type': 'application/json',
    'Content-Length': Buffer.byteLength(body),
    'Cache-Control': 'no-store',
    'X-Request-Id': context.requestId,
    ...Object.fromEntries(headers),
  };
  // HTTP/2 says the same by GOAWAY.
  if (isDraining() && !('stream' in response) && isLastOfConnection(request)) all.Connection = 'close';
  (response as ServerResponse).writeHead(status, all);
  // As text, which Node sends together with the head in one piece.
  response.end(body);
}
