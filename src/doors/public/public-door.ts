// The merchants' door: JSON over HTTP, transcoded by the contract's google.api.http annotations. It goes bytes ->
// message -> method -> bytes without Connect, whose HTTP handling is several times slower and uses a
// different JSON mapping.

import { hash } from 'node:crypto';
import { getOption, type Message } from '@bufbuild/protobuf';
import type { Logger } from 'pino';
import { catalogue, type ErrorCode, type FieldViolation } from '../../contract/error-catalogue.ts';
import { json_method } from '../../contract/gen/payments/v1/json_pb.ts';
import { type HttpRoute, httpRoutesOf } from '../../contract/http-routes.ts';
import { hasRequiredField } from '../../contract/json/field-rules.ts';
import { createJsonCodec, type Decoded, type JsonCodec } from '../../contract/json/json-codec.ts';
import { expectationFailed } from '../../contract/limits.ts';
import { invalidBody, plainRefusal, ServiceError, toServiceError } from '../../requests/errors.ts';
import type { ServedService } from '../../requests/method.ts';
import {
  answerHeaders,
  isIdentified,
  newRequestContext,
  type RequestContext,
  type RequestObserver,
  type RequestOutcome,
} from '../../requests/request-context.ts';
import { RawHeaders } from '../../requests/request-header.ts';
import { type CallOptions, type ServedMethod, serveCall } from '../call.ts';
import { createClientAddress } from '../client-address.ts';
import { docUrlOf } from '../doc-url.ts';
import type { Connection } from '../listener.ts';
import { type NodeRequest, type NodeResponse, pathWithoutSlashOf, queryOf } from '../node-headers.ts';
import { ClientGone, discardBody, hasBody, limitStream } from '../request-body.ts';
import { UnidentifiedStreams } from '../unidentified-streams.ts';
import { parseJsonBody, readJsonBytes } from './json-body.ts';
import { isOwnOrigin } from './own-origin.ts';
import { parseQuery } from './query.ts';
import { refusalJson } from './refusal.ts';
import { createRouter, type Match } from './router.ts';
import { type JsonAnswer, sendJson } from './send-json.ts';

/** Pages and files at fixed paths that need no key, such as the documentation. */
export interface Site {
  /** The name of its requests in the log and the metrics. */
  readonly name: string;
  /** True for one of its paths. */
  has(path: string): boolean;
  /** Answers a request for such a path, or throws a `ServiceError`. */
  serve(exchange: SiteRequest): Promise<void>;
}

/** A request for a site, and where its answer goes. */
export interface SiteRequest {
  readonly path: string;
  readonly request: NodeRequest;
  readonly header: RawHeaders;
  readonly response: NodeResponse;
  readonly context: RequestContext;
}

export interface PublicDoorOptions extends CallOptions<Connection> {
  services: readonly ServedService[];
  logger: Logger;
  onEnd: RequestObserver;
  isDraining: () => boolean;
  /** Networks of the proxies whose `X-Forwarded-For` is believed, in CIDR notation. */
  trustedProxies?: readonly string[];
  requestTimeoutMs: number;
  scheme: 'http' | 'https';
  sites: readonly Site[];
  /** Lets the reference page of this port send requests, with testnet keys only. */
  allowsTryIt: boolean;
}

interface Endpoint extends HttpRoute, ServedMethod {
  input: JsonCodec<HttpRoute['method']['input']>;
  output: JsonCodec<HttpRoute['method']['output']>;
  /** True if an empty body means `{}`, because no field in it is required. */
  allowsEmptyBody: boolean;
  /** It takes no API key, so pages of any origin may call it. */
  isForBrowsers: boolean;
}

/** A request, what it asks for, and where its answer goes. */
interface Exchange extends SiteRequest {
  match: Match<Endpoint> | undefined;
  endpoint: Endpoint | undefined;
  /** Headers of every answer to a browser of any origin. */
  shared: readonly [string, string][];
}

/**
 * Creates the request listener of the public door. Everything is prepared here, once. Throws if an annotation or a
 * message of the contract has a form that the door cannot serve.
 */
export function createPublicDoor(
  options: PublicDoorOptions,
): (request: NodeRequest, response: NodeResponse) => void {
  const router = createRouter(compileEndpoints(options));
  const unidentified = new UnidentifiedStreams();
  const clientAddress = createClientAddress(options.trustedProxies ?? []);

  return (request, response) => {
    const context = newRequestContext('public');
    const header = new RawHeaders(request.rawHeaders);
    if ('stream' in request) {
      const { stream } = request;
      limitStream(stream, options.requestTimeoutMs);
      unidentified.add(stream);
      unidentified.removeWhenClosed(stream);
      context.onIdentified = () => unidentified.remove(stream);
    }
    const path = pathWithoutSlashOf(request);
    const match = router.find(path);
    const endpoint = match?.byMethod.get(request.method ?? '');
    const isShared = endpoint?.isForBrowsers ?? isForBrowsers(match);
    const site = match === undefined ? options.sites.find((candidate) => candidate.has(path)) : undefined;
    if (isShared || site !== undefined) {
      context.clientAddress = () =>
        clientAddress(request.socket.remoteAddress, header.get('x-forwarded-for'));
    }
    const rpc = site?.name ?? endpoint?.method.name;
    const shared = isShared ? forBrowsers : none;
    const exchange: Exchange = { path, request, header, response, context, match, endpoint, shared };

    const serve = async (): Promise<RequestOutcome> => {
      // After this, a request that arrived in one piece is completely parsed.
      await undefined;
      try {
        assertHttp(request, header);
        if (site !== undefined) await site.serve(exchange);
        else sendJson(exchange, await answerTo(exchange, options), options.isDraining);
        return 'ok';
      } catch (reason) {
        if (reason instanceof ClientGone) return 'canceled';
        return refuse(reason, exchange, options);
      }
    };
    serve()
      .then((outcome) => {
        if ('stream' in request && !isIdentified(context)) unidentified.answered(request.stream);
        options.onEnd(context, rpc, outcome);
      })
      .catch((reason) => {
        options.logger.error({ err: reason, request_id: context.requestId }, 'an answer could not be sent');
        request.destroy();
      });
  };
}

function refuse(reason: unknown, exchange: Exchange, { scheme, isDraining }: PublicDoorOptions): ErrorCode {
  const { request, header, response, context, shared } = exchange;
  const error = toServiceError(reason);
  context.error = error;
  if (response.destroyed) return error.code;
  const body = refusalJson(error, context.requestId, docUrlOf(error.code, header, scheme));
  const status = error.httpStatus ?? catalogue[error.code].httpStatus;
  const headers = { ...context.rateLimit, ...error.httpHeaders };
  sendJson(exchange, { status, body, headers: [...shared, ...Object.entries(headers)] }, isDraining);
  discardBody(request);
  return error.code;
}

async function answerTo(exchange: Exchange, options: PublicDoorOptions): Promise<JsonAnswer> {
  const { request, header, path, match, endpoint, context, shared } = exchange;
  if (match === undefined) {
    if (!asksForStartPage(request, header, path)) throw noRoute(request.method, path);
    return { status: 302, body: '', headers: toReference };
  }
  const origin = header.get('origin');
  const isTrial = options.allowsTryIt && origin !== null && isOwnOrigin(origin, request, options.scheme);
  if (origin !== null && !isTrial && shared.length === 0) throw plainRefusal('browser_forbidden');
  if (request.method === 'OPTIONS' && shared.length > 0) {
    return { status: 204, body: '', headers: [...shared, ...preflight] };
  }
  if (endpoint === undefined) throw methodNotAllowed(request.method, path, [...match.byMethod.keys()]);
  const connection = ('stream' in request ? request.stream.session : undefined) ?? request.socket;
  const decode = (caller: unknown) => {
    if (isTrial && context.identity?.mode !== 'testnet') throw plainRefusal('browser_forbidden');
    return decodeRequest(exchange, endpoint, match, caller, options);
  };
  const message = await serveCall(endpoint, { context, header, connection }, decode, options);
  const headers = answerHeaders(context);
  const status = endpoint.successStatus;
  if (!endpoint.isForBrowsers) return { status, body: endpoint.output.encode(message as never), headers };
  const { body, etag } = taggedOf(endpoint, message);
  const isKnown = isNamedIn(header.get('if-none-match'), etag);
  return {
    status: isKnown ? 304 : status,
    body,
    headers: [...shared, ...headers, ['ETag', etag]],
  };
}

/** Reads the message of a request. Throws `invalid_body` with every fault. */
async function decodeRequest(
  { request, header, response }: Exchange,
  endpoint: Endpoint,
  match: Match<Endpoint>,
  caller: unknown,
  options: PublicDoorOptions,
): Promise<Message> {
  const { message, violations } = endpoint.hasBody
    ? await readMessage(endpoint, header, request, response, options)
    : messageFromQuery(endpoint, header, request);
  violations.push(...queryBesideBody(endpoint, request));
  if (message !== undefined) bindVariables(message, endpoint, match);
  if (message === undefined || violations.length > 0) {
    throw invalidBody(allViolations(endpoint, message, violations, caller));
  }
  return message;
}

const toReference: readonly [string, string][] = [
  ['Location', '/docs'],
  ['Vary', 'Accept'],
];

/** True if a person has opened the address of the service in a browser. */
function asksForStartPage({ method }: NodeRequest, header: RawHeaders, path: string): boolean {
  return (
    path === '/' &&
    (method === 'GET' || method === 'HEAD') &&
    /\btext\/html\b/i.test(header.get('accept') ?? '')
  );
}

/** The text of an answer, and the tag by which a browser asks whether it has changed. */
interface TaggedBody {
  body: string;
  etag: string;
}

/** Of messages that may be sent again: a method that answers with the same object says that it has not changed. */
const tagged = new WeakMap<Message, TaggedBody>();

function taggedOf({ output }: Endpoint, message: Message): TaggedBody {
  const known = tagged.get(message);
  if (known !== undefined) return known;
  const body = output.encode(message);
  const made = { body, etag: `"${hash('sha256', body, 'base64url').slice(0, 22)}"` };
  tagged.set(message, made);
  return made;
}

/** Sent with every answer to a browser of any origin. */
const forBrowsers: readonly [string, string][] = [
  ['Access-Control-Allow-Origin', '*'],
  ['Access-Control-Expose-Headers', 'ETag, Retry-After, X-Request-Id'],
];
const none: readonly [string, string][] = [];
const preflight: readonly [string, string][] = [
  ['Access-Control-Allow-Headers', 'Authorization, If-None-Match'],
  ['Access-Control-Max-Age', '7200'],
];

/** A path is for browsers if its endpoints are, whatever the request's HTTP method. */
function isForBrowsers(match: Match<Endpoint> | undefined): boolean {
  return [...(match?.byMethod.values() ?? [])].some((endpoint) => endpoint.isForBrowsers);
}

/** True if an `If-None-Match` has that tag, or any. Weak and strong ones are the same here. */
function isNamedIn(ifNoneMatch: string | null, etag: string): boolean {
  return (ifNoneMatch ?? '').split(',').some((tag) => ['*', etag].includes(tag.trim().replace(/^W\//, '')));
}

type DecodedRequest = Decoded<HttpRoute['method']['input']>;

async function readMessage(
  endpoint: Endpoint,
  header: RawHeaders,
  request: NodeRequest,
  response: NodeResponse,
  { requestTimeoutMs }: PublicDoorOptions,
): Promise<DecodedRequest> {
  if (endpoint.allowsEmptyBody && !hasBody(request, header)) return endpoint.input.decode({});
  const bytes = await readJsonBytes(request, header, response, requestTimeoutMs);
  if (bytes.length === 0 && endpoint.allowsEmptyBody) return endpoint.input.decode({});
  return endpoint.input.decode(parseJsonBody(bytes));
}

function messageFromQuery(endpoint: Endpoint, header: RawHeaders, request: NodeRequest): DecodedRequest {
  if (hasBody(request, header)) {
    throw new ServiceError('invalid_body', {
      message: `${request.method} has no body here. Send the fields in the query.`,
    });
  }
  const violations: FieldViolation[] = [];
  const json = parseQuery(queryOf(request), endpoint.queryFields, violations);
  const decoded = endpoint.input.decode(json);
  return { message: decoded.message, violations: [...violations, ...decoded.violations] };
}

/**
 * The faults of a query where the fields come in the body. A path without variables ignores it: `CreatePaymentIntent`
 * did so in the first release.
 */
function queryBesideBody({ hasBody, pathFields }: Endpoint, request: NodeRequest): FieldViolation[] {
  const violations: FieldViolation[] = [];
  if (hasBody && pathFields.length > 0) parseQuery(queryOf(request), [], violations);
  return violations;
}

/** Puts the path's values into their fields. */
function bindVariables(message: Message, { pathFields }: Endpoint, { values }: Match<Endpoint>): void {
  pathFields.forEach(({ localName }, i) => {
    (message as Message & Record<string, unknown>)[localName] = values[i];
  });
}

/** Characters of an unknown method and path that are shown. */
const maxPathShown = 120;

function noRoute(httpMethod: string | undefined, path: string): ServiceError {
  const asked = `${httpMethod} ${path}`;
  const short = asked.length > maxPathShown ? `${asked.slice(0, maxPathShown)}…` : asked;
  return new ServiceError('not_found', {
    message: `There is no ${short.toWellFormed()} here. The reference at /docs lists what there is.`,
  });
}

function methodNotAllowed(
  httpMethod: string | undefined,
  path: string,
  allowed: readonly string[],
): ServiceError {
  return new ServiceError('method_not_allowed', {
    message: `There is no ${httpMethod} here: ${path} answers ${allowed.join(' and ')}.`,
    httpHeaders: { Allow: allowed.join(', ') },
  });
}

function compileEndpoints({ services, scheme }: PublicDoorOptions): Endpoint[] {
  return services.flatMap((service) =>
    httpRoutesOf(service.desc).map((route): Endpoint => {
      const { method, pathFields } = route;
      const implementation = service.methods.get(method);
      if (implementation === undefined)
        throw new Error(`${service.desc.typeName}.${method.name} is not implemented`);
      return {
        ...route,
        service,
        implementation,
        input: createJsonCodec(method.input, { without: pathFields }),
        output: createJsonCodec(method.output),
        allowsEmptyBody: !hasRequiredField(method.input, pathFields),
        isForBrowsers: getOption(method, json_method).takesClientSecret,
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
      };
    }),
  );
}

/** The faults of shape, and the broken rules of the remaining fields. */
function allViolations(
  endpoint: Endpoint,
  message: Message | undefined,
  violations: FieldViolation[],
  caller: unknown,
): FieldViolation[] {
  if (message === undefined) return violations;
  const faulty = new Set(violations.map(({ field }) => field));
  const broken = endpoint.implementation.violations?.(message, caller) ?? [];
  return [...violations, ...broken.filter(({ field }) => !faulty.has(field))];
}

/**
 * Refuses what Node's parser accepts: no `Host` or two of them (RFC 9112, section 3.2), transfer codings other than
 * chunked, which are not decoded here, and expectations other than `100-continue`.
 */
function assertHttp(request: NodeRequest, header: RawHeaders): void {
  const expect = header.get('expect');
  if (expect !== null && expect.toLowerCase() !== '100-continue') {
    throw new ServiceError('invalid_body', { message: expectationFailed, httpStatus: 417 });
  }
  if ('stream' in request) return;
  const hosts = header.count('host');
  if (hosts > 1 || (hosts === 0 && request.httpVersion !== '1.0')) {
    throw new ServiceError('invalid_body', { message: `The request has ${hosts} Host headers. Send one.` });
  }
  const coding = header.get('transfer-encoding');
  if (coding !== null && coding.toLowerCase() !== 'chunked') {
    throw new ServiceError('unsupported_media_type', {
      message: 'The body has a transfer coding that is not read here. Send it plain or chunked.',
      httpHeaders: { Accept: 'application/json' },
    });
  }
}
