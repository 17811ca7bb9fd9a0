import { readFile } from 'node:fs/promises';

/** Returns the first shell block under a heading of docs/operations.md, unchanged. */
export async function documentedCommands(heading: string): Promise<string> {
  const text = await readFile('docs/operations.md', 'utf8');
  const [, section] = text.split(new RegExp(`^#+ ${heading}$`, 'm'));
  const [, commands] = /```sh\n([\s\S]*?)```/.exec(section ?? '') ?? [];
  if (commands === undefined) throw new Error(`docs/operations.md has no commands under "${heading}"`);
  return commands;
}

/**
 * Put this before documented commands: `sudo -u postgres` then runs a program as PostgreSQL's superuser, which the
 * server on that socket trusts.
 */
export function asSuperuser({ folder, port }: { folder: string; port: string }): string {
  return `set -eu; sudo() { shift 2; PGHOST='${folder}' PGPORT='${port}' PGUSER=postgres PSQLRC=/dev/null "$@"; }\n`;
}
