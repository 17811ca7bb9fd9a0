import { createContext } from 'preact';
import { useContext } from 'preact/hooks';
import { networkFor } from '../../src/contract/chains.ts';
import type { Merchant } from '../../src/contract/gen/console/v1/console_service_pb.ts';
import type { Chain as ChainNumber } from '../../src/contract/gen/payments/v1/payment_intent_pb.ts';
import { chainWords, type Mode } from '../../src/contract/gen/words.ts';
import { nameOf } from '../../src/contract/words.ts';

/** Whom is looked at, and what the session may do there. */
interface Scope {
  isReadOnly: boolean;
  /** Sees every merchant, and has no wallet of any. */
  isOperator: boolean;
  merchants: readonly Merchant[];
  merchant: { id: string; name: string; mode: Mode };
}

export const ScopeContext = createContext<Scope | undefined>(undefined);

export function useScope(): Scope {
  const scope = useContext(ScopeContext);
  if (scope === undefined) throw new Error('a view needs a scope');
  return scope;
}

/** The EIP-155 id of the chain that has this number in that mode. */
export function chainIdIn(mode: Mode, chain: ChainNumber): bigint {
  const name = nameOf(chainWords, chain);
  return name === undefined ? 0n : BigInt(networkFor(mode, name).chainId);
}
