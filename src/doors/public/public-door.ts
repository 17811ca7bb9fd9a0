// The merchants' door: JSON over HTTP, transcoded by the contract's google.api.http annotations. It converts
// bytes to a message, calls the method and converts its answer to bytes without Connect, whose HTTP handling
// is several times slower and uses a different JSON mapping.

import { hash } from 'node:crypto';
import { getOption, type Message } from '@bufbuild/protobuf';
import {
  catalogue,
  type ErrorCode,
  type FieldViolation,
  toErrorJson,
} from '../../contract/error-catalogue.ts';
import { json_method } from '../../contract/gen/payments/v1/json_pb.ts';
import { PaymentIntentService } from '../../contract/gen/payments/v1/payment_intent_service_pb.ts';
import { type HttpRoute, httpRoutesOf } from '../../contract/http-routes.ts';
import { hasRequiredField } from '../../contract/json/field-rules.ts';
import { createJsonCodec } from '../../contract/json/json-codec.ts';
import { expectationFailed } from '../../contract/limits.ts';
import { invalidBody, ServiceError, toServiceError } from '../../requests/errors.ts';
import {
  answerHeaders,
  newRequestContext,
  type RequestContext,
  type RequestOutcome,
} from '../../requests/request-context.ts';
import { RawHeaders } from '../../requests/request-header.ts';
import { type DoorOptions, type ServedMethod, serveCall } from '../call.ts';
import { createClientAddress } from '../client-address.ts';
import { docUrlOf } from '../doc-url.ts';
import {
  isNamedIn,
  type NodeRequest,
  type NodeResponse,
  pathWithoutSlashOf,
  queryOf,
} from '../node-headers.ts';
import { ClientGone, discardBody, hasBody, limitStream, readBody } from '../request-body.ts';
import type { Connection } from '../strangers.ts';
import { type JsonAnswer, parseJsonBody, readJsonBytes, sendJson } from './json-body.ts';
import { isOwnOrigin } from './own-origin.ts';
import { parseQuery } from './query.ts';
import { createRouter, type Match } from './router.ts';

/** Pages and files at fixed paths that need no key, such as the documentation. */
export interface Site {
  /** The name of its requests in the log and the metrics. */
  readonly name: string;
  /** True if the path is one of the site's. */
  has(path: string): boolean;
  /** Headers of its refusals to a browser of any origin. */
  readonly shared?: readonly [string, string][];
  /** Answers a request for one of its paths, or throws a `ServiceError`. */
  serve(exchange: SiteRequest, door: PublicDoorOptions): Promise<void>;
}

interface SiteRequest {
  readonly path: string;
  readonly request: NodeRequest;
  readonly header: RawHeaders;
  readonly response: NodeResponse;
  readonly connection: Connection;
  readonly context: RequestContext;
}

interface PublicDoorOptions extends DoorOptions {
  isDraining: () => boolean;
  trustedProxies?: readonly string[];
  scheme: 'http' | 'https';
  sites: readonly Site[];
  /** Lets the reference page of this port send requests, with testnet keys only. */
  allowsTryIt: boolean;
}

interface CompiledRoute extends HttpRoute, ServedMethod {
  input: ReturnType<typeof createJsonCodec>;
  output: ReturnType<typeof createJsonCodec>;
  /** True if `null` means `{}`, too: no field of the body is required. */
  allowsNull: boolean;
  /** Takes no API key, so pages of any origin may call it. */
  isForBrowsers: boolean;
}

/** A request with its route, and its response. */
interface Exchange extends SiteRequest {
  match: Match<CompiledRoute> | undefined;
  route: CompiledRoute | undefined;
  /** Headers of every answer to a browser of any origin. */
  shared: readonly [string, string][];
}

/**
 * Creates the request listener of the public door. All preparation happens here, once. Throws if the door
 * cannot serve the form of an annotation or a message of the contract.
 */
export function createPublicDoor(
  options: PublicDoorOptions,
): (request: NodeRequest, response: NodeResponse) => void {
  const router = createRouter(compileRoutes(options));
  const clientAddress = createClientAddress(options.trustedProxies ?? []);

  return (request, response) => {
    const context = newRequestContext('public');
    const header = new RawHeaders(request.rawHeaders);
    if ('stream' in request) {
      const { stream } = request;
      limitStream(stream, options.requestTimeoutMs);
      context.onIssuedKey = () => options.strangers.release(stream);
    } else if (options.strangers.has(request.socket)) {
      context.onIssuedKey = () => options.strangers.noteIssuedKey(request.socket);
    }
    const path = pathWithoutSlashOf(request);
    const match = router.find(path);
    const route = match?.byMethod.get(request.method ?? '');
    const isShared = route?.isForBrowsers ?? isForBrowsers(match);
    const site = match === undefined ? options.sites.find((candidate) => candidate.has(path)) : undefined;
    if (isShared || site !== undefined) {
      context.countedUnder = () => clientAddress(request.socket.remoteAddress, header.get('x-forwarded-for'));
    }
    const rpc = site?.name ?? route?.method.name;
    const shared = isShared ? browserHeaders : (site?.shared ?? none);
    const connection = ('stream' in request ? request.stream.session : undefined) ?? request.socket;
    const exchange: Exchange = { path, request, header, response, connection, context, match, route, shared };

    const serve = async (): Promise<RequestOutcome> => {
      // After this, a request that arrived in one piece is completely parsed.
      await undefined;
      try {
        assertHttp(request, header);
        if (site !== undefined) await site.serve(exchange, options);
        else sendJson(exchange, await answerTo(exchange, options), options.isDraining);
        return 'ok';
      } catch (reason) {
        if (reason instanceof ClientGone) return 'canceled';
        return refuse(reason, exchange, options);
      }
    };
    serve()
      .then((outcome) => {
        // Any other request makes a payer's connection an ordinary stranger's.
        const isSecret = (context.identity ?? context.openedIntent) !== undefined;
        if (outcome !== 'ok' || !isSecret) options.strangers.noteNoCredential(connection);
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
  const docUrl = docUrlOf(error.code, header, scheme);
  const body = JSON.stringify(toErrorJson(error, context.requestId, docUrl));
  const status = error.httpStatus ?? catalogue[error.code].httpStatus;
  const headers = { ...context.rateLimit, ...error.httpHeaders };
  sendJson(exchange, { status, body, headers: [...shared, ...Object.entries(headers)] }, isDraining);
  discardBody(request);
  return error.code;
}

async function answerTo(exchange: Exchange, options: PublicDoorOptions): Promise<JsonAnswer> {
  const { request, header, path, connection, match, route, context, shared } = exchange;
  if (match === undefined) {
    if (!isBrowserAtRoot(request, header, path)) throw noRoute(request.method, path);
    return { status: 302, body: '', headers: toReference };
  }
  const origin = header.get('origin');
  const isTrial = options.allowsTryIt && origin !== null && isOwnOrigin(origin, request, options.scheme);
  if (origin !== null && !isTrial && shared.length === 0) throw new ServiceError('browser_forbidden');
  if (request.method === 'OPTIONS' && shared.length > 0) {
    return { status: 204, body: '', headers: [...shared, ...preflight] };
  }
  if (route === undefined) throw methodNotAllowed(request.method, path, [...match.byMethod.keys()]);
  const decode = (caller: unknown) => {
    if (isTrial && context.identity?.mode !== 'testnet') throw new ServiceError('browser_forbidden');
    return decodeRequest(exchange, route, match, caller, options);
  };
  const message = await serveCall(route, { context, header, connection }, decode, options);
  const headers = answerHeaders(context);
  const status = route.successStatus;
  if (!route.isForBrowsers) return { status, body: route.output.encode(message as never), headers };
  const { body, etag } = taggedOf(route, message);
  const isUnchanged = isNamedIn(header.get('if-none-match'), etag);
  return { status: isUnchanged ? 304 : status, body, headers: [...shared, ...headers, ['ETag', etag]] };
}

/** Reads the message of a request. Throws `invalid_body` with every fault. */
async function decodeRequest(
  exchange: Exchange,
  route: CompiledRoute,
  match: Match<CompiledRoute>,
  caller: unknown,
  { requestTimeoutMs }: PublicDoorOptions,
): Promise<Message> {
  const { request, header } = exchange;
  if (!route.hasBody && hasBody(request, header)) await assertEmptyBody(exchange, requestTimeoutMs);
  const { message, violations } = route.hasBody
    ? await readMessage(route, exchange, requestTimeoutMs)
    : messageFromQuery(route, request);
  // Refuses fields in the query. `CreatePaymentIntent` has ignored them since the first release.
  if (route.hasBody && route.method !== PaymentIntentService.method.createPaymentIntent)
    parseQuery(queryOf(request), [], violations);
  route.pathFields.forEach(({ localName }, i) => {
    if (message !== undefined) Object.assign(message, { [localName]: match.values[i] });
  });
  if (message === undefined || violations.length > 0) {
    throw invalidBody(allViolations(route, message, violations, caller));
  }
  return message;
}

const toReference: readonly [string, string][] = [
  ['Location', '/docs'],
  ['Vary', 'Accept'],
];

/** True if the root URL is opened in a browser. */
function isBrowserAtRoot({ method }: NodeRequest, header: RawHeaders, path: string): boolean {
  return (
    path === '/' &&
    (method === 'GET' || method === 'HEAD') &&
    /\btext\/html\b/i.test(header.get('accept') ?? '')
  );
}

/** Answers by message: a method that returns the same object again signals that nothing has changed. */
const tagged = new WeakMap<Message, { body: string; etag: string }>();

function taggedOf({ output }: CompiledRoute, message: Message) {
  const known = tagged.get(message);
  if (known !== undefined) return known;
  const body = output.encode(message);
  const made = { body, etag: `"${hash('sha256', body, 'base64url').slice(0, 22)}"` };
  tagged.set(message, made);
  return made;
}

/** Sent with every answer to a browser of any origin. */
const browserHeaders: readonly [string, string][] = [
  ['Access-Control-Allow-Origin', '*'],
  ['Access-Control-Expose-Headers', 'ETag, Retry-After, X-Request-Id'],
];
const none: readonly [string, string][] = [];
const preflight: readonly [string, string][] = [
  ['Access-Control-Allow-Headers', 'Authorization, If-None-Match'],
  ['Access-Control-Max-Age', '7200'],
];

/** A path is for browsers if its routes are, whatever the request's HTTP method. */
function isForBrowsers(match: Match<CompiledRoute> | undefined): boolean {
  return [...(match?.byMethod.values() ?? [])].some((route) => route.isForBrowsers);
}

async function readMessage({ input, allowsNull }: CompiledRoute, exchange: Exchange, timeoutMs: number) {
  if (!hasBody(exchange.request, exchange.header)) return input.decode({});
  const bytes = await readJsonBytes(exchange, timeoutMs, { mayBeEmpty: true });
  const json = bytes.length === 0 ? {} : parseJsonBody(bytes);
  // Many clients write `null` for an absent body.
  return input.decode(json === null && allowsNull ? {} : json);
}

/** Accepts an empty body of unknown length, as proxies announce it. Throws `invalid_body` for any other. */
async function assertEmptyBody({ request, header }: Exchange, timeoutMs: number): Promise<void> {
  const isKnown = header.get('content-length') !== null || header.get('expect') !== null;
  if (!isKnown && (await readBody(request, timeoutMs)).length === 0) return;
  throw new ServiceError('invalid_body', {
    message: `${request.method} has no body here. Send the fields in the query.`,
  });
}

function messageFromQuery(route: CompiledRoute, request: NodeRequest) {
  const violations: FieldViolation[] = [];
  const json = parseQuery(queryOf(request), route.queryFields, violations);
  const decoded = route.input.decode(json);
  return { message: decoded.message, violations: [...violations, ...decoded.violations] };
}

/** Longest method and path shown in a message, in characters. */
const maxPathShown = 120;

function noRoute(httpMethod: string | undefined, path: string): ServiceError {
  const asked = `${httpMethod} ${path}`;
  const short = asked.length > maxPathShown ? `${asked.slice(0, maxPathShown)}…` : asked;
  return new ServiceError('not_found', {
    message: `No route matches ${short.toWellFormed()}. See the reference at /docs.`,
  });
}

function methodNotAllowed(
  httpMethod: string | undefined,
  path: string,
  allowed: readonly string[],
): ServiceError {
  return new ServiceError('method_not_allowed', {
    message: `The path ${path} does not accept ${httpMethod}. It accepts ${allowed.join(' and ')}.`,
    httpHeaders: { Allow: allowed.join(', ') },
  });
}

function compileRoutes({ services, scheme }: PublicDoorOptions): CompiledRoute[] {
  return services.flatMap((service) =>
    httpRoutesOf(service.desc).map((route): CompiledRoute => {
      const { method, pathFields } = route;
      // `implementService` has refused a service without it.
      const implementation = service.methods.get(method) as ServedMethod['implementation'];
      return {
        ...route,
        service,
        implementation,
        input: createJsonCodec(method.input, { without: pathFields }),
        output: createJsonCodec(method.output),
        allowsNull: !hasRequiredField(method.input, pathFields),
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

/** Returns the violations of shape, and of the rules of the remaining fields. */
function allViolations(
  route: CompiledRoute,
  message: Message | undefined,
  violations: FieldViolation[],
  caller: unknown,
): FieldViolation[] {
  if (message === undefined) return violations;
  const faulty = new Set(violations.map(({ field }) => field));
  const broken = route.implementation.violations?.(message, caller) ?? [];
  return [...violations, ...broken.filter(({ field }) => !faulty.has(field))];
}

/**
 * Refuses what Node's parser accepts: no `Host` or two of them (RFC 9112, section 3.2), transfer codings
 * other than chunked, which are not decoded here, and expectations other than `100-continue`.
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
