// The three requests to an x402 facilitator, which sends authorizations and pays the fee. It is not trusted:
// only the chain shows what happened. Its answers are small, and only their status and reason are logged.

import { setTimeout as sleep } from 'node:timers/promises';
import { checksum } from 'ox/Address';
import { Agent, request } from 'undici';
import type { ChainFacilitator } from '../config/config.ts';
import { type ChainSettings, facilitatorVariableOf } from '../contract/chains.ts';
import type { PaymentRequirements, SignedPayment } from '../contract/x402.ts';
import { maxTimeoutSeconds, networkName, objectIn, x402Version } from '../contract/x402.ts';

const timeoutMs = 30_000;
const maxAnswerBytes = 64 * 1024;
const maxReason = 100;
const maxRepeats = 2;
const repeatAfterMs = 1_500;
/** No request is repeated after this long: the payer waits. */
const maxRepeatingMs = 10_000;
/** HTTP/1.1 only, as for nodes. */
const dispatcher = new Agent({ allowH2: false, maxResponseSize: maxAnswerBytes });

/** What a facilitator answered to a payment. */
interface FacilitatorAnswer {
  isAccepted: boolean;
  /** Why not, in the facilitator's words; or the fault of the request. */
  reason: string;
  /** The hash of the transaction that the facilitator claims to have sent. */
  transaction?: `0x${string}`;
  /** The facilitator was never given the authorization. */
  wasNeverSent?: boolean;
  /** The same request may get another answer in a moment. */
  mayPass?: boolean;
}

/** The facilitator does not accept our token, perhaps only for now. */
export class TokenRefused extends Error {}

export function createFacilitator({ url, token }: ChainFacilitator) {
  const ask = async (path: string, body?: object) => {
    const { statusCode, body: answered } = await request(`${url}${path}`, {
      method: body === undefined ? 'GET' : 'POST',
      headers: {
        ...(body !== undefined && { 'Content-Type': 'application/json' }),
        ...(token !== undefined && { Authorization: `Bearer ${token}` }),
      },
      ...(body !== undefined && { body: JSON.stringify(body) }),
      signal: AbortSignal.timeout(timeoutMs),
      dispatcher,
    });
    return { statusCode, answer: objectIn(await answered.text()) ?? {} };
  };
  const answerOf = async (path: string, body?: object): Promise<Record<string, unknown>> => {
    const { statusCode, answer } = await ask(path, body);
    // A refusal may come with an error status.
    if ((statusCode >= 200 && statusCode < 300) || 'isValid' in answer || 'success' in answer) return answer;
    throw new Error(`status ${statusCode}`);
  };

  /** Returns undefined if the facilitator would send the payment. */
  const verify = async (payload: object): Promise<FacilitatorAnswer | undefined> => {
    try {
      const { isValid, invalidReason } = await answerOf('/verify', payload);
      return isValid === true ? undefined : { isAccepted: false, reason: wordOf(invalidReason) };
    } catch (reason) {
      const wasNeverSent = unconnected.test(codeOf(reason) ?? '');
      return { isAccepted: false, reason: faultOf(reason), wasNeverSent, mayPass: !wasNeverSent };
    }
  };

  const settle = async (payload: object): Promise<FacilitatorAnswer> => {
    try {
      const { success, errorReason, transaction } = await answerOf('/settle', payload);
      const isHash = typeof transaction === 'string' && /^0x[0-9a-f]{64}$/i.test(transaction);
      // `settlement_pending`: sent, but its block has not been seen yet.
      const isAccepted = success === true || errorReason === 'settlement_pending';
      return {
        isAccepted,
        reason: isAccepted ? '' : wordOf(errorReason),
        ...(isHash && { transaction: transaction.toLowerCase() as `0x${string}` }),
        // The facilitator verified the payment before it refused to send it.
        mayPass: !isAccepted && !isHash,
      };
    } catch (reason) {
      return { isAccepted: false, reason: faultOf(reason), mayPass: true };
    }
  };

  return {
    /** Returns why it takes no payments on this chain, if so. Rejects on a failure, or with TokenRefused. */
    async problemWith({ chainId, tokens, rpcVariable }: ChainSettings): Promise<string | undefined> {
      const { kinds } = await answerOf('/supported');
      const isSupported = (Array.isArray(kinds) ? kinds : []).some(
        (kind) =>
          kind?.x402Version === x402Version &&
          kind?.scheme === 'exact' &&
          [networkName(chainId), 'eip155:*'].includes(kind?.network) &&
          // Circle's Gateway needs signatures for a contract of its own.
          tokens.includes(String(kind.extra?.verifyingContract ?? tokens[0]).toLowerCase() as `0x${string}`),
      );
      if (!isSupported) return 'does not take x402 version 2 with the scheme exact on this chain';
      // `/supported` may not need the token, so `/verify` checks it.
      const { statusCode, answer } = await ask('/verify', {});
      if ((statusCode !== 401 && statusCode !== 403) || 'isValid' in answer) return undefined;
      throw new TokenRefused(
        `it answers ${statusCode}: correct ${facilitatorVariableOf({ rpcVariable })}_TOKEN`,
      );
    },
    /**
     * Has the payment verified and sent. Repeats a failed request unchanged, up to twice: a facilitator may
     * be busy or estimate wrongly for a moment, and a nonce works once. Stops at `landed`. Never rejects.
     */
    async send(payment: SignedPayment, landed: AbortSignal): Promise<FacilitatorAnswer> {
      const payload = requestOf(payment);
      return (await repeat(() => verify(payload), landed)) ?? repeat(() => settle(payload), landed);
    },
  };
}

async function repeat<T extends FacilitatorAnswer | undefined>(
  work: () => Promise<T>,
  landed: AbortSignal,
): Promise<T> {
  const beganAtMs = performance.now();
  for (let left = maxRepeats, isAsked = false; ; left--) {
    const answer = await work();
    isAsked ||= answer?.wasNeverSent !== true;
    const mayRepeat = answer?.mayPass === true && left > 0 && performance.now() - beganAtMs < maxRepeatingMs;
    if (mayRepeat) await sleep(repeatAfterMs, undefined, { signal: landed }).catch(() => {});
    if (!mayRepeat || landed.aborted) return answer && { ...answer, wasNeverSent: !isAsked };
  }
}

/** Contains only what was checked: other fields of a client could mean something to a facilitator. */
function requestOf({ accepted, signature, from, to, value, validAfter, validBefore, nonce }: SignedPayment) {
  const { name, version } = accepted.extra;
  const paymentRequirements: PaymentRequirements = {
    scheme: accepted.scheme,
    network: accepted.network,
    amount: String(value),
    asset: checksum(accepted.asset),
    payTo: checksum(to),
    maxTimeoutSeconds,
    extra: { name, version, assetTransferMethod: 'eip3009' },
  };
  const authorization = {
    from: checksum(from),
    to: checksum(to),
    value: String(value),
    validAfter: String(validAfter),
    validBefore: String(validBefore),
    nonce,
  };
  const paymentPayload = {
    x402Version,
    accepted: paymentRequirements,
    payload: { signature, authorization },
  };
  return { x402Version, paymentPayload, paymentRequirements };
}

/** x402's reasons are words. Anything else is not passed on. */
function wordOf(reason: unknown): string {
  return typeof reason === 'string' && /^[\w-]+$/.test(reason) ? reason.slice(0, maxReason) : 'unspecified';
}

/**
 * The connection was never made, or the server's certificate is not trusted, so nothing was sent. Alerts of the
 * server (`ERR_SSL_…`) do not show that: it may refuse the client after the request has arrived.
 */
const unconnected =
  /^(?:ECONNREFUSED|E(?:HOST|NET)UNREACH|ENOTFOUND|EAI_AGAIN|UND_ERR_CONNECT_TIMEOUT|(?!ERR_SSL)\w*CERT\w*|UNABLE_TO_\w+)$/;

const codeOf = (reason: unknown): string | undefined => (reason as { code?: string }).code;

function faultOf(reason: unknown): string {
  if (reason instanceof DOMException && reason.name === 'TimeoutError') return 'timeout';
  return codeOf(reason) ?? (reason as Error).message;
}
