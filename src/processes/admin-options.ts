// The options of the command line, parsed into the values that the program uses.

import { type Command, InvalidArgumentError, Option } from 'commander';
import { parseWalletAddress, type WalletAddress } from '../contract/wallet-address.ts';
import { type ChainName, chainNames, type ModeName, modeNames } from '../contract/words.ts';
import type { Wallets } from '../merchants/administration.ts';
import { AdministrationError, type NamedKind, uuidOf } from '../merchants/operator-ids.ts';
import { program } from './admin-program.ts';

/** The lifetime of the new key, in milliseconds. */
export function expiresInOption(): Option {
  const description = 'such as 90d; without it the new key does not expire';
  return new Option('--expires-in <duration>', description).argParser((text) => {
    const durationMs = parseDuration(text);
    if (durationMs === 0) throw new InvalidArgumentError('The key would be refused from the start.');
    return durationMs;
  });
}

export const modeOption = () =>
  new Option('--mode <mode>', 'test money or real money').choices([...modeNames]).makeOptionMandatory();

export const yesOption = () => new Option('--yes', 'do not ask; without a terminal nothing is asked anyway');

/** The option with the id of a resource, such as `--intent <id>`. */
export function idOption(
  name: string,
  kind: NamedKind,
  description = `id of the ${name}, ${kind}_…`,
): Option {
  return new Option(`--${name} <id>`, description).makeOptionMandatory().argParser((id) => {
    try {
      uuidOf(kind, id);
      return id;
    } catch (error) {
      if (error instanceof AdministrationError) throw new WrongId(error.message);
      throw error;
    }
  });
}

/** Not a Commander error, whose message would repeat the id: it may be a key. */
export class WrongId extends Error {}

/** Has `wallet`, or one option for each chain, such as `walletBase`. */
type WalletOptions = { mode: ModeName; wallet?: WalletAddress };

const ownWallet = (chain: ChainName) =>
  new Option(`--wallet-${chain} <address>`, `payout wallet on ${chain}`);
const walletFlags = chainNames.map((chain) => `--wallet-${chain}`).join(' and ');

export function walletOptions(command: Command): Command {
  const own = chainNames.map((chain) => ownWallet(chain).argParser(parseWallet));
  const forAll = new Option(
    '--wallet <address>',
    `payout wallet on every chain (required, or ${walletFlags})`,
  )
    .argParser(parseWallet)
    .conflicts(own.map((option) => option.attributeName()));
  for (const option of [modeOption(), forAll, ...own]) command.addOption(option);
  return command;
}

/** Returns the given wallets. Ends with a usage error if there are none. */
export function walletsOf(options: WalletOptions): Wallets {
  const given = options as WalletOptions & Record<string, WalletAddress | undefined>;
  const wallets: Wallets = {};
  for (const chain of chainNames) {
    const wallet = given[ownWallet(chain).attributeName()] ?? options.wallet;
    if (wallet !== undefined) wallets[chain] = wallet;
  }
  if (Object.keys(wallets).length > 0) return wallets;
  return program.error(`error: name a payout wallet: --wallet 0x…, or ${walletFlags}`);
}

function parseWallet(text: string): WalletAddress {
  const parsed = parseWalletAddress(text);
  if ('problem' in parsed) throw new InvalidArgumentError(`It ${parsed.problem}.`);
  return parsed.address;
}

const durationUnitsMs: Record<string, number> = { s: 1_000, m: 60_000, h: 3_600_000, d: 86_400_000 };
/** Ten years: anything longer is a typing mistake. */
const maxDurationMs = 3_650 * 86_400_000;

/** Parses a duration into milliseconds. */
export function parseDuration(text: string): number {
  const [, amount, unit = ''] = /^(\d{1,9})([smhd])$/.exec(text) ?? [];
  const durationMs = Number(amount) * (durationUnitsMs[unit] ?? Number.NaN);
  if (!(durationMs <= maxDurationMs)) {
    throw new InvalidArgumentError(
      'It must be a number with s, m, h or d, such as 24h or 90d, of at most 3650d.',
    );
  }
  return durationMs;
}
