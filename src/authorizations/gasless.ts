// The chains on which payers can pay by a signature: those with a node and a facilitator that supports them.

import { LRUCache } from 'lru-cache';
import { decode, encode } from 'ox/AbiParameters';
import type { Logger } from 'pino';
import type { ChainNodes, Config } from '../config/config.ts';
import type { ChainSettings, Network } from '../contract/chains.ts';
import { nameSelector, transferWithAuthorization, versionSelector } from '../contract/eip-3009.ts';
import type { RefusalReason, SignedPayment } from '../contract/x402.ts';
import { createTurns } from '../database/turns.ts';
import { startRepeater } from '../scheduling/repeater.ts';
import { Node } from '../settlement/node.ts';
import { NodeError } from '../settlement/node-answers.ts';
import { createFacilitator, TokenRefused } from './facilitator.ts';
import { type PaymentRefusal, refused, type TokenDomain } from './offer.ts';

export type GaslessChain = Awaited<ReturnType<typeof connect>>;

export type Gasless = ReturnType<typeof offerGasless>;

/** A token of a chain that may be offered. */
interface Candidate {
  settings: ChainSettings;
  network: Network;
  nodes: readonly Node[];
  facilitator: ReturnType<typeof createFacilitator>;
  /** Runs work that asks a node for a payer of this intent, a few payers at a time. Throws `unavailable`. */
  inTurn: ReturnType<typeof createTurns>;
  connected?: GaslessChain;
}

const refreshEveryMs = 600_000;
const maxRetryMs = 60_000;
/** Payers that ask a chain's nodes at once. The watcher shares the nodes' rate and must not wait for more. */
const maxAsking = 4;
const maxCodes = 10_000;
const codelessMs = 60_000;

/** Asks facilitators what they support, now and every ten minutes; only in processes that answer requests. */
export function offerGasless(
  { chainNodes, roles }: Pick<Config, 'chainNodes' | 'roles'>,
  observer: { onAdded(chain: ChainSettings): void; onAllOffered(): void },
  logger: Logger,
) {
  const candidates: Candidate[] = [];
  const offered = new Map<number, GaslessChain>();
  /** Resolves with false if the facilitator takes no payments on the chain. */
  const refresh = async (candidate: Candidate): Promise<boolean> => {
    const { settings, facilitator, network } = candidate;
    const { mode, chain, id } = network;
    const problem = await facilitator.problemWith(settings).catch((reason) => {
      // The facilitator is asked again within a minute.
      if (reason instanceof TokenRefused) offered.delete(id);
      throw reason;
    });
    if (problem !== undefined) {
      offered.delete(id);
      logger.warn({ mode, chain }, `the facilitator ${problem}`);
      return false;
    }
    candidate.connected ??= await connect(candidate);
    if (!offered.has(id)) logger.info({ mode, chain }, 'payers can pay by a signature, without gas');
    offered.set(id, candidate.connected);
    return true;
  };
  const add = ({ urls, facilitator: given, ...settings }: ChainNodes) => {
    if (given === undefined) return;
    const { chainId, tokens } = settings;
    const nodes = urls.map((each) => new Node({ url: each, chainId, tokens }));
    const facilitator = createFacilitator(given);
    const inTurn = createTurns(maxAsking, 'payments by a signature');
    candidates.push(
      ...settings.networks.map((network) => ({ settings, network, nodes, facilitator, inTurn })),
    );
    observer.onAdded(settings);
  };
  if (roles.has('api')) for (const nodes of chainNodes) add(nodes);
  const refreshing = startRepeater({
    name: 'facilitators',
    async work() {
      const ended = await Promise.allSettled(candidates.map(refresh));
      const failed = ended.find((each) => each.status === 'rejected');
      if (failed !== undefined) throw failed.reason;
      const areOffered = ended.every((each) => each.status === 'fulfilled' && each.value);
      if (candidates.length > 0 && areOffered) observer.onAllOffered();
    },
    intervalMs: refreshEveryMs,
    maxRetryMs,
    logger,
  });
  return {
    /** The chain of a network, if payers can pay by a signature in its token now. */
    on: (network: number) => offered.get(network),
    /** Adds a chain, such as a local one that has started. */
    add(nodes: ChainNodes) {
      add(nodes);
      refreshing.wake();
    },
    stop: refreshing.stop,
  };
}

async function connect({ settings, network, nodes, facilitator, inTurn }: Omit<Candidate, 'connected'>) {
  const { createProof } = await import('./signature.ts');
  const token = network.tokenAddress.toLowerCase() as `0x${string}`;
  /** Returns the first node's answer, or the next one's if the first has none. */
  const ask = async <T>(question: (node: Node) => Promise<T>, from = 0): Promise<T> => {
    try {
      return await question(nodes[from] as Node);
    } catch (reason) {
      if (isRevert(reason) || from + 1 === nodes.length) throw reason;
      return ask(question, from + 1);
    }
  };
  const textOf = async (selector: `0x${string}`) => {
    const [text] = decode([{ type: 'string' }], await ask((node) => node.call(token, selector, 'latest')));
    return text;
  };
  const domain: TokenDomain = { name: await textOf(nameSelector), version: await textOf(versionSelector) };
  const codes = new LRUCache<string, boolean>({ max: maxCodes });
  return {
    settings,
    facilitator,
    domain,
    inTurn,
    /** What the signature proves by itself. */
    proofOf: createProof(network, domain),
    /** True if the address has code. Cached, but for only a minute if it has none. Throws NodeError. */
    async hasCode(address: `0x${string}`): Promise<boolean> {
      const known = codes.get(address);
      if (known !== undefined) return known;
      const found = await ask((node) => node.hasCode(address));
      // An account may be deployed later.
      codes.set(address, found, found ? {} : { ttl: codelessMs });
      return found;
    },
    /** Returns why the chain would not take the payment now. Throws NodeError. */
    async refusalOf(payment: SignedPayment): Promise<PaymentRefusal | undefined> {
      try {
        await ask((node) => node.call(token, callOf(payment), 'latest'));
        return undefined;
      } catch (reason) {
        if (isRevert(reason)) return refusalOfRevert(reason);
        throw reason;
      }
    },
  };
}

function callOf(payment: SignedPayment): `0x${string}` {
  const { from, to, value, validAfter, validBefore, nonce, signature } = payment;
  const types = ['address', 'address', 'uint256', 'uint256', 'uint256', 'bytes32', 'bytes'] as const;
  const parameters = types.map((type) => ({ type }));
  const values = [from, to, value, validAfter, validBefore, nonce, signature];
  return `${transferWithAuthorization}${encode(parameters, values).slice(2)}`;
}

/** The messages with which Circle's contract reverts, and x402's reasons for them. */
const reverts: readonly [RegExp, reason: End<RefusalReason>, message: string][] = [
  [/invalid signature/i, 'signature', 'The signature is not that of the account.'],
  [/exceeds balance/i, 'insufficient_balance', 'The account does not have the amount.'],
  [/used or canceled/i, 'nonce_already_used', 'The authorization is used or canceled already.'],
  [/blacklisted/i, 'account_blocked', "The token's issuer has blocked this account or the wallet."],
  [/pausable: paused/i, 'token_paused', "The token's issuer has paused all transfers."],
  [/not yet valid/i, 'payload_authorization_valid_after', 'The authorization is not valid yet.'],
  [/authorization is expired/i, 'payload_authorization_valid_before', 'The authorization has expired.'],
];
type End<Reason> = Reason extends `invalid_exact_evm_${infer Rest}` ? Rest : never;

/** True if the contract refused. Any other refusal is the node's own, and another node may answer. */
const isRevert = (reason: unknown): reason is NodeError =>
  reason instanceof NodeError &&
  reason.fault === 'refused' &&
  (/revert/i.test(reason.message) || reverts.some(([form]) => form.test(reason.message)));

function refusalOfRevert(error: NodeError): PaymentRefusal {
  const found = reverts.find(([form]) => form.test(error.message));
  const [, reason, message] =
    found ?? (['', 'transaction_simulation_failed', 'The token would not take this authorization.'] as const);
  return refused(`invalid_exact_evm_${reason}`, message);
}
