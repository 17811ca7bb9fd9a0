// The calls of the console: the contract's own services, over Connect.

import { Code, ConnectError, createClient, type Interceptor } from '@connectrpc/connect';
import { createConnectTransport } from '@connectrpc/connect-web';
import { createContext } from 'preact';
import { useContext } from 'preact/hooks';
import { Access, accessOf } from '../../src/contract/access.ts';
import { ConsoleService, type Merchant } from '../../src/contract/gen/console/v1/console_service_pb.ts';
import { BadRequestSchema, ErrorInfoSchema } from '../../src/contract/gen/google/rpc/error_details_pb.ts';
import { EventService } from '../../src/contract/gen/payments/v1/event_service_pb.ts';
import { PaymentIntentService } from '../../src/contract/gen/payments/v1/payment_intent_service_pb.ts';
import { RefundService } from '../../src/contract/gen/payments/v1/refund_service_pb.ts';
import { TransferService } from '../../src/contract/gen/payments/v1/transfer_service_pb.ts';
import { WebhookEndpointService } from '../../src/contract/gen/payments/v1/webhook_endpoint_service_pb.ts';
import type { Mode } from '../../src/contract/gen/words.ts';

/** Who calls, and for which merchant. */
interface Caller {
  token: string;
  /** The merchant that an operator looks at. */
  merchant?: { id: string; mode: Mode } | undefined;
  /** Called when the session has ended. */
  onEnd(reason: string): void;
}

const timeoutMs = 30_000;

let caller: Caller;

export function callAs(next: Caller): void {
  caller = next;
}

/** Dispatches `change` after a call that changed something, so that the views reload. */
export const changes = new EventTarget();

/** After this time without input, the calls of a tab no longer keep the session open. */
const attendedMs = 60_000;
let touchedMs = Date.now();
export const lastTouchedMs = (): number => touchedMs;
for (const type of ['pointerdown', 'keydown']) addEventListener(type, () => (touchedMs = Date.now()));

const identify: Interceptor = (next) => async (request) => {
  const { token, merchant, onEnd } = caller;
  request.header.set('Authorization', `Bearer ${token}`);
  if (Date.now() - touchedMs > attendedMs) request.header.set('X-Unattended', '1');
  if (merchant !== undefined) {
    request.header.set('X-Merchant', merchant.id);
    request.header.set('X-Mode', merchant.mode);
  }
  try {
    const answer = await next(request);
    if (accessOf(request.method) === Access.CHANGE) changes.dispatchEvent(new Event('change'));
    return answer;
  } catch (reason) {
    const error = ConnectError.from(reason);
    if (error.code === Code.Unauthenticated) onEnd(error.rawMessage);
    throw error;
  }
};

/** The newest answers, by request. A repeated request is answered with 304 if nothing has changed. */
const answers = new Map<string, { tag: string; body: Uint8Array<ArrayBuffer> }>();
const maxAnswers = 20;
let newAnswers = 0;

/** How many answers differed from the known ones. If none did, the page need not change. */
export const newAnswersCount = (): number => newAnswers;

const fetchNew: typeof fetch = async (url, options) => {
  const headers = new Headers(options?.headers);
  const asked = ['Authorization', 'X-Merchant', 'X-Mode'].map((name) => headers.get(name));
  const key = [url, ...asked, options?.body].join(' ');
  const known = answers.get(key);
  if (known !== undefined) headers.set('If-None-Match', known.tag);
  const answer = await fetch(url, { ...options, headers });
  const type = { 'Content-Type': 'application/proto' };
  if (known !== undefined && answer.status === 304) return new Response(known.body, { headers: type });
  newAnswers++;
  const tag = answer.headers.get('ETag');
  if (tag === null) return answer;
  const body = new Uint8Array(await answer.arrayBuffer());
  answers.delete(key);
  answers.set(key, { tag, body });
  const [oldest] = answers.keys();
  if (oldest !== undefined && answers.size > maxAnswers) answers.delete(oldest);
  return new Response(body, { headers: type });
};

const transport = createConnectTransport({
  baseUrl: location.origin,
  useBinaryFormat: true,
  fetch: fetchNew,
  defaultTimeoutMs: timeoutMs,
  interceptors: [identify],
});

/** Every method of the contract. No two of them have the same name. */
export const api = {
  ...createClient(ConsoleService, transport),
  ...createClient(PaymentIntentService, transport),
  ...createClient(EventService, transport),
  ...createClient(TransferService, transport),
  ...createClient(RefundService, transport),
  ...createClient(WebhookEndpointService, transport),
};

/** A field as the forms name it. */
function fieldWords(field: string): string {
  const words =
    { destination: 'the address', amount_units: 'the amount' }[field] ?? field.replaceAll('_', ' ');
  return words.charAt(0).toUpperCase() + words.slice(1);
}

/** The message of a failed call, for a person. */
export function wordsOf(reason: unknown): string {
  if (reason instanceof Advice) return reason.message;
  const error = ConnectError.from(reason);
  if (error.code === Code.Internal) return 'The service could not do this. Its log says why.';
  if (isLostConnection(error.code)) return 'The service does not answer.';
  const faults = error.findDetails(BadRequestSchema).flatMap(({ fieldViolations }) => fieldViolations);
  return faults.length === 0
    ? error.rawMessage
    : faults.map(({ field, description }) => `${fieldWords(field)} ${description}`).join('; ');
}

/** Advice for a person, found without asking the service. */
export class Advice extends Error {}

/** True if the service was not reached, or could not answer now. */
function isLostConnection(code: Code): boolean {
  return [Code.Unavailable, Code.Unknown, Code.DeadlineExceeded, Code.Aborted, Code.Canceled].includes(code);
}

/** True if the same call may succeed later. */
export function isWorthAsking(reason: unknown): boolean {
  const { code } = ConnectError.from(reason);
  return isLostConnection(code) || code === Code.Internal || code === Code.ResourceExhausted;
}

/** True if the idempotency key was used before, for something else. */
export function isReusedKey(reason: unknown): boolean {
  return ConnectError.from(reason)
    .findDetails(ErrorInfoSchema)
    .some((info) => info.reason === 'IDEMPOTENCY_KEY_REUSED');
}

/** True if there is no such resource, or none that this session may see. */
export function isMissing(reason: unknown): boolean {
  return ConnectError.from(reason).code === Code.NotFound;
}

/** The merchant that is looked at, and what the session may do there. */
interface Scope {
  isReadOnly: boolean;
  /** Sees every merchant, and has no wallet of theirs. */
  isOperator: boolean;
  merchants: readonly Merchant[];
  merchant: { id: string; name: string; mode: Mode };
}

export const ScopeContext = createContext<Scope | undefined>(undefined);

export function useScope(): Scope {
  const scope = useContext(ScopeContext);
  if (scope === undefined) throw new Error('a view needs a scope');
  return scope;
}
