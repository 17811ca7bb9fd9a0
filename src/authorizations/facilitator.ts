// The three requests to an x402 facilitator, which sends authorizations and pays for it. It is trusted with nothing: only
// the chain says what has happened. Its answers are small, and nothing of them is logged but status and reason.

import { checksum } from 'ox/Address';
import { Agent, request } from 'undici';
import type { ChainFacilitator } from '../config/config.ts';
import {
  networkName,
  objectIn,
  type PaymentRequirements,
  type SignedPayment,
  x402Version,
} from '../contract/x402.ts';
import { maxTimeoutSeconds } from './offer.ts';

const timeoutMs = 30_000;
const maxAnswerBytes = 64 * 1024;
const maxReason = 100;
/** Over HTTP/1.1, as nodes are asked. */
const dispatcher = new Agent({ allowH2: false, maxResponseSize: maxAnswerBytes });

/** What a facilitator answered to a payment. */
export interface FacilitatorAnswer {
  isAccepted: boolean;
  /** Why not, in its words; or the fault of the request. */
  reason: string;
  /** The hash of the transaction that it says it has sent. */
  transaction?: `0x${string}`;
  /** It was never given the authorization. */
  isUnasked?: boolean;
}

export type Facilitator = ReturnType<typeof createFacilitator>;

export function createFacilitator({ url, token }: Pick<ChainFacilitator, 'url' | 'token'>) {
  const ask = async (path: string, body?: object): Promise<Record<string, unknown>> => {
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
    const answer = objectIn(await answered.text()) ?? {};
    // A refusal may come with a status of its own.
    if ((statusCode >= 200 && statusCode < 300) || 'isValid' in answer || 'success' in answer) return answer;
    throw new Error(`status ${statusCode}`);
  };

  return {
    /** Rejects if it cannot be asked. */
    async supports(chainId: number): Promise<boolean> {
      const { kinds } = await ask('/supported');
      return (Array.isArray(kinds) ? kinds : []).some(
        (kind) =>
          kind?.x402Version === x402Version &&
          kind?.scheme === 'exact' &&
          [networkName(chainId), 'eip155:*'].includes(kind?.network),
      );
    },
    /** Has the payment verified and sent. Never rejects. */
    async send(payment: SignedPayment): Promise<FacilitatorAnswer> {
      const payload = requestOf(payment);
      try {
        const verified = await ask('/verify', payload);
        if (verified.isValid !== true) return { isAccepted: false, reason: wordOf(verified.invalidReason) };
      } catch (reason) {
        return {
          isAccepted: false,
          reason: faultOf(reason),
          isUnasked: unconnected.has(codeOf(reason) ?? ''),
        };
      }
      try {
        const settled = await ask('/settle', payload);
        const { transaction } = settled;
        const isHash = typeof transaction === 'string' && /^0x[0-9a-f]{64}$/i.test(transaction);
        return {
          isAccepted: settled.success === true,
          reason: settled.success === true ? '' : wordOf(settled.errorReason),
          ...(isHash && { transaction: transaction.toLowerCase() as `0x${string}` }),
        };
      } catch (reason) {
        return { isAccepted: false, reason: faultOf(reason) };
      }
    },
  };
}

/** Made anew from what was checked: what else a client has written could mean something to a facilitator. */
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

/** x402's reasons are words. Anything else is not repeated. */
function wordOf(reason: unknown): string {
  return typeof reason === 'string' && /^[\w-]+$/.test(reason) ? reason.slice(0, maxReason) : 'unspecified';
}

/** The connection was never made, so nothing was sent. */
const unconnected = new Set(['ECONNREFUSED', 'ENOTFOUND', 'EAI_AGAIN', 'UND_ERR_CONNECT_TIMEOUT']);

function codeOf(reason: unknown): string | undefined {
  return (reason as { code?: string }).code;
}

function faultOf(reason: unknown): string {
  if (reason instanceof DOMException && reason.name === 'TimeoutError') return 'timeout';
  return codeOf(reason) ?? (reason as Error).message;
}
