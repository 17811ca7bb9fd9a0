// A payer who signs, and a facilitator that does what the test says.

import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { createServer, type ServerResponse } from 'node:http';
import { json } from 'node:stream/consumers';
import {
  type Address,
  bytesToHex,
  encodeFunctionData,
  type Hex,
  hexToBytes,
  parseAbi,
  parseSignature,
} from 'viem';
import type { LocalAccount } from 'viem/accounts';
import { authorizationTypes } from '../../src/contract/eip-3009.ts';
import type { PaymentRequirements } from '../../src/contract/x402.ts';
import { parseIdentifier } from '../../src/database/identifiers.ts';
import type { TestChain } from './chain.ts';
import { relayer } from './chain-contracts.ts';
import { listen } from './listen.ts';

export interface SignedFields {
  from: Address;
  to: Address;
  value: bigint;
  validAfter: bigint;
  validBefore: bigint;
  nonce: Hex;
}

export interface Signed extends SignedFields {
  signature: Hex;
}

export const randomNonce = (): Hex => bytesToHex(randomBytes(32));

/** A nonce like the checkout's: the intent's UUID, and 16 random bytes. */
export function nonceOf(intentId: string): Hex {
  const uuid = hexToBytes(`0x${parseIdentifier('pi', intentId)?.replaceAll('-', '')}`);
  return bytesToHex(Buffer.concat([uuid, randomBytes(16)]));
}

/** The EIP-712 domain of the token. */
const domainOf = ({ network, asset, extra }: Pick<PaymentRequirements, 'network' | 'asset' | 'extra'>) => ({
  ...(extra as { name: string; version: string }),
  chainId: Number(network.split(':')[1]),
  verifyingContract: asset as Address,
});

/** Signs what is offered, with these fields changed. */
export async function sign(
  account: Pick<LocalAccount, 'address' | 'signTypedData'>,
  offer: Omit<PaymentRequirements, 'scheme'>,
  fields: Partial<SignedFields> & { type?: 'TransferWithAuthorization' | 'ReceiveWithAuthorization' } = {},
): Promise<Signed> {
  const { type = 'TransferWithAuthorization', ...others } = fields;
  const message: SignedFields = {
    from: account.address,
    to: offer.payTo as Address,
    value: BigInt(offer.amount),
    validAfter: 0n,
    validBefore: BigInt(Math.floor(Date.now() / 1_000) + offer.maxTimeoutSeconds),
    nonce: randomNonce(),
    ...others,
  };
  const signature = await account.signTypedData({
    domain: domainOf(offer),
    types: { [type]: authorizationTypes.TransferWithAuthorization },
    primaryType: type,
    message: { ...message },
  });
  return { ...message, signature };
}

/** The header `PAYMENT-SIGNATURE`. */
export function paymentHeader(signed: Signed, accepted: PaymentRequirements): string {
  const { signature, ...message } = signed;
  const authorization = Object.fromEntries(
    Object.entries(message).map(([key, value]) => [key, String(value)]),
  );
  const payment = { x402Version: 2, accepted, payload: { signature, authorization } };
  return Buffer.from(JSON.stringify(payment)).toString('base64');
}

const fields =
  'address from, address to, uint256 value, uint256 validAfter, uint256 validBefore, bytes32 nonce';
const tokenAbi = parseAbi([
  `function transferWithAuthorization(${fields}, bytes signature)`,
  `function receiveWithAuthorization(${fields}, bytes signature)`,
  'function cancelAuthorization(address authorizer, bytes32 nonce, bytes signature)',
]);

const partsAbi = parseAbi([`function transferWithAuthorization(${fields}, uint8 v, bytes32 r, bytes32 s)`]);

/** The call of the token that uses what was signed. */
export function callOf(
  { from, to, value, validAfter, validBefore, nonce, signature }: Signed,
  functionName: 'transferWithAuthorization' | 'receiveWithAuthorization' = 'transferWithAuthorization',
): Hex {
  const args = [from, to, value, validAfter, validBefore, nonce, signature] as const;
  return encodeFunctionData({ abi: tokenAbi, functionName, args });
}

/** The same call, with the three parts of a signature that older callers use. */
export function partsCallOf({ from, to, value, validAfter, validBefore, nonce, signature }: Signed): Hex {
  const { r, s, yParity } = parseSignature(signature);
  const args = [from, to, value, validAfter, validBefore, nonce, 27 + yParity, r, s] as const;
  return encodeFunctionData({ abi: partsAbi, functionName: 'transferWithAuthorization', args });
}

/** Signs the cancellation of a nonce. */
export async function cancelCall(
  account: LocalAccount,
  offer: PaymentRequirements,
  nonce: Hex,
): Promise<Hex> {
  const signature = await account.signTypedData({
    domain: domainOf(offer),
    types: {
      CancelAuthorization: [
        { name: 'authorizer', type: 'address' },
        { name: 'nonce', type: 'bytes32' },
      ],
    },
    primaryType: 'CancelAuthorization',
    message: { authorizer: account.address, nonce },
  });
  const args = [account.address, nonce, signature] as const;
  return encodeFunctionData({ abi: tokenAbi, functionName: 'cancelAuthorization', args });
}

/** The log line after which payers can pay by a signature. */
export const gaslessLine = 'payers can pay by a signature, without gas';

export type TestFacilitator = Awaited<ReturnType<typeof startTestFacilitator>>;

/** What the facilitator does with a payment: answers, or holds the response itself. */
export type Behaviour = (signed: Signed, response: ServerResponse) => unknown;

/** A facilitator, which sends with the chain's relayer unless `behaviour` is set. The caller closes it. */
export async function startTestFacilitator(chain: Pick<TestChain, 'send' | 'usdc' | 'network'>) {
  const network = `eip155:${chain.network.chainId}`;
  const asked: string[] = [];
  const requests: unknown[] = [];
  const honest: Record<string, Behaviour> = {
    '/verify': () => ({ isValid: true }),
    '/settle': async (signed) => ({
      success: true,
      transaction: await facilitator.send(signed),
      network,
    }),
  };
  const server = createServer(async (request, response) => {
    const path = String(request.url);
    if (path === '/supported') {
      asked.push(path);
      response.end(JSON.stringify({ kinds: [{ x402Version: 2, scheme: 'exact', network }] }));
      return;
    }
    // biome-ignore lint/suspicious/noExplicitAny: it is what the service has sent.
    const body = (await json(request)) as any;
    const { paymentPayload } = body;
    // The service asks whether our token is accepted.
    if (paymentPayload === undefined) {
      response.writeHead(400).end();
      return;
    }
    asked.push(path);
    requests.push(body);
    const { signature, authorization } = paymentPayload.payload;
    const numbers = ['value', 'validAfter', 'validBefore'].map((name) => [name, BigInt(authorization[name])]);
    const signed: Signed = { ...authorization, ...Object.fromEntries(numbers), signature };
    const answer = await (facilitator.behaviour[path] ?? honest[path])?.(signed, response);
    if (answer !== undefined) response.end(JSON.stringify(answer));
  });
  const { url, close } = await listen(server);
  const facilitator = {
    url,
    close,
    asked,
    /** The requests to verify and to settle. */
    requests,
    behaviour: {} as Partial<Record<string, Behaviour>>,
    /** Sends a payment. The transaction waits for the next block. */
    async send(signed: Signed): Promise<Hex> {
      const hash = await chain.send(relayer, { to: chain.usdc, data: callOf(signed) });
      server.emit('sent');
      return hash;
    },
    /** Resolves when it has sent the next payment. */
    nextSent: () => once(server, 'sent'),
  };
  return facilitator;
}
