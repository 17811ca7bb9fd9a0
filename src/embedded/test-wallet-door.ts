// `POST /checkout/test-wallet`: the buttons of the checkout page that pay with test money. Served only if
// local chains replace the test networks. Not part of the API.

import type { IJsonValue } from '../contract/json/i-json.ts';
import { isObject, notAField } from '../contract/json/json-codec.ts';
import { parseJsonBody, readJsonBytes, sendJson } from '../doors/public/json-body.ts';
import { isOwnOrigin } from '../doors/public/own-origin.ts';
import type { Site } from '../doors/public/public-door.ts';
import { invalidBody, invalidField, ServiceError } from '../requests/errors.ts';
import type { Authenticate } from '../requests/method.ts';
import { answerHeaders, type OpenedIntent } from '../requests/request-context.ts';
import type { TestPaymentKind, TestWalletSettings } from './test-wallet.ts';

const path = '/checkout/test-wallet';

const kinds: readonly TestPaymentKind[] = ['exact', 'too_little', 'too_much', 'signed'];

interface TestWalletOptions extends TestWalletSettings {
  /** Authenticates by the client secret. Requests count together with those of the checkout. */
  admit: Authenticate<OpenedIntent>;
}

export function createTestWallet(options: TestWalletOptions): Site {
  return {
    name: 'test_wallet',
    has: (candidate) => candidate === path,
    async serve(exchange, { isDraining, requestTimeoutMs, scheme }) {
      const { request, header, context } = exchange;
      if (request.method !== 'POST') {
        throw new ServiceError('method_not_allowed', { httpHeaders: { Allow: 'POST' } });
      }
      const origin = header.get('origin');
      if (origin !== null && !isOwnOrigin(origin, request, scheme)) {
        throw new ServiceError('browser_forbidden', {
          message: 'The test wallet is only for the checkout page of this port.',
        });
      }
      const opened = await options.admit(context, header);
      const amount = amountIn(parseJsonBody(await readJsonBytes(exchange, requestTimeoutMs)));
      // Loads viem, like the watcher of these chains.
      const { payFromTestWallet } = await import('./test-wallet.ts');
      const transaction_hash = await payFromTestWallet(options, opened, amount, context);
      const body = JSON.stringify({ transaction_hash });
      sendJson(exchange, { status: 200, body, headers: answerHeaders(context) }, isDraining);
    },
  };
}

/** Reads `{"amount":…}`. Throws `invalid_body` with all violations. */
function amountIn(json: IJsonValue): TestPaymentKind {
  if (!isObject(json)) throw invalidField('body', 'must be an object');
  const { amount, ...others } = json;
  const known = kinds.find((name) => name === amount);
  const violations = Object.keys(others).map((name, i) => notAField('', name, ['amount'], i));
  if (known !== undefined && violations.length === 0) return known;
  if (known === undefined) violations.push({ field: 'amount', message: `must be "${kinds.join('" or "')}"` });
  throw invalidBody(violations);
}
