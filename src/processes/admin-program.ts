import type { Command } from 'commander';
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
  print(output: Output, whenEmpty?: string): void;
  confirm(question: string): Promise<void>;
}
