import { spawnSync } from 'node:child_process';

/** True where the program is installed and, called like this, ends well. */
export function succeeds(program: string, ...args: string[]): boolean {
  return spawnSync(program, args, { stdio: 'ignore' }).status === 0;
}
