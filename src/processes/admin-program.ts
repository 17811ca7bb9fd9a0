// The program of the command line, and what its commands share. They print tables for people, JSON for
// scripts, and an error if output is lost. Control characters are escaped: others wrote much of the output.

import { createInterface } from 'node:readline/promises';
import Table from 'cli-table3';
import { Command, Help, type OptionValueSource, type ParseOptionsResult } from 'commander';
import manifest from '../../package.json' with { type: 'json' };
import { loadConfig, misspeltVariables } from '../config/config.ts';
import type { KeyRing } from '../config/key-ring.ts';
import { StartupError } from '../config/startup-error.ts';
import { visible, visibleLines } from '../contract/visible-text.ts';
import { AdministrationError } from '../merchants/operator-ids.ts';
import type { Database } from './open-database.ts';

/** Cells by column. A list is a cell with several lines. */
export type Row = Record<string, string | number | readonly string[] | undefined>;

/** What a command prints. */
export interface Output {
  json: object;
  /** For the table. By default, the JSON is its only row. */
  rows?: readonly Row[] | undefined;
  /** A remark, printed to standard error. */
  note?: string | undefined;
}

/** Reports an unknown option before a missing required one: a misspelt option causes both. */
class AdminCommand extends Command {
  override createCommand(name?: string): Command {
    return new AdminCommand(name);
  }

  /** Refuses an option that is given twice: only the last value would count. */
  override setOptionValueWithSource(key: string, value: unknown, source: OptionValueSource): this {
    if (source === 'cli' && this.getOptionValueSource(key) === 'cli') {
      const option = this.options.find((one) => one.attributeName() === key);
      return this.error(`error: ${option?.long} is given twice: give it once`);
    }
    return super.setOptionValueWithSource(key, value, source);
  }

  override parseOptions(argv: string[]): ParseOptionsResult {
    const parsed = super.parseOptions(argv);
    const [unknown = ''] = parsed.unknown;
    const isLeaf = this.commands.length === 0;
    const wantsHelp = parsed.unknown.some((option) => option === '--help' || option === '-h');
    if (isLeaf && unknown.startsWith('-') && !wantsHelp) {
      // Commander's own refusal, with the option that was probably meant. Its types omit this method.
      (this as Command as Command & { unknownOption(flag: string): void }).unknownOption(unknown);
    }
    return parsed;
  }
}

export const program: Command = new AdminCommand('admin')
  .description('Merchants, their payout wallets and API keys, webhooks, chains, and the database schema.')
  .version(manifest.version, '-V, --version', 'print the version')
  .option('--json', 'print JSON for scripts instead of a table')
  .configureHelp({
    showGlobalOptions: true,
    optionDescription: (option) =>
      Help.prototype.optionDescription(option) + (option.mandatory ? ' (required)' : ''),
  })
  .exitOverride()
  .configureOutput({ outputError: (text, write) => write(visibleLines(text)) })
  .addHelpText(
    'after',
    () => `${examplesOf(program)}\n\nExit codes: 0 done, 1 could not be done, 2 called wrongly.`,
  );

/** The options in each command's example for `--help`. A command group shows its members' examples. */
const examples = new Map<Command, string>();

/** Adds a command to the program or a group. `usage`, its name and any options it needs, is its example. */
export function command(parent: Command, usage: string): Command {
  const [name = ''] = usage.split(' ', 1);
  return withExample(parent.command(name), usage.slice(name.length + 1));
}

export function withExample(command: Command, options: string): Command {
  examples.set(command, options);
  return command.addHelpText('after', () => examplesOf(command));
}

/** Returns a command's path, such as `key revoke`. */
function pathOf(command: Command): string {
  return `${command.parent === program ? '' : `${command.parent?.name()} `}${command.name()}`;
}

export function group(name: string, description: string): Command {
  const command = program.command(name).description(description);
  return command.addHelpText('after', () => examplesOf(command));
}

function examplesOf(command: Command): string {
  const linesOf = (one: Command): string[] => {
    const options = examples.get(one);
    return options === undefined ? one.commands.flatMap(linesOf) : [`${pathOf(one)} ${options}`.trimEnd()];
  };
  const lines = linesOf(command).map((line) => `  $ npm run -s admin -- ${line}`);
  return ['', lines.length === 1 ? 'Example:' : 'Examples:', ...lines].join('\n');
}

/** Asks for confirmation at a terminal, unless with `--yes`. Throws if refused. Does not ask scripts. */
export async function confirm({ yes }: { yes?: boolean }, question: string): Promise<void> {
  if (yes === true || !process.stdin.isTTY || !process.stderr.isTTY) return;
  const terminal = createInterface({ input: process.stdin, output: process.stderr });
  const answer = await terminal
    .question(`${visibleLines(question)} [y/N] `)
    .catch((error) => {
      // Ctrl-C or Ctrl-D.
      if (error.code !== 'ABORT_ERR') throw error;
      console.error();
      return '';
    })
    .finally(() => terminal.close());
  if (!/^y(?:es)?$/i.test(answer.trim())) throw new AdministrationError('nothing was done');
}

/** The path of the running command. */
let running = '';
program.hook('preAction', (_, command) => {
  running = pathOf(command);
});

/** Runs a command that changes something, with an audit entry. `use` may return the id of what it makes. */
export function changing(use: (database: Database) => Promise<unknown>): Promise<void> {
  return withDatabase(async (database) => {
    const { createAudit, entryOfCommand } = await import('../console/audit.ts');
    const audit = createAudit(database.orm.em, () => console.error('admin: the audit log lacks the outcome'));
    await audit.run(entryOfCommand(running, process.argv.slice(2)), () => use(database));
  });
}

export async function withDatabase(use: (database: Database) => Promise<unknown>, allowsPending = false) {
  const { openDatabase } = await import('./open-database.ts');
  for (const { problem } of misspeltVariables(process.env)) {
    console.error(`admin: note: ${visible(problem)}`);
  }
  // One connection is enough here, and leaves the others to the server.
  const database = await openDatabase({ ...loadConfig(process.env, []), databasePool: 1 });
  try {
    if (database.pending.length > 0 && !allowsPending) {
      throw new StartupError(
        'the database schema is older than this program: run "npm run -s admin -- migrate" first',
      );
    }
    await use(database);
  } finally {
    await database.close();
  }
}

/** Returns the keys for API keys and console links. Throws StartupError if the servers have others. */
export async function peppersOf(database: Database): Promise<KeyRing> {
  const { assertKeys } = await import('./key-checks.ts');
  await assertKeys(database, ['API_KEY_PEPPERS']);
  return database.keyRing('API_KEY_PEPPERS');
}

export function print({ json, rows = [json as Row], note }: Output, whenEmpty = 'Nothing.'): void {
  if (note !== undefined) console.error(`admin: note: ${note}`);
  if (program.opts().json) console.log(visibleLines(JSON.stringify(json, null, 2)));
  else console.log(rows.length === 0 ? whenEmpty : formatTable(rows));
}

/** The maximum table width if there is no terminal. */
const defaultWidth = 120;

/** Formats a table without empty columns. If it is too wide, each row is a block with one line per field. */
function formatTable(rows: readonly Row[]): string {
  const maxWidth = process.stdout.columns || defaultWidth;
  const [first = {}] = rows;
  const columns = Object.keys(first).filter((column) => rows.some((row) => row[column] !== undefined));
  const textOf = (row: Row, column: string) => {
    const cell = row[column] ?? '';
    return typeof cell === 'object' ? cell.map(visible).join('\n') : visible(String(cell));
  };
  const style = { head: [], border: [] };
  const table = new Table({ head: columns, style });
  for (const row of rows) table.push(columns.map((column) => textOf(row, column)));
  const text = table.toString();
  if (text.indexOf('\n') <= maxWidth) return text;
  return rows
    .map((row) => {
      const block = new Table({ style });
      for (const column of columns)
        if (row[column] !== undefined) block.push({ [column]: textOf(row, column) });
      return block.toString();
    })
    .join('\n');
}

/** Formats a time in UTC to the minute: `2026-11-22 09:30`. */
export function formatMinute(moment: Date): string {
  return moment.toISOString().slice(0, 'yyyy-mm-ddThh:mm'.length).replace('T', ' ');
}

/** Returns the action of a command that runs a task, `within` its database, and prints what it returns. */
export function shows<Options>(
  load: () => Promise<(database: Database, options: Options) => Promise<Output>>,
  whenEmpty?: string,
  within: typeof changing = withDatabase,
): (options: Options) => Promise<void> {
  return (options) => within(async (database) => print(await (await load())(database, options), whenEmpty));
}

/** The fields as scripts read them: `keyId` is `key_id`. */
export function inSnakeCase(fields: object): object {
  const nameOf = (name: string) => name.replaceAll(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
  return Object.fromEntries(Object.entries(fields).map(([name, value]) => [nameOf(name), value]));
}
