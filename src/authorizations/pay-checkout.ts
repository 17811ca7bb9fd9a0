// `POST /v1/checkout/pay`: pays an intent by a signature (x402, version 2). Checks are in the order of cost:
// the payment's form, the database, the payment's contents, the chain's node, and the facilitator last.

import { setTimeout as sleep } from 'node:timers/promises';
import type { EntityManager } from '@mikro-orm/postgresql';
import type { Logger } from 'pino';
import { type ChainSettings, type Network, networkOf } from '../contract/chains.ts';
import { throwNewer } from '../contract/words.ts';
import type { PaymentRequired, SettleResponse, SignedPayment } from '../contract/x402.ts';
import { encodeHeader, networkName, readPayment, x402Version } from '../contract/x402.ts';
import { Batcher } from '../database/batcher.ts';
import type { AuthorizationRow } from '../database/entities/authorization.ts';
import { networkChains } from '../database/entities/network.ts';
import { PaymentIntentEntity, type PaymentIntentRow } from '../database/entities/payment-intent.ts';
import { entityColumns } from '../database/entity-columns.ts';
import { createPreparedStatements, jsonOfIds, preparedStatement } from '../database/prepared.ts';
import { invalidBody, invalidField, invalidState, ServiceError } from '../requests/errors.ts';
import type { OpenedIntent, RequestContext } from '../requests/request-context.ts';
import { orUnavailable } from '../requests/unavailable.ts';
import { NodeError } from '../settlement/node-answers.ts';
import {
  type CurrentAuthorization,
  createAuthorizationStore,
  currentAuthorization,
  foreignNonce,
} from './authorization-store.ts';
import type { Gasless, GaslessChain } from './gasless.ts';
import { isOffered, offerOf, type PaymentRefusal, refusalOf, refused, type TokenDomain } from './offer.ts';

/** How long a payment may take to be seen on the chain before its request is answered. */
const maxWaitMs = 25_000;
/** How long a stopping process waits for a facilitator. */
const maxAskingMs = 5_000;
/** The most requests that wait, in all and for one authorization. Others are answered at once. */
const maxWaiting = 256;
const maxWaitingForOne = 3;
/** How many times a request is tried while its intent keeps changing. */
const maxAttempts = 3;
/** Requests that arrive while the database is busy share a statement. */
const maxBatchSize = 256;
/** What a signature that only code can verify costs in the rate limit, besides the request itself. */
const contractSignatureCost = 4;

export interface PayRequest {
  opened: OpenedIntent;
  /** The header `PAYMENT-SIGNATURE`. */
  signature: string | null;
  /** The address of this route. */
  resourceUrl: string;
  context: RequestContext;
}

interface PayCheckoutOptions {
  gasless: Pick<Gasless, 'on'>;
  /** How much more than the missing amount may be signed. */
  toleranceUnits: bigint;
  /** The checkout's JSON. */
  checkoutText(opened: OpenedIntent): Promise<string>;
  /** Aborts when the service stops: waiting requests are then answered. */
  stopping: AbortSignal;
  /** Counts a payment against the limit of an account or an intent, or throws `rate_limited`. */
  takeFromPayerLimit(payer: string): void;
  metrics: {
    refused(reason: string): void;
    sent(chain: ChainSettings): void;
    answered(chain: ChainSettings, isAccepted: boolean): void;
  };
  logger: Pick<Logger, 'warn'>;
}

/** Returns the route's function. Throws ServiceError. */
export function createPayCheckout(
  em: EntityManager,
  options: PayCheckoutOptions,
): (request: PayRequest) => Promise<PayAnswer> {
  const paying = new PayCheckout(em, options);
  return (request) => orUnavailable(() => paying.pay(request));
}

/** An intent, its authorization, and the time of the newest block read from its chain. */
interface Found {
  intent: PaymentIntentRow;
  current: CurrentAuthorization | undefined;
  network: Network;
  headTimeMs: number;
}

class PayCheckout {
  readonly #options: PayCheckoutOptions;
  readonly #store: ReturnType<typeof createAuthorizationStore>;
  readonly #intents: Batcher<string, Found | undefined>;
  /** The authorizations that requests wait for, once for each request. */
  readonly #waiting: string[] = [];

  constructor(em: EntityManager, options: PayCheckoutOptions) {
    this.#options = options;
    this.#store = createAuthorizationStore(em);
    this.#intents = createFinding(em);
  }

  async pay(request: PayRequest): Promise<PayAnswer> {
    const payment = request.signature === null ? undefined : paymentIn(request.signature);
    for (let attempt = 0; attempt < maxAttempts; attempt++) {
      const answer = await this.#try(request, payment);
      if (answer !== undefined) return answer;
    }
    throw new ServiceError('unavailable');
  }

  /** Undefined if the intent has changed in between. */
  async #try(request: PayRequest, payment: SignedPayment | undefined): Promise<PayAnswer | undefined> {
    const { opened, resourceUrl, context } = request;
    const found = await this.#intents.add(opened.id);
    // The secret is genuine, but its intent was never stored.
    if (found === undefined) throw new ServiceError('client_secret_invalid');
    const { intent, network, current } = found;
    if (intent.status === 'expired' || intent.status === 'canceled') throw ended(intent.status);
    const known = payment && (await this.#store.known(intent, payment));
    if (known?.paymentIntent === intent.id) return this.#stateOf(request, known, found);
    // Even with another signature: a payer who was told to sign again would pay twice.
    if (intent.status !== 'requires_payment') return this.#checkout(request, 200);
    if (current?.status === 'submitted') throw otherPaymentPending(current);
    if (payment !== undefined && known !== undefined) return this.#refuse(network, payment, foreignNonce);
    const chain = this.#options.gasless.on(network.id);
    if (chain === undefined) {
      throw invalidState('This payment intent cannot be paid by a signature now. Pay it by a transfer.');
    }
    const nowMs = Math.max(Date.now(), found.headTimeMs);
    if (payment === undefined) return offerAnswer(resourceUrl, intent, network, chain.domain, nowMs);
    const refusal = await this.#check(payment, found, chain, nowMs, context);
    if (refusal !== undefined) return this.#refuse(network, payment, refusal);
    const stored = await this.#store.store(intent, payment);
    if (stored === undefined) return undefined;
    if ('refusal' in stored) return this.#refuse(network, payment, stored.refusal);
    return this.#send(request, stored.row, payment, network, chain);
  }

  async #check(
    payment: SignedPayment,
    { intent, network }: Found,
    chain: GaslessChain,
    nowMs: number,
    context: RequestContext,
  ): Promise<PaymentRefusal | undefined> {
    const { toleranceUnits, takeFromPayerLimit } = this.#options;
    const { domain } = chain;
    const refusal =
      refusalOf(payment, { intent, network, domain, toleranceUnits, nowMs }) ?? this.#store.refusalOf(intent);
    if (refusal !== undefined) return refusal;
    const proof = chain.proofOf(payment);
    if (typeof proof === 'object') return proof;
    // Accounts are free, so the intent is limited too. Unproven, `from` may be somebody else's account.
    takeFromPayerLimit(intent.id);
    if (proof === 'owner') takeFromPayerLimit(payment.from);
    if (proof === 'unknown') context.charge?.(contractSignatureCost);
    try {
      return await chain.inTurn(intent.id, async () =>
        proof === 'unknown' && !(await chain.hasCode(payment.from))
          ? refused('invalid_exact_evm_signature', 'The signature is not that of the account.')
          : chain.refusalOf(payment),
      );
    } catch (reason) {
      if (!(reason instanceof NodeError)) throw reason;
      // Nothing is stored yet: the same signature can be sent again.
      throw new ServiceError('unavailable', { cause: reason });
    }
  }

  async #send(
    request: PayRequest,
    row: AuthorizationRow,
    payment: SignedPayment,
    network: Network,
    chain: GaslessChain,
  ): Promise<PayAnswer> {
    this.#options.metrics.sent(chain.settings);
    const declined = new AbortController();
    const landed = new AbortController();
    const asked = this.#ask(request, row, payment, chain, landed.signal).then((answer) => {
      if (!answer.isAccepted) declined.abort();
      return answer;
    });
    const hash = await this.#wait(row.id, declined.signal);
    if (hash !== undefined) landed.abort();
    // A stopping process first waits for the facilitator: nobody would send the payment again.
    if (hash === undefined && this.#options.stopping.aborted) await Promise.race([asked, sleep(maxAskingMs)]);
    if (hash === undefined && declined.signal.aborted && (await asked).wasNeverSent) {
      return this.#refuse(network, payment, neverSent);
    }
    return this.#answer(request, row, network, hash);
  }

  /** Gives the payment to the facilitator and stores the outcome. Never rejects. */
  async #ask(
    { opened }: PayRequest,
    { id }: AuthorizationRow,
    payment: SignedPayment,
    { facilitator, settings }: GaslessChain,
    landed: AbortSignal,
  ) {
    const { metrics, logger } = this.#options;
    const answer = await facilitator.send(payment, landed);
    const { isAccepted, reason, transaction, wasNeverSent } = answer;
    metrics.answered(settings, isAccepted);
    const { mode, chain } = settings;
    const about = { mode, chain, payment_intent: opened.typeId };
    if (!isAccepted) {
      logger.warn(
        { ...about, reason },
        'the facilitator has refused an authorization; only the chain decides what becomes of it',
      );
    }
    try {
      if (transaction !== undefined) await this.#store.noteReported(id, transaction);
      if (wasNeverSent) await this.#store.noteFailed(id);
    } catch (error) {
      logger.warn({ ...about, err: error }, 'could not store what the facilitator has said');
      // The authorization stays submitted until its end.
      return { ...answer, wasNeverSent: false };
    }
    return answer;
  }

  /** What has become of an authorization that was sent before. */
  async #stateOf(request: PayRequest, row: AuthorizationRow, { intent, network }: Found): Promise<PayAnswer> {
    if (row.status === 'submitted') {
      return this.#answer(request, row, network, await this.#wait(row.id, new AbortController().signal));
    }
    // Also undefined if the nonce was used for another amount.
    const hash = row.status === 'landed' ? await this.#store.landingOf(row.id) : undefined;
    if (hash !== undefined) return this.#answer(request, row, network, hash);
    if (intent.status !== 'requires_payment') return this.#checkout(request, 200);
    return refusalAnswer(network, row.fromAddress, row.status === 'failed' ? neverSent : released);
  }

  async #wait(id: string, declined: AbortSignal): Promise<string | undefined> {
    const waiting = this.#waiting;
    const ofOne = waiting.filter((each) => each === id).length;
    if (waiting.length >= maxWaiting || ofOne >= maxWaitingForOne) return undefined;
    waiting.push(id);
    const signals = [AbortSignal.timeout(maxWaitMs), declined, this.#options.stopping];
    const landing = this.#store.waitForLanding(id, AbortSignal.any(signals));
    return landing.finally(() => waiting.splice(waiting.indexOf(id), 1));
  }

  #answer(request: PayRequest, row: AuthorizationRow, network: Network, hash: string | undefined) {
    if (hash === undefined) return this.#checkout(request, 202);
    return this.#checkout(request, 200, [settledHeader(row, network, hash)]);
  }

  async #checkout({ opened }: PayRequest, status: number, headers: [string, string][] = []) {
    return { status, body: await this.#options.checkoutText(opened), headers };
  }

  #refuse(network: Network, { from }: SignedPayment, refusal: PaymentRefusal): PayAnswer {
    this.#options.metrics.refused(refusal.reason);
    return refusalAnswer(network, from, refusal);
  }
}

function createFinding(em: EntityManager): Batcher<string, Found | undefined> {
  const { run } = createPreparedStatements(em);
  const columns = entityColumns<PaymentIntentRow>(em, PaymentIntentEntity);
  const current = currentAuthorization(em);
  const find = preparedStatement(
    'find_intents_to_pay',
    `select ${columns.of('i')}${current.columns}, n.chain_id, c.cursor_time
       from json_to_recordset($1) as wanted (id uuid)
      cross join lateral (select * from payment_intents i where i.id = wanted.id limit 1) i
       join ${networkChains} on n.id = i.network
       left join watched_chains c on c.chain_id = n.chain_id
       ${current.join}`,
  );
  return new Batcher({
    slots: 2,
    maxBatchSize,
    async run(ids) {
      const { rows } = await run(find, [jsonOfIds(ids)]);
      const found = rows.map((row): Found => {
        const intent = columns.read(row);
        const network = networkOf(intent.network) ?? throwNewer(`network ${intent.network}`);
        const headTimeMs = row.cursor_time == null ? 0 : new Date(row.cursor_time).getTime();
        return { intent, current: current.read(row), network, headTimeMs };
      });
      const byId = new Map(found.map((each) => [each.intent.id, each]));
      return ids.map((id) => byId.get(id));
    },
  });
}

export type PayAnswer = { status: number; body: string; headers: [string, string][] };

/** The maximum size of the header. */
const maxSignatureBytes = 8 * 1024;

/** Reads the header `PAYMENT-SIGNATURE`. Throws `invalid_body`. */
function paymentIn(signature: string): SignedPayment {
  if (signature.length > maxSignatureBytes) {
    throw invalidField('PAYMENT-SIGNATURE', `must have at most ${maxSignatureBytes} bytes`);
  }
  const payment = readPayment(signature);
  if ('violations' in payment) throw invalidBody(payment.violations);
  return payment;
}

const neverSent = refused(
  'facilitator_unreachable',
  'The payment was not sent: the facilitator could not be reached. Sign a new one, or pay by a transfer.',
);
const released = refused(
  'authorization_released',
  'The chain will no longer take this authorization. Sign a new one.',
);

function refusalAnswer({ chainId }: Network, payer: string, { reason, message }: PaymentRefusal): PayAnswer {
  const response: SettleResponse = {
    success: false,
    errorReason: reason,
    errorMessage: message,
    payer,
    transaction: '',
    network: networkName(chainId),
  };
  return { status: 402, body: JSON.stringify(response), headers: [responseHeader(response)] };
}

/** `PAYMENT-RESPONSE` of a transfer that the watcher has recorded. */
function settledHeader({ fromAddress, amountUnits }: AuthorizationRow, { chainId }: Network, hash: string) {
  return responseHeader({
    success: true,
    transaction: hash,
    network: networkName(chainId),
    payer: fromAddress,
    amount: String(amountUnits),
  });
}

const responseHeader = (response: SettleResponse): [string, string] => [
  'PAYMENT-RESPONSE',
  encodeHeader(response),
];

/** Returns the offer to sign. Throws `invalid_state` if there is too little time left. */
function offerAnswer(
  resourceUrl: string,
  intent: PaymentIntentRow,
  network: Network,
  domain: TokenDomain,
  nowMs: number,
): PayAnswer {
  if (!isOffered(intent, nowMs)) {
    throw invalidState('The payment intent expires too soon to be paid by a signature.');
  }
  const required: PaymentRequired = {
    x402Version,
    error: 'PAYMENT-SIGNATURE header is required',
    resource: { url: resourceUrl, description: 'Payment of an order', mimeType: 'application/json' },
    accepts: [offerOf(intent, network, domain, nowMs)],
  };
  return {
    status: 402,
    body: JSON.stringify(required),
    headers: [['PAYMENT-REQUIRED', encodeHeader(required)]],
  };
}

function ended(status: 'expired' | 'canceled'): ServiceError {
  const how = status === 'expired' ? 'has expired' : 'is canceled';
  return invalidState(`The payment intent ${how}. It can no longer be paid.`);
}

/** Another authorization can still be used. */
function otherPaymentPending({ validBefore }: Pick<AuthorizationRow, 'validBefore'>): ServiceError {
  return invalidState(
    `A signed payment for this payment intent can still arrive until ${validBefore.toISOString()}. Its outcome is known ` +
      'a few minutes after that. Do not pay again before then, or you may be charged twice.',
  );
}
