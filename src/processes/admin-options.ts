// The options of the command line, parsed into the values that the program uses.

import { InvalidArgumentError, Option } from 'commander';
import { visible } from '../contract/visible-text.ts';
import { modeNames } from '../contract/words.ts';
import { AdministrationError, type NamedKind, uuidOf } from '../merchants/operator-ids.ts';
import { program } from './admin-program.ts';

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
      if (!(error instanceof AdministrationError)) throw error;
      // Not as an invalid argument, whose message would repeat the id: it may be a key.
      return program.error(`error: ${visible(error.message)}`);
    }
  });
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
