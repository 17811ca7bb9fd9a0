import { Command, type ParseOptionsResult } from 'commander';
import type { Row } from './admin-output.ts';
import type { Database } from './open-database.ts';

/** What a command prints. */
export interface Output {
  json: object;
  rows: Row[];
  /** A remark, printed to standard error. */
  note?: string | undefined;
}

/** What the commands need from the program. */
export interface AdminProgram {
  program: Command;
  group(name: string, description: string): Command;
  withExample(command: Command, line: string): Command;
  withDatabase(use: (database: Database) => Promise<void>): Promise<void>;
  /** The same for a command that changes something, with an entry in the audit log. `use` may return the id of what it makes. */
  changing(use: (database: Database) => Promise<unknown>): Promise<void>;
  print(output: Output, whenEmpty?: string): void;
  confirm(question: string): Promise<void>;
}

/** Names an unknown option before a required one that is missing: a misspelt option is both. */
export class AdminCommand extends Command {
  override createCommand(name?: string): Command {
    return new AdminCommand(name);
  }

  override parseOptions(argv: string[]): ParseOptionsResult {
    const parsed = super.parseOptions(argv);
    const [unknown = ''] = parsed.unknown;
    const isLeaf = this.commands.length === 0;
    const wantsHelp = parsed.unknown.some((option) => option === '--help' || option === '-h');
    if (isLeaf && unknown.startsWith('-') && !wantsHelp) refuseUnknownOption(this, unknown);
    return parsed;
  }
}

/** Commander's own refusal, with what was probably meant. Its types do not have it. */
function refuseUnknownOption(command: Command, option: string): void {
  (command as Command & { unknownOption(flag: string): void }).unknownOption(option);
}
