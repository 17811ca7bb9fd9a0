import { execFileSync } from 'node:child_process';

/** Whom to run a database's programs as where we are root, which they refuse to be; undefined elsewhere. */
export function databaseAccount(): { uid: number; gid: number } | undefined {
  if (process.getuid?.() !== 0) return undefined;
  const id = (what: string) => Number(execFileSync('id', [what, 'postgres'], { encoding: 'utf8' }));
  return { uid: id('-u'), gid: id('-g') };
}
