// Verifies webhooks. Needs neither gRPC nor a server framework, and runs on edge runtimes too.

import { Webhook } from 'standardwebhooks';
import { describe } from './describe.ts';
import { eventFields } from './gen/fields.ts';
import type { Event } from './gen/resources.ts';
import { FieldFault, readJson } from './resource-fields.ts';

export type * from './gen/resources.ts';
export type * from './values.ts';

/** A request to your webhook endpoint. */
export interface ReceivedWebhook {
  /** The raw body, exactly as it was received: a string, a Buffer or other bytes. Never the parsed JSON. */
  body: string | Uint8Array | ArrayBuffer;
  /** The headers: those of `fetch` or of Node.js, or any object, with names in upper or lower case. */
  headers: WebhookHeaders;
  /** The endpoint's secret, `whsec_…`; an array while one secret replaces another. */
  secret: string | readonly string[];
  /** When your queue or gateway received it, if you verify it later. Default: now. */
  receivedAt?: Date | undefined;
}

export type WebhookHeaders =
  | { get(name: string): string | null }
  | { readonly [name: string]: string | readonly string[] | undefined };

/**
 * Why a webhook was refused:
 *
 * - `headers_missing`: it lacks `webhook-id`, `webhook-signature` or a numeric `webhook-timestamp`;
 * - `timestamp_too_old`, `timestamp_too_new`: it was signed more than 5 minutes in the past or the future;
 * - `signature_wrong`: none of its signatures matches the secret and this body;
 * - `body_unexpected`: it is signed with the secret, but is not an event.
 */
export type WebhookVerificationErrorCode =
  | 'headers_missing'
  | 'timestamp_too_old'
  | 'timestamp_too_new'
  | 'signature_wrong'
  | 'body_unexpected';

/** A process that both imports and requires the package has two copies. `instanceof` works across both. */
const brand = Symbol.for('payment-intents-client.WebhookVerificationError');

/** Why a webhook was refused. Answer with status 400, and ignore its body. */
export class WebhookVerificationError extends Error {
  /** Why the webhook was refused. */
  readonly code: WebhookVerificationErrorCode;

  constructor(code: WebhookVerificationErrorCode, message: string) {
    super(message);
    this.name = 'WebhookVerificationError';
    this.code = code;
    Object.defineProperty(this, brand, { value: true });
  }

  /** Also true for an error from the package's other module format. */
  static override [Symbol.hasInstance](value: unknown): value is WebhookVerificationError {
    // biome-ignore lint/complexity/noThisInStatic: a subclass inherits this and means itself.
    if (this !== WebhookVerificationError) return Function.prototype[Symbol.hasInstance].call(this, value);
    return typeof value === 'object' && value !== null && brand in value;
  }
}

const toleranceSeconds = 5 * 60;

/**
 * Verifies that a webhook comes from the service, and returns its event. The same event may come more than
 * once: remember the ids that you have handled.
 *
 * Throws WebhookVerificationError for a webhook that cannot be trusted, and a TypeError for a wrong argument.
 */
export function verifyWebhook(received: ReceivedWebhook): Event {
  if (typeof received !== 'object' || received === null) {
    throw new TypeError(`verifyWebhook needs { body, headers, secret }, not ${describe(received)}`);
  }
  const { body, headers, secret, receivedAt = new Date() } = received;
  if (!(receivedAt instanceof Date) || Number.isNaN(receivedAt.getTime())) {
    throw new TypeError(`receivedAt must be a valid Date, not ${describe(receivedAt)}`);
  }
  const verifiers = verifiersOf(secret);
  const text = textOf(body);
  const signed = signedHeadersOf(headers);
  assertIsRecent(signed['webhook-timestamp'], receivedAt);
  if (!verifiers.some((verifier) => isSignedBy(verifier, text, signed))) {
    throw new WebhookVerificationError(
      'signature_wrong',
      /^[A-Za-z0-9+/]+=*$/.test(text)
        ? "The body is in base64, as AWS gives it with isBase64Encoded: pass Buffer.from(event.body, 'base64')"
        : 'No signature of the webhook matches: the secret belongs to another endpoint or has been replaced, or the body is not the raw body as it was received',
    );
  }
  return eventIn(text);
}

function verifiersOf(secret: unknown): Webhook[] {
  const secrets: unknown[] = Array.isArray(secret) ? secret : [secret];
  if (secrets.length === 0)
    throw new TypeError('secret must be the secret of the endpoint, not an empty array');
  return secrets.map((one) => {
    if (typeof one !== 'string' || one === '') {
      const given = one === '' ? 'empty' : describe(one);
      throw new TypeError(
        `secret must be the secret of the endpoint, a string, but it is ${given}; is the environment variable set?`,
      );
    }
    // Never shown, whatever it is.
    const malformed =
      'secret must be the secret of the endpoint as the service returned it: whsec_ and base64';
    if (!/^whsec_[A-Za-z0-9+/]+=*$/.test(one)) throw new TypeError(malformed);
    try {
      return new Webhook(one);
    } catch {
      throw new TypeError(malformed);
    }
  });
}

function textOf(body: unknown): string {
  if (typeof body === 'string') return body;
  if (body instanceof ArrayBuffer || ArrayBuffer.isView(body)) {
    // Keeps a byte order mark, which is part of the signed bytes.
    return new TextDecoder('utf-8', { ignoreBOM: true }).decode(body as Uint8Array<ArrayBuffer>);
  }
  if (typeof (body as { then?: unknown } | null)?.then === 'function') {
    throw new TypeError('body is a Promise: await it');
  }
  const isParsed = typeof body === 'object' && body !== null;
  throw new TypeError(
    isParsed
      ? `body must be the raw body, as text or bytes, not ${describe(body)}: your server has parsed it already, and JSON written anew does not match the signature. Read the raw body for this route, as express.raw({ type: 'application/json' }) or request.text() do`
      : `body must be the raw body, as text or bytes, not ${describe(body)}; has something read the request before?`,
  );
}

const headerNames = ['webhook-id', 'webhook-timestamp', 'webhook-signature'] as const;
type SignedHeaders = Record<(typeof headerNames)[number], string>;

function signedHeadersOf(headers: unknown): SignedHeaders {
  if (typeof headers !== 'object' || headers === null) {
    throw new TypeError(`headers must be the headers of the request, not ${describe(headers)}`);
  }
  const find = finderIn(headers);
  const found = headerNames.map((name) => [name, find(name)] as const);
  const missing = found.filter(([, value]) => value === '').map(([name]) => name);
  if (missing.length > 0) {
    throw new WebhookVerificationError(
      'headers_missing',
      `The request has no ${missing.join(', no ')}: it does not come from the service, or a proxy removed its headers`,
    );
  }
  return Object.fromEntries(found) as SignedHeaders;
}

function finderIn(headers: object): (name: string) => string {
  if ('get' in headers && typeof headers.get === 'function') {
    const { get } = headers;
    return (name) => String(get.call(headers, name) ?? '');
  }
  const byName = new Map(Object.entries(headers).map(([name, value]) => [name.toLowerCase(), value]));
  return (name) => [byName.get(name) ?? ''].flat().join(' ');
}

function assertIsRecent(timestamp: string, receivedAt: Date): void {
  const ageSeconds =
    Math.floor(receivedAt.getTime() / 1_000) - Number(/^\d+$/.test(timestamp) ? timestamp : Number.NaN);
  if (Number.isNaN(ageSeconds)) {
    throw new WebhookVerificationError('headers_missing', 'The webhook-timestamp is not a number of seconds');
  }
  if (Math.abs(ageSeconds) <= toleranceSeconds) return;
  throw new WebhookVerificationError(
    ageSeconds > 0 ? 'timestamp_too_old' : 'timestamp_too_new',
    ageSeconds > 0
      ? `The webhook was signed ${ageSeconds} s ago, more than the ${toleranceSeconds} s allowed: it is a replay, it waited in a queue (then pass receivedAt), or this machine's clock is wrong`
      : `The webhook's timestamp is ${-ageSeconds} s in the future, more than the ${toleranceSeconds} s allowed: check this machine's clock`,
  );
}

/** The package's `verify` uses the current time and reports no age, so this signs and compares signatures. */
function isSignedBy(verifier: Webhook, text: string, headers: SignedHeaders): boolean {
  const at = new Date(Number(headers['webhook-timestamp']) * 1_000);
  const wanted = verifier.sign(headers['webhook-id'], at, text);
  return headers['webhook-signature'].split(' ').some((given) => isSameText(given, wanted));
}

/** Takes the same time wherever the texts differ. */
function isSameText(given: string, wanted: string): boolean {
  if (given.length !== wanted.length) return false;
  let difference = 0;
  for (let i = 0; i < wanted.length; i++) difference |= given.charCodeAt(i) ^ wanted.charCodeAt(i);
  return difference === 0;
}

function eventIn(text: string): Event {
  try {
    return readJson(eventFields, JSON.parse(text));
  } catch (fault) {
    const why = fault instanceof FieldFault ? fault.message : 'it is not JSON';
    throw new WebhookVerificationError(
      'body_unexpected',
      `The webhook is signed with the secret, and its body is not an event: ${why}`,
    );
  }
}
