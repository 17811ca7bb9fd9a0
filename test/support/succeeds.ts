import { spawnSync } from 'node:child_process';

/** Returns true if the program is installed and succeeds with these arguments. */
export function succeeds(program: string, ...args: string[]): boolean {
  return spawnSync(program, args, { stdio: 'ignore' }).status === 0;
}
