// `POST /v1/checkout/pay`: pays an intent by a signature (x402, version 2). What is asked is in the order of its price: what
// the payment says itself, then the chain's node, then the database, and the facilitator last.

import type { EntityManager } from '@mikro-orm/postgresql';
import { type Network, networkOf } from '../contract/chains.ts';
import { isNewer } from '../contract/words.ts';
import {
  encodeHeader,
  networkName,
  type PaymentRequired,
  readPayment,
  type SettleResponse,
  type SignedPayment,
  x402Version,
} from '../contract/x402.ts';
import type { AuthorizationRow } from '../database/entities/authorization.ts';
import { PaymentIntentEntity, type PaymentIntentRow } from '../database/entities/payment-intent.ts';
import { entityColumns } from '../database/entity-columns.ts';
import { createPreparedStatements, preparedStatement } from '../database/prepared.ts';
import { orUnavailable } from '../database/unavailable.ts';
import { invalidBody, plainRefusal, ServiceError } from '../requests/errors.ts';
import type { OpenedIntent, RequestContext } from '../requests/request-context.ts';
import { NodeError } from '../settlement/node-answers.ts';
import { type Authorizations, createAuthorizations, foreignNonce } from './authorizations.ts';
import type { FacilitatorAnswer } from './facilitator.ts';
import type { Gasless, GaslessChain } from './gasless.ts';
import { createLandings, type Landings } from './landings.ts';
import { isOffered, offerOf, type PaymentRefusal, refusalOf, refused } from './offer.ts';

/** How long a payment may take to be seen on the chain before its request is answered. */
const maxWaitMs = 25_000;
/** How often the request looks again at an intent that changes under it. */
const maxAttempts = 3;
/** What a signature that only code can verify costs in the rate limit, besides the request itself. */
const contractSignatureCost = 4;

export interface PayAnswer {
  status: number;
  body: string;
  headers: [string, string][];
}

export interface PayRequest {
  opened: OpenedIntent;
  /** The header `PAYMENT-SIGNATURE`. */
  signature: string | null;
  /** The address of this route. */
  resourceUrl: string;
  context: RequestContext;
}

export interface PayObserver {
  onRefused?(reason: string): void;
  onSent?(chain: GaslessChain): void;
  onAnswer?(chain: GaslessChain, answer: FacilitatorAnswer, paymentIntent: string): void;
  onLanded?(chain: GaslessChain, ms: number): void;
  /** What the facilitator has said could not be stored. */
  onFailed?(reason: unknown, paymentIntent: string): void;
}

export interface PayCheckoutOptions {
  gasless: Gasless;
  /** What an authorization may be worth beyond what is missing. */
  toleranceUnits: bigint;
  /** The checkout's JSON. */
  checkoutText(opened: OpenedIntent): Promise<string>;
  /** Aborts when the service stops: what waits is then answered. */
  stopping: AbortSignal;
  /** Takes a payment of an account or an intent from its limit, or throws `rate_limited`. */
  takeOf(payer: string): void;
  observer?: PayObserver;
}

/** Returns the route's function. Throws ServiceError. */
export function createPayCheckout(
  em: EntityManager,
  options: PayCheckoutOptions,
): (request: PayRequest) => Promise<PayAnswer> {
  const paying = new PayCheckout(em, options);
  return (request) => orUnavailable(() => paying.pay(request));
}

/** An intent, and the time of the newest block that was read of its chain. */
interface Found {
  intent: PaymentIntentRow;
  network: Network;
  headTimeMs: number;
}

class PayCheckout {
  readonly #options: PayCheckoutOptions;
  readonly #authorizations: Authorizations;
  readonly #landings: Landings;
  readonly #find: (id: string) => Promise<Found | undefined>;

  constructor(em: EntityManager, options: PayCheckoutOptions) {
    this.#options = options;
    this.#authorizations = createAuthorizations(em);
    this.#landings = createLandings(em);
    this.#find = createFind(em);
  }

  async pay(request: PayRequest): Promise<PayAnswer> {
    for (let attempt = 0; attempt < maxAttempts; attempt++) {
      const answer = await this.#try(request);
      if (answer !== undefined) return answer;
    }
    throw plainRefusal('unavailable');
  }

  /** Undefined if the intent has changed in between. */
  async #try(request: PayRequest): Promise<PayAnswer | undefined> {
    const { opened, signature, context } = request;
    const found = await this.#find(opened.id);
    // A secret that we have made, of an intent that was never stored.
    if (found === undefined) throw plainRefusal('client_secret_invalid');
    const { intent, network } = found;
    if (intent.status === 'expired' || intent.status === 'canceled') throw ended(intent.status);
    const payment = signature === null ? undefined : paymentIn(signature);
    const known = payment && (await this.#authorizations.known(intent, payment));
    if (payment !== undefined && known !== undefined) {
      if (known.paymentIntent === intent.id) return this.#stateOf(request, known, network);
      return this.#refuse(network, payment, foreignNonce);
    }
    if (intent.status !== 'requires_payment')
      return { status: 200, body: await this.#text(request), headers: [] };
    const current = await this.#authorizations.currentOf(intent);
    if (current?.status === 'submitted') throw occupied(current);
    const chain = this.#options.gasless.on(network.chainId);
    if (chain === undefined) throw notPossible();
    const nowMs = Math.max(Date.now(), found.headTimeMs);
    if (payment === undefined) return offer(request, found, chain, nowMs);
    const refusal = await this.#check(payment, found, chain, nowMs, context);
    if (refusal !== undefined) return this.#refuse(network, payment, refusal);
    const stored = await this.#authorizations.store(intent, payment);
    if (stored.kind === 'changed') return undefined;
    if (stored.kind === 'refused') return this.#refuse(network, payment, stored.refusal);
    return this.#send(request, stored.row, payment, network, chain);
  }

  async #check(
    payment: SignedPayment,
    { intent, network }: Found,
    chain: GaslessChain,
    nowMs: number,
    context: RequestContext,
  ): Promise<PaymentRefusal | undefined> {
    const { toleranceUnits, takeOf } = this.#options;
    const { domain } = chain;
    const refusal = refusalOf(payment, { intent, network, domain, toleranceUnits, nowMs });
    if (refusal !== undefined) return refusal;
    const proof = chain.proofOf(payment);
    if (typeof proof === 'object') return proof;
    // Anybody may name another's account: without a proof it counts for the intent.
    takeOf(proof === 'owner' ? payment.from : intent.id);
    try {
      if (proof === 'unknown') {
        context.charge?.(contractSignatureCost);
        if (!(await chain.hasCode(payment.from))) {
          return refused('invalid_exact_evm_signature', 'The signature is not that of the account.');
        }
      }
      return await chain.refusalOf(payment);
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
    const { observer } = this.#options;
    const sentAtMs = performance.now();
    observer?.onSent?.(chain);
    const given = new AbortController();
    const asked = this.#ask(request, row, payment, chain).then((answer) => {
      if (!answer.isAccepted) given.abort();
      return answer;
    });
    const hash = await this.#wait(row.id, given.signal);
    if (hash !== undefined) observer?.onLanded?.(chain, performance.now() - sentAtMs);
    else if (given.signal.aborted && (await asked).isUnasked) {
      return this.#refuse(network, payment, unsent);
    }
    return this.#answer(request, row, network, hash);
  }

  /** Gives it to the facilitator, and notes what that says. Never rejects. */
  async #ask(
    { opened }: PayRequest,
    { id }: AuthorizationRow,
    payment: SignedPayment,
    chain: GaslessChain,
  ): Promise<FacilitatorAnswer> {
    const answer = await chain.facilitator.send(payment);
    this.#options.observer?.onAnswer?.(chain, answer, opened.typeId);
    try {
      if (answer.transaction !== undefined) await this.#authorizations.noteClaim(id, answer.transaction);
      if (answer.isUnasked) await this.#authorizations.noteFailed(id);
    } catch (reason) {
      this.#options.observer?.onFailed?.(reason, opened.typeId);
      // It stays submitted until its end.
      return { ...answer, isUnasked: false };
    }
    return answer;
  }

  /** What has become of an authorization that was sent before. */
  async #stateOf(request: PayRequest, row: AuthorizationRow, network: Network): Promise<PayAnswer> {
    if (row.status === 'failed') return refusalAnswer(network, row.fromAddress, unsent);
    if (row.status === 'released') return refusalAnswer(network, row.fromAddress, lapsed);
    const isLanded = row.status === 'landed';
    const hash = isLanded
      ? await this.#landings.of(row.id)
      : await this.#wait(row.id, new AbortController().signal);
    // Its nonce was used for another amount.
    if (isLanded && hash === undefined) return refusalAnswer(network, row.fromAddress, lapsed);
    return this.#answer(request, row, network, hash);
  }

  #wait(id: string, given: AbortSignal): Promise<string | undefined> {
    const signals = [AbortSignal.timeout(maxWaitMs), given, this.#options.stopping];
    return this.#landings.wait(id, AbortSignal.any(signals));
  }

  async #answer(
    request: PayRequest,
    { fromAddress, amountUnits }: AuthorizationRow,
    { chainId }: Network,
    hash: string | undefined,
  ): Promise<PayAnswer> {
    const body = await this.#text(request);
    if (hash === undefined) return { status: 202, body, headers: [] };
    const settled = {
      success: true,
      transaction: hash,
      network: networkName(chainId),
      payer: fromAddress,
      amount: String(amountUnits),
    };
    return { status: 200, body, headers: [['PAYMENT-RESPONSE', encodeHeader(settled)]] };
  }

  #text({ opened }: PayRequest): Promise<string> {
    return this.#options.checkoutText(opened);
  }

  #refuse(network: Network, { from }: SignedPayment, refusal: PaymentRefusal): PayAnswer {
    this.#options.observer?.onRefused?.(refusal.reason);
    return refusalAnswer(network, from, refusal);
  }
}

const unsent = refused(
  'facilitator_unreachable',
  'The authorization was given to nobody. Sign a new one, or pay in another way.',
);
const lapsed = refused(
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
  return {
    status: 402,
    body: JSON.stringify(response),
    headers: [['PAYMENT-RESPONSE', encodeHeader(response)]],
  };
}

function offer(
  { resourceUrl }: PayRequest,
  { intent, network }: Found,
  { domain }: GaslessChain,
  nowMs: number,
): PayAnswer {
  if (!isOffered(intent, nowMs)) {
    throw new ServiceError('invalid_state', {
      message: 'The payment intent expires too soon to be paid by a signature.',
    });
  }
  const required: PaymentRequired = {
    x402Version,
    error: 'PAYMENT-SIGNATURE header is required',
    resource: { url: resourceUrl, description: 'A payment intent', mimeType: 'application/json' },
    accepts: [offerOf(intent, network, domain, nowMs)],
  };
  return {
    status: 402,
    body: JSON.stringify(required),
    headers: [['PAYMENT-REQUIRED', encodeHeader(required)]],
  };
}

/** Most bytes of the header. */
const maxSignatureBytes = 8 * 1024;

function paymentIn(signature: string): SignedPayment {
  if (signature.length > maxSignatureBytes) {
    throw invalidBody([
      { field: 'PAYMENT-SIGNATURE', message: `must have at most ${maxSignatureBytes} bytes` },
    ]);
  }
  const payment = readPayment(signature);
  if ('violations' in payment) throw invalidBody(payment.violations);
  return payment;
}

function ended(status: 'expired' | 'canceled'): ServiceError {
  const how = status === 'expired' ? 'has expired' : 'is canceled';
  return new ServiceError('invalid_state', {
    message: `The payment intent ${how}. It can no longer be paid.`,
  });
}

function occupied({ validBefore }: AuthorizationRow): ServiceError {
  return new ServiceError('invalid_state', {
    message:
      'The payer has signed an authorization for this payment intent, which can still be used until ' +
      `${validBefore.toISOString()}. Wait for it: another payment could be the second.`,
  });
}

function notPossible(): ServiceError {
  return new ServiceError('invalid_state', {
    message: 'This payment intent cannot be paid by a signature now. Pay it by a transfer.',
  });
}

function createFind(em: EntityManager): (id: string) => Promise<Found | undefined> {
  const { run } = createPreparedStatements(em);
  const columns = entityColumns<PaymentIntentRow>(em, PaymentIntentEntity);
  const find = preparedStatement(
    'find_intent_to_pay',
    `select ${columns.of('i')}, n.chain_id, c.cursor_time
       from payment_intents i
       join networks n on n.id = i.network
       left join watched_chains c on c.chain_id = n.chain_id
      where i.id = $1`,
  );
  return async (id) => {
    const [row] = (await run(find, [id])).rows;
    if (row === undefined) return undefined;
    const intent = columns.read(row);
    const network = networkOf(intent.network) ?? isNewer(`network ${intent.network}`);
    return { intent, network, headTimeMs: row.cursor_time == null ? 0 : new Date(row.cursor_time).getTime() };
  };
}
