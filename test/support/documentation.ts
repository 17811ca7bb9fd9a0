import { readFile } from 'node:fs/promises';

/** The first shell block under a heading of docs/operations.md, as it stands. */
export async function documentedCommands(heading: string): Promise<string> {
  const text = await readFile('docs/operations.md', 'utf8');
  const [, section] = text.split(new RegExp(`^#+ ${heading}$`, 'm'));
  const [, commands] = /```sh\n([\s\S]*?)```/.exec(section ?? '') ?? [];
  if (commands === undefined) throw new Error(`docs/operations.md has no commands under "${heading}"`);
  return commands;
}

/**
 * For the front of documented commands: `sudo -u postgres` runs a program as PostgreSQL's superuser, whom the server on
 * that socket trusts.
 */
export function asSuperuser({ folder, port }: { folder: string; port: string }): string {
  return `set -eu; sudo() { shift 2; PGHOST='${folder}' PGPORT='${port}' PGUSER=postgres PSQLRC=/dev/null "$@"; }\n`;
}
