// `POST /v1/checkout/pay`. The transcoder lacks x402's status codes and headers.

import type { PayAnswer, PayRequest } from '../../authorizations/pay-checkout.ts';
import { ServiceError } from '../../requests/errors.ts';
import type { Authenticate } from '../../requests/method.ts';
import { answerHeaders, type OpenedIntent } from '../../requests/request-context.ts';
import { addressOf } from '../doc-url.ts';
import { discardBody } from '../request-body.ts';
import { sendJson } from './json-body.ts';
import type { Site } from './public-door.ts';

const path = '/v1/checkout/pay';

/** Sent with every answer, including refusals: the page or program that pays may have any origin. */
const shared: readonly [string, string][] = [
  ['Access-Control-Allow-Origin', '*'],
  ['Access-Control-Expose-Headers', 'ETag, Retry-After, X-Request-Id, PAYMENT-REQUIRED, PAYMENT-RESPONSE'],
];
/** The client of x402 sends `Access-Control-Expose-Headers` as a request header. */
const preflight: readonly [string, string][] = [
  ['Access-Control-Allow-Methods', 'POST'],
  [
    'Access-Control-Allow-Headers',
    'Authorization, Content-Type, If-None-Match, PAYMENT-SIGNATURE, Access-Control-Expose-Headers',
  ],
  ['Access-Control-Max-Age', '7200'],
];

interface PayDoorOptions {
  /** Authenticates by client secret. Requests count together with those for the checkout. */
  admit: Authenticate<OpenedIntent>;
  pay(request: PayRequest): Promise<PayAnswer>;
  /** The address of this port for clients, without a trailing slash; by default the one in the request. */
  publicUrl: string | undefined;
}

export function createPayDoor({ admit, pay, publicUrl }: PayDoorOptions): Site {
  return {
    name: 'PayCheckout',
    has: (candidate) => candidate === path,
    shared,
    async serve(exchange, { strangers, isDraining, scheme }) {
      const { request, header, connection, context } = exchange;
      const send = (answer: PayAnswer) =>
        sendJson(exchange, { ...answer, headers: [...shared, ...answer.headers] }, isDraining);
      if (request.method === 'OPTIONS') return send({ status: 204, body: '', headers: [...preflight] });
      if (request.method !== 'POST') {
        throw new ServiceError('method_not_allowed', { httpHeaders: { Allow: 'POST' } });
      }
      const opened = await admit(context, header);
      strangers.noteClientSecret(connection);
      // The body is not used.
      discardBody(request);
      const resourceUrl = `${publicUrl ?? addressOf(header, scheme) ?? ''}${path}`;
      const signature = header.get('payment-signature');
      const answer = await pay({ opened, signature, resourceUrl, context });
      send({ ...answer, headers: [...answerHeaders(context), ...answer.headers] });
    },
  };
}
