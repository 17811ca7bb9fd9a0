// The console's door: Connect's unary calls over HTTP/1.1, for its own pages only. Other pages are refused by
// `Host`, which DNS rebinding cannot forge, and their calls also by `Origin`.

import { hash } from 'node:crypto';
import type { IncomingMessage, RequestListener, ServerResponse } from 'node:http';
import { Readable } from 'node:stream';
import { buffer } from 'node:stream/consumers';
import { pipeline } from 'node:stream/promises';
import type { DescMethodUnary, Message } from '@bufbuild/protobuf';
import type { ConnectRouter, HandlerContext } from '@connectrpc/connect';
import { createConnectRouter, createContextValues } from '@connectrpc/connect';
import type { UniversalHandler, UniversalServerResponse } from '@connectrpc/connect/protocol';
import { createAsyncIterable } from '@connectrpc/connect/protocol';
import { universalRequestFromNodeRequest, universalResponseToNodeResponse } from '@connectrpc/connect-node';
import { type Actor, type Audit, auditedMethod } from '../../console/audit.ts';
import type { OpenExport } from '../../console/export-payments.ts';
import { assertAccess, type ConsoleCaller, callerOf, merchantOf } from '../../console/rights.ts';
import type { Session, Sessions } from '../../console/sessions.ts';
import { accessOf } from '../../contract/access.ts';
import { catalogue, docPathOf, toErrorJson } from '../../contract/error-catalogue.ts';
import { maxBodyBytes } from '../../contract/limits.ts';
import { formatIdentifier } from '../../database/identifiers.ts';
import type { FindMerchant } from '../../merchants/api-keys.ts';
import { invalidField, ServiceError, toServiceError } from '../../requests/errors.ts';
import type { ImplementedService, Method } from '../../requests/method.ts';
import type { Identity, RequestContext, RequestObserver } from '../../requests/request-context.ts';
import { newRequestContext, requestContextKey, requestContextOf } from '../../requests/request-context.ts';
import { RawHeaders, type RequestHeader } from '../../requests/request-header.ts';
import { unavailableOr } from '../../requests/unavailable.ts';
import { refuseByCatalogue } from '../internal/catalogue-errors.ts';
import { admittedCaller, requestGateOf } from '../internal/request-gate.ts';
import { isNamedIn, pathOf, queryOf } from '../node-headers.ts';
import { isLastAnswer, sendJson } from '../public/json-body.ts';
import type { loadConsolePages } from '../public/sites.ts';
import type { TakeFromLimit } from '../rate-limit.ts';
import { ClientGone, discardBody, readBody } from '../request-body.ts';
import type { Strangers } from '../strangers.ts';

interface ConsoleDoorOptions {
  /** The services that other doors serve by API key. */
  services: readonly ImplementedService<Identity>[];
  consoleService: ImplementedService<ConsoleCaller>;
  sessions: Sessions;
  audit: Audit;
  findMerchant: FindMerchant;
  openExport: OpenExport;
  takeFromLimit: TakeFromLimit;
  isDraining: () => boolean;
  scheme: 'http' | 'https';
  /** The origin of its pages; by default, that of loopback names. */
  origin: string | undefined;
  /** Its pages and their files. */
  pages: Awaited<ReturnType<typeof loadConsolePages>>;
  onEnd: RequestObserver;
  strangers: Strangers;
  requestTimeoutMs: number;
}

const sessionPath = '/console/session';
const exportPath = '/console/export';

/** Sent with every answer. */
const headers = {
  'Cache-Control': 'no-store',
  'Content-Security-Policy': "default-src 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'",
  'Cross-Origin-Opener-Policy': 'same-origin',
  'Cross-Origin-Resource-Policy': 'same-origin',
  'Referrer-Policy': 'no-referrer',
  'X-Content-Type-Options': 'nosniff',
};

/** The console's listener for node:http's `request` event. */
export function createConsoleDoor(options: ConsoleDoorOptions): RequestListener {
  const { scheme, origin, pages, onEnd, strangers } = options;
  const handlers = compileHandlers(options);

  return (request, response) => {
    const context = newRequestContext('console');
    context.onIssuedKey = () => strangers.noteValidKey(request.socket);
    const path = pathOf(request);
    const exchange = { path, request, response, connection: request.socket, context };
    const handler = handlers.get(path);
    const rpc = path === sessionPath ? 'ExchangeCode' : handler?.method.name;
    const name = pages.has(path) ? pages.name : path === exportPath ? 'Export' : rpc;
    response.once('close', () => {
      const ended = response.writableFinished ? 'ok' : 'canceled';
      onEnd(context, name, context.error?.code ?? context.endedByClient ?? ended);
    });
    for (const [name, value] of Object.entries(headers)) response.setHeader(name, value);
    response.setHeader('X-Request-Id', context.requestId);
    if (isLastAnswer(request, options.isDraining)) response.setHeader('Connection', 'close');
    const send = (status: number, body: object, headers: Readonly<Record<string, string>> = {}) =>
      sendJson(exchange, { status, body: JSON.stringify(body), headers: Object.entries(headers) });
    const refuse = (reason: unknown) => {
      if (reason instanceof ClientGone) return;
      const error = toServiceError(reason);
      context.error = error;
      discardBody(request);
      const body = toErrorJson(error, context.requestId, docPathOf(error.code));
      send(error.httpStatus ?? catalogue[error.code].httpStatus, body, error.httpHeaders);
    };
    const serve = async () => {
      const header = assertOwnPage(request, scheme, origin);
      // An absolute URL is a request to a proxy.
      if (!request.url?.startsWith('/')) throw new ServiceError('not_found');
      if (pages.has(path)) return pages.serve({ ...exchange, header }, options);
      if (name === undefined) throw new ServiceError('not_found');
      const Allow = path === exportPath ? 'GET' : 'POST';
      if (request.method !== Allow) throw new ServiceError('method_not_allowed', { httpHeaders: { Allow } });
      if (path === exportPath) return await sendExport(request, response, context, options);
      if (handler === undefined) return send(200, await exchangeCode(request, options));
      const values = createContextValues().set(requestContextKey, context);
      const universalRequest = universalRequestFromNodeRequest(request, response, undefined, values);
      const answer = await notModifiedIfKnown(await handler(universalRequest), header);
      // If the write fails, the client has gone.
      await universalResponseToNodeResponse(answer, response).catch(() => {});
    };
    serve().catch(refuse);
  };
}

/** Returns 304 if the page already has the answer: pages ask every few seconds, mostly for nothing new. */
async function notModifiedIfKnown(answer: UniversalServerResponse, header: RequestHeader) {
  if (answer.status !== 200 || answer.body === undefined) return answer;
  const body = await buffer(answer.body);
  const tag = `"${hash('sha256', body, 'base64url')}"`;
  if (isNamedIn(header.get('if-none-match'), tag)) return { status: 304, header: new Headers({ ETag: tag }) };
  answer.header?.set('ETag', tag);
  return { ...answer, body: createAsyncIterable([body]) };
}

/** Throws unless `Host` is this port's own name and a call or export comes from one of its pages. */
function assertOwnPage(request: IncomingMessage, scheme: 'http' | 'https', origin: string | undefined) {
  const header = new RawHeaders(request.rawHeaders);
  const { localPort } = request.socket;
  const port = localPort === (scheme === 'http' ? 80 : 443) ? '' : `:${localPort}`;
  // A proxy that ends TLS forwards the name, but not the scheme.
  const origins = origin
    ? [origin]
    : ['localhost', '127.0.0.1', '[::1]'].map((name) => `${scheme}://${name}${port}`);
  const called = origins.find((each) => new URL(each).host === header.get('host'));
  if (called === undefined) {
    throw new ServiceError('permission_denied', {
      httpStatus: 421,
      message: `The console is not served under this host name. Open ${origins[0]}, or set CONSOLE_ORIGIN.`,
    });
  }
  const isCall = request.method === 'POST';
  if (!isCall && pathOf(request) !== exportPath) return header;
  // Browsers name the site of the page in `Sec-Fetch-Site`. For a download, they send no `Origin`.
  const site = header.get('sec-fetch-site') ?? 'same-origin';
  if (site !== 'same-origin' || (isCall && header.get('origin') !== called)) {
    throw new ServiceError('permission_denied', { message: 'Only pages of the console may call it.' });
  }
  return header;
}

/** `GET /console/export?ticket=…`: streams the file. */
async function sendExport(
  request: IncomingMessage,
  response: ServerResponse,
  context: RequestContext,
  { openExport, strangers }: ConsoleDoorOptions,
): Promise<void> {
  // Over HTTP/1.0 a file that was cut ends like a whole one. nginx before 1.29.7 speaks it by default.
  if (request.httpVersion === '1.0') {
    throw new ServiceError('permission_denied', {
      httpStatus: 505,
      message: 'A file is sent over HTTP/1.1 only. In nginx, set proxy_http_version 1.1 for the console.',
    });
  }
  const ticket = new URLSearchParams(queryOf(request)).get('ticket') ?? '';
  await openExport(ticket, async (texts) => {
    strangers.noteValidKey(request.socket);
    response.writeHead(200, {
      'Content-Type': 'text/csv; charset=utf-8',
      // The page names the file: it knows the days that were chosen.
      'Content-Disposition': 'attachment',
    });
    // An incomplete file must not look complete, so the connection is cut.
    await pipeline(Readable.from(notingFailure(texts, context)), response).catch(() => response.destroy());
  });
}

/** Notes why an export fails, for the log: its answer has begun, so that nobody else is told. */
async function* notingFailure(texts: AsyncIterable<string>, context: RequestContext) {
  try {
    yield* texts;
  } catch (reason) {
    context.error = toServiceError(unavailableOr(reason));
    throw reason;
  }
}

/** `POST /console/session`: exchanges the code of a link. */
async function exchangeCode(request: IncomingMessage, { sessions, requestTimeoutMs }: ConsoleDoorOptions) {
  if (!/^application\/json(?:;|$)/i.test(request.headers['content-type'] ?? '')) {
    throw new ServiceError('unsupported_media_type');
  }
  const found = await sessions.exchange(codeIn((await readBody(request, requestTimeoutMs)).toString()));
  if (found === undefined) {
    throw new ServiceError('api_key_invalid', {
      message: 'This link is not valid any more. It works once, for ten minutes: ask for a new one.',
    });
  }
  const { typeId, name, merchant, isReadOnly, expiresAt } = found.session;
  return {
    token: found.token,
    session: {
      id: typeId,
      name,
      ...(merchant && { merchant: formatIdentifier('mer', merchant.id), mode: merchant.mode }),
      is_operator: merchant === undefined,
      read_only: isReadOnly,
      expires_at: expiresAt.toISOString(),
    },
  };
}

function codeIn(text: string): string {
  try {
    const { code } = JSON.parse(text);
    if (typeof code === 'string') return code;
  } catch {
    // Refused below.
  }
  throw invalidField('code', 'must be the code of a link');
}

/** Returns the handler of every unary method by its path, with a check of the session's rights. */
function compileHandlers(options: ConsoleDoorOptions): Map<string, UniversalHandler> {
  const router = createConnectRouter({
    readMaxBytes: maxBodyBytes,
    jsonOptions: { ignoreUnknownFields: false },
    interceptors: [refuseByCatalogue],
  });
  for (const { methods } of options.services) {
    for (const [method, served] of methods) {
      const { ratePolicy, violations, run } = served;
      serve(router, options, method, {
        ratePolicy,
        ...(violations && { violations: (request, caller) => violations(request, merchantOf(caller)) }),
        run: (request, caller, call) => run(request, merchantOf(caller), call),
      });
    }
  }
  for (const [method, served] of options.consoleService.methods) serve(router, options, method, served);
  return new Map(router.handlers.map((handler) => [handler.requestPath, handler]));
}

const actorOf = ({ session, merchant }: ConsoleCaller): Actor => ({
  actor: session.typeId,
  actorName: session.name,
  merchant: merchant && { id: merchant.merchantId, mode: merchant.mode },
  isPerson: true,
});

/** Serves a method to the sessions that may call it, and records its changes in the audit log. */
function serve(
  router: ConnectRouter,
  { sessions, audit, findMerchant, takeFromLimit }: ConsoleDoorOptions,
  method: DescMethodUnary,
  served: Method<unknown, unknown, ConsoleCaller>,
): void {
  const access = accessOf(method);
  const { ratePolicy, run } = auditedMethod(audit, method, served, actorOf);
  const admit = async (context: RequestContext, header: Headers) => {
    const session = await sessionOf(sessions, header);
    context.onIssuedKey?.();
    assertAccess(session, access);
    const caller = await callerOf(session, header, findMerchant);
    if (caller.merchant !== undefined) context.identity = caller.merchant;
    context.countedUnder = () => session.typeId;
    takeFromLimit(context, ratePolicy);
    return caller;
  };
  const answer = async (request: Message, { values, requestHeader, signal }: HandlerContext) => {
    const context = requestContextOf(values);
    const caller = admittedCaller(context) as ConsoleCaller;
    const answer = await run(request, caller, { context, header: requestHeader, signal });
    return withoutClientSecret(answer as Message);
  };
  // Connect reads `grpc` and `grpcWeb` only here, though its types do not have them.
  const options = { requestGate: requestGateOf(admit), grpc: false, grpcWeb: false };
  router.rpc(method, answer, options);
}

/** Throws `api_key_invalid` if the session has ended. */
async function sessionOf(sessions: Sessions, header: RequestHeader): Promise<Session> {
  const [, token = ''] = /^bearer ([^\s]+)$/i.exec(header.get('authorization') ?? '') ?? [];
  const session = await sessions.identify(token, header.get('x-unattended') !== null);
  if (session !== undefined) return session;
  throw new ServiceError('api_key_invalid', { message: 'The session has ended. Ask for a new link.' });
}

/** Removes client secrets. The console does not use them. */
function withoutClientSecret<T extends Message>(message: T): T {
  if ('clientSecret' in message) return { ...message, clientSecret: '' };
  if ('paymentIntents' in message && Array.isArray(message.paymentIntents)) {
    return { ...message, paymentIntents: message.paymentIntents.map(withoutClientSecret) };
  }
  return message;
}
