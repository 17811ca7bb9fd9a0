// Chains with payers: real transfers of Circle's USDC to the wallets of intents.

import { setTimeout as sleep } from 'node:timers/promises';
import { type Address, type Hex, stringToHex } from 'viem';
import { formatIdentifier } from '../src/database/identifiers.ts';
import { type ChainOptions, type Payment, startChain, type TestChain } from '../test/support/chain.ts';
import type { PreparedDatabase } from './setting.ts';

/** What every intent of the benchmarks asks for. */
const amountUnits = 12_500_000n;
/** A billion USDC. */
const moneyOfPayer = 10n ** 15n;

/** Starts a chain whose accounts have money. The caller stops it. */
export async function startPayingChain(options: ChainOptions = {}): Promise<TestChain> {
  const chain = await startChain(options);
  for (const { address } of chain.accounts) await chain.mint(address, moneyOfPayer);
  await chain.mine();
  return chain;
}

/**
 * A payment for each open intent, in random order. Either all name their intent, as the checkout does, or
 * only those to a wallet that several intents expect.
 */
export async function paymentsFor(
  { orm, merchantId }: PreparedDatabase,
  naming: 'all' | 'shared wallets' = 'all',
): Promise<Payment[]> {
  const rows = await orm.em.execute<{ id: string; wallet: string; is_shared: boolean }[]>(
    `select id, '0x' || encode(expected_wallet, 'hex') as wallet, count(*) over (partition by expected_wallet) > 1 as is_shared
       from payment_intents where merchant_id = ? and status = 'requires_payment' order by random()`,
    [merchantId],
  );
  return rows.map(({ id, wallet, is_shared }) => ({
    to: wallet as Address,
    amountUnits,
    suffix: is_shared || naming === 'all' ? stringToHex(formatIdentifier('pi', id)) : undefined,
  }));
}

/** Payments to wallets that no merchant has. */
export function paymentsOfOthers(count: number): Payment[] {
  const walletAt = (i: number): Address => `0x9${i.toString(16).padStart(39, '0')}`;
  return Array.from({ length: count }, (_, i) => ({ to: walletAt(i), amountUnits }));
}

/** Sends payments from several accounts. They wait for the next block. */
export async function pay(chain: TestChain, payments: readonly Payment[]): Promise<Hex[]> {
  const people = chain.accounts;
  const hashes = await Promise.all(
    people.map(({ address }, person) =>
      chain.sendMany(
        address,
        payments.filter((_, i) => i % people.length === person).map(chain.transferCall),
      ),
    ),
  );
  return hashes.flat();
}

/** Mines a block each second, with the payments of `next`. Returns when each was mined, in ms since 1970. */
export async function payEachSecond(
  chain: TestChain,
  blocks: number,
  next: () => readonly Payment[],
): Promise<number[]> {
  const minedAtMs: number[] = [];
  const beganAtMs = performance.now();
  for (let block = 1; block <= blocks; block++) {
    const waiting = next();
    if (waiting.length > 0) await pay(chain, waiting);
    await sleep(Math.max(0, beganAtMs + block * 1_000 - performance.now()));
    await chain.mine();
    minedAtMs.push(Date.now());
  }
  return minedAtMs;
}
