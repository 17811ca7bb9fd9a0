// The output of the command line: tables for people, JSON for scripts, an error if output is lost. Control characters
// are escaped, because much of the output was written by others.

import Table from 'cli-table3';
import { visible } from '../contract/visible-text.ts';

/** Cells by column. A list is a cell with several lines. */
export type Row = Record<string, string | number | readonly string[] | undefined>;

/** The maximum table width if there is no terminal. */
const defaultWidth = 120;

/**
 * Formats rows as a table without empty columns. If the table is wider than the terminal, each row becomes a block
 * with one line per field.
 */
export function formatTable(rows: readonly Row[], maxWidth = process.stdout.columns || defaultWidth): string {
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
export function formatMinute(moment: string): string {
  return moment.slice(0, 'yyyy-mm-ddThh:mm'.length).replace('T', ' ');
}

/**
 * Ignores a reader that closes the pipe early (`| head -1`): the command continues and further output is dropped.
 * Fails if the output cannot be written for another reason, such as a full disk.
 */
export function ignoreClosedPipe(): void {
  process.stdout.on('error', (error: NodeJS.ErrnoException) => {
    if (error.code === 'EPIPE') return;
    process.exitCode = 1;
    console.error(`admin: the output could not be written (${error.message})`);
  });
}
