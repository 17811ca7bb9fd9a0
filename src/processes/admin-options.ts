// The options of the command line, parsed into the values that the program uses.

import { type Command, InvalidArgumentError, Option } from 'commander';
import { type ChainName, chainNames, type ModeName, modeNames } from '../contract/chains.ts';
import { parseWalletAddress, type WalletAddress } from '../contract/wallet-address.ts';
import type { Wallets } from '../merchants/administration.ts';
import { AdministrationError } from '../merchants/administration-error.ts';
import { keyUuidOf, merchantUuidOf } from '../merchants/operator-ids.ts';

/** The lifetime of the new key, in milliseconds. */
export function expiresInOption(): Option {
  return new Option(
    '--expires-in <duration>',
    'such as 90d; without it the new key does not expire',
  ).argParser((text) => {
    const durationMs = parseDuration(text);
    if (durationMs === 0) throw new InvalidArgumentError('The key would be refused from the start.');
    return durationMs;
  });
}

/** How long a replaced key stays valid, in milliseconds; 0 ends it at once. */
export function overlapOption(description = 'how long the old key works on, such as 24h'): Option {
  return new Option('--overlap <duration>', description).makeOptionMandatory().argParser(parseDuration);
}

export function merchantOption(): Option {
  return idOption('--merchant <id>', 'id of the merchant, mer_…', merchantUuidOf);
}

export function keyOption(): Option {
  return idOption('--key <id>', 'id of the key, key_…', keyUuidOf);
}

export function modeOption(): Option {
  return new Option('--mode <mode>', 'test money or real money')
    .choices([...modeNames])
    .makeOptionMandatory();
}

export function yesOption(): Option {
  return new Option('--yes', 'do not ask; without a terminal nothing is asked anyway');
}

export function idOption(flags: string, description: string, uuidOf: (id: string) => string): Option {
  return new Option(flags, description).makeOptionMandatory().argParser((id) => {
    try {
      uuidOf(id);
      return id;
    } catch (error) {
      if (error instanceof AdministrationError) throw new WrongId(error.message);
      throw error;
    }
  });
}

/** Not a Commander error, whose message would repeat the text: it may be a key. */
export class WrongId extends Error {}

export interface WalletOptions {
  mode: ModeName;
  wallet?: WalletAddress;
  walletBase?: WalletAddress;
  walletPolygon?: WalletAddress;
}

export function walletOptions(command: Command): Command {
  return command
    .addOption(modeOption())
    .addOption(
      new Option(
        '--wallet <address>',
        'payout wallet on every chain (required, or --wallet-base and --wallet-polygon)',
      )
        .argParser(parseWallet)
        .conflicts(['walletBase', 'walletPolygon']),
    )
    .addOption(new Option('--wallet-base <address>', 'payout wallet on Base').argParser(parseWallet))
    .addOption(new Option('--wallet-polygon <address>', 'payout wallet on Polygon').argParser(parseWallet));
}

/** The given wallets; empty if there is no wallet option. */
export function walletsOf({ wallet, walletBase, walletPolygon }: WalletOptions): Wallets {
  const wallets: Wallets = {};
  const byChain: Record<ChainName, WalletAddress | undefined> = {
    base: walletBase ?? wallet,
    polygon: walletPolygon ?? wallet,
  };
  for (const chain of chainNames) if (byChain[chain] !== undefined) wallets[chain] = byChain[chain];
  return wallets;
}

function parseWallet(text: string): WalletAddress {
  const parsed = parseWalletAddress(text);
  if ('problem' in parsed) throw new InvalidArgumentError(`It ${parsed.problem}.`);
  return parsed.address;
}

const durationUnitsMs: Record<string, number> = { s: 1_000, m: 60_000, h: 3_600_000, d: 86_400_000 };
/** Ten years: anything longer is a typing mistake. */
const maxDurationMs = 3_650 * 86_400_000;

function parseDuration(text: string): number {
  const [, amount, unit = ''] = /^(\d{1,9})([smhd])$/.exec(text) ?? [];
  const durationMs = Number(amount) * (durationUnitsMs[unit] ?? Number.NaN);
  if (!(durationMs <= maxDurationMs)) {
    throw new InvalidArgumentError(
      'It must be a number with s, m, h or d, such as 24h or 90d, of at most 3650d.',
    );
  }
  return durationMs;
}
