// verifyWebhook accepts what the service sends, refuses everything else, and says what is wrong.

import http, { type IncomingHttpHeaders } from 'node:http';
import { Webhook } from 'standardwebhooks';
import { afterAll, describe, expect, test, vi } from 'vitest';
import { createPaymentIntentsClient, type Event } from '../client/index.ts';
import {
  type ReceivedWebhook,
  verifyWebhook,
  WebhookVerificationError,
  type WebhookVerificationErrorCode,
} from '../client/webhook.ts';
import { listen } from './support/listen.ts';
import { useService } from './support/use-service.ts';

interface Received {
  headers: IncomingHttpHeaders;
  body: Buffer;
}

const service = await useService();
const received: Received[] = [];

/** Resolves with the next webhook. */
const nextWebhook = (type: string) =>
  vi.waitFor(
    () => {
      const found = received.find(({ body }) => body.includes(`"type":"${type}"`));
      if (found === undefined) throw new Error(`no ${type} has come`);
      received.length = 0;
      return found;
    },
    { timeout: 10_000 },
  );

const client = createPaymentIntentsClient({
  baseUrl: service.publicUrl,
  apiKey: service.merchant.keys.testnet.apiKey,
});
const receiver = await listen(
  http.createServer(async (request, response) => {
    const chunks: Buffer[] = [];
    for await (const chunk of request) chunks.push(chunk);
    received.push({ headers: request.headers, body: Buffer.concat(chunks) });
    response.end();
  }),
);
const endpoint = await client.createWebhookEndpoint({ url: receiver.url });
const { id } = await client.createPaymentIntent({
  amountUnits: 12_500_000,
  // More bytes than characters, and what JSON may write in several ways.
  metadata: { order_id: 'order-ü€😀', price: 1.5e-7, slash: '</script>' },
});
await client.cancelPaymentIntent(id);
/** What the service sent for a canceled intent, and the event as the API returns it. */
const sent = await nextWebhook('payment_intent.canceled');
const event = await client.retrieveEvent(String(sent.headers['webhook-id']));

afterAll(receiver.close);

const verify = (change: Partial<ReceivedWebhook> = {}): Event =>
  verifyWebhook({ body: sent.body, headers: sent.headers, secret: endpoint.secret, ...change });

/** Signs a body now, or at another time, as the service does. */
function signed(
  body: string,
  at = new Date(),
  secret = endpoint.secret,
): Pick<ReceivedWebhook, 'body' | 'headers'> {
  const id = 'evt_1';
  return {
    body,
    headers: {
      'webhook-id': id,
      'webhook-timestamp': String(Math.floor(at.getTime() / 1_000)),
      'webhook-signature': new Webhook(secret).sign(id, at, body),
    },
  };
}

function errorOf(change: Partial<ReceivedWebhook>): WebhookVerificationError {
  try {
    return expect.fail(`verified ${verify(change).id}`);
  } catch (error) {
    expect(error).toBeInstanceOf(WebhookVerificationError);
    return error as WebhookVerificationError;
  }
}

const anotherSecret = `whsec_${Buffer.from('another secret of 32 bytes......').toString('base64')}`;

describe('what the service sends', () => {
  test('is verified, and returned as the API returns it', () => {
    expect(verify()).toStrictEqual(event);
    expect(verify().data.paymentIntent?.amountUnits).toBe(12_500_000n);
  });

  test.each<[string, () => ReceivedWebhook['body']]>([
    ['a string', () => sent.body.toString()],
    ['a Buffer', () => sent.body],
    ['bytes', () => new Uint8Array(sent.body)],
    ['an ArrayBuffer', () => new Uint8Array(sent.body).buffer],
    [
      'a part of a larger buffer',
      () => Buffer.concat([Buffer.from('x'), sent.body, Buffer.from('y')]).subarray(1, 1 + sent.body.length),
    ],
  ])('with the body as %s', (_, body) => {
    expect(verify({ body: body() })).toStrictEqual(event);
  });

  test.each<[string, () => ReceivedWebhook['headers']]>([
    ['of Node.js', () => sent.headers],
    ['of fetch', () => new Headers(Object.entries(sent.headers) as [string, string][])],
    [
      'with capitals',
      () =>
        Object.fromEntries(Object.entries(sent.headers).map(([name, value]) => [name.toUpperCase(), value])),
    ],
    [
      'as lists',
      () => Object.fromEntries(Object.entries(sent.headers).map(([name, value]) => [name, [String(value)]])),
    ],
  ])('with the headers %s', (_, headers) => {
    expect(verify({ headers: headers() })).toStrictEqual(event);
  });

  test('when it has waited in a queue', () => {
    const late = { ...signed(sent.body.toString(), new Date(Date.now() - 3_600_000)) };
    expect(errorOf(late).code).toBe('timestamp_too_old');
    expect(verify({ ...late, receivedAt: new Date(Date.now() - 3_590_000) })).toStrictEqual(event);
  });

  test('with one of several secrets', () => {
    expect(verify({ secret: [anotherSecret, endpoint.secret] })).toStrictEqual(event);
  });
});

describe('is refused', () => {
  test.each<[string, WebhookVerificationErrorCode, () => Partial<ReceivedWebhook>, RegExp]>([
    ['another secret', 'signature_wrong', () => ({ secret: anotherSecret }), /belongs to another endpoint/],
    ['a changed body', 'signature_wrong', () => ({ body: `${sent.body} ` }), /not the raw body/],
    [
      'JSON that was parsed and written anew',
      'signature_wrong',
      () => ({ body: JSON.stringify(JSON.parse(sent.body.toString()), null, 1) }),
      /not the raw body as it was received/,
    ],
    [
      'bytes read as Latin 1',
      'signature_wrong',
      () => ({ body: sent.body.toString('latin1') }),
      /not the raw body/,
    ],
    [
      'a body with a byte order mark',
      'signature_wrong',
      () => ({ body: Buffer.concat([Buffer.from([0xef, 0xbb, 0xbf]), sent.body]) }),
      /not the raw body/,
    ],
    ['an empty body', 'signature_wrong', () => ({ body: '' }), /not the raw body/],
    [
      'another id',
      'signature_wrong',
      () => ({ headers: { ...sent.headers, 'webhook-id': 'evt_2' } }),
      /No signature/,
    ],
    [
      'a signature of another version',
      'signature_wrong',
      () => ({
        headers: {
          ...sent.headers,
          'webhook-signature': String(sent.headers['webhook-signature']).replaceAll('v1,', 'v9,'),
        },
      }),
      /No signature/,
    ],
    [
      'a malformed signature',
      'signature_wrong',
      () => ({ headers: { ...sent.headers, 'webhook-signature': 'v1' } }),
      /No signature/,
    ],
    [
      'no headers',
      'headers_missing',
      () => ({ headers: {} }),
      /no webhook-id, no webhook-timestamp, no webhook-sig/,
    ],
    [
      'one header missing',
      'headers_missing',
      () => ({ headers: { ...sent.headers, 'webhook-signature': undefined } }),
      /^The request has no webhook-signature: it does not come from the service, or a proxy/,
    ],
    [
      'a timestamp that is not a number',
      'headers_missing',
      () => ({ headers: { ...sent.headers, 'webhook-timestamp': `${sent.headers['webhook-timestamp']}x` } }),
      /not a number of seconds/,
    ],
    [
      'a webhook that was signed long ago',
      'timestamp_too_old',
      () => signed(sent.body.toString(), new Date(Date.now() - 302_000)),
      /signed 30\d s ago, more than the 300 s allowed: it is a replay, it waited in a queue/,
    ],
    [
      'a webhook that was signed in the future',
      'timestamp_too_new',
      () => signed(sent.body.toString(), new Date(Date.now() + 303_000)),
      /30\d s in the future, more than the 300 s allowed: check this machine's clock/,
    ],
    [
      'a body in base64',
      'signature_wrong',
      () => ({ body: Buffer.from(sent.body).toString('base64') }),
      /^The body is in base64, as AWS gives it/,
    ],
    ['no JSON', 'body_unexpected', () => signed('hello'), /its body is not an event: it is not JSON/],
    ['another object', 'body_unexpected', () => signed('{"id":"evt_1"}'), /its type is missing/],
  ])('%s', (_, code, change, message) => {
    const error = errorOf(change());
    expect(error.code).toBe(code);
    expect(error.message).toMatch(message);
    expect(error.message).not.toContain('whsec_');
    expect(error.message).not.toContain(endpoint.secret.slice(6, 20));
  });

  test('4 minutes are within the tolerance, in both directions', () => {
    for (const ms of [-240_000, 240_000]) {
      expect(verify(signed(sent.body.toString(), new Date(Date.now() + ms)))).toStrictEqual(event);
    }
  });

  test('an event newer than this version is not', () => {
    const newer = {
      ...JSON.parse(sent.body.toString()),
      type: 'payout.created',
      data: { payout: { id: 'po_1' } },
    };
    expect(verify(signed(JSON.stringify(newer)))).toMatchObject({
      type: 'payout.created',
      data: { paymentIntent: undefined, webhookEndpoint: undefined },
    });
  });
});

describe('a wrong argument is a TypeError that names the mistake', () => {
  test.each<[string, () => Record<string, unknown>, RegExp]>([
    [
      'a parsed body',
      () => ({ body: JSON.parse(sent.body.toString()) }),
      /^body must be the raw body.*not an object: your server has parsed it already.*express\.raw\(/,
    ],
    ['no body', () => ({ body: undefined }), /^body must be the raw body.*not undefined; has something read/],
    ['a missing secret', () => ({ secret: undefined }), /undefined; is the environment variable set\?$/],
    ['an empty secret', () => ({ secret: '' }), /empty; is the environment variable set\?$/],
    ['no secrets', () => ({ secret: [] }), /not an empty array$/],
    ['an API key for a secret', () => ({ secret: 'sk_testnet_x' }), /whsec_ and base64$/],
    ['a secret cut short', () => ({ secret: 'whsec_a' }), /whsec_ and base64$/],
    [
      'no headers',
      () => ({ headers: undefined }),
      /^headers must be the headers of the request, not undefined$/,
    ],
  ])('%s', (_, change, message) => {
    const call = () => verify(change() as Partial<ReceivedWebhook>);
    expect(call).toThrow(TypeError);
    expect(call).toThrow(message);
    expect(call).toThrow(expect.objectContaining({ message: expect.not.stringContaining('sk_testnet') }));
  });

  test('separate arguments instead of one object', () => {
    expect(() => verifyWebhook('{}' as never)).toThrow(
      new TypeError('verifyWebhook needs { body, headers, secret }, not "{}"'),
    );
  });
});
