// The environment of a test run, and of the programs that its tests start. It only makes them faster.

import { readFileSync, statfsSync } from 'node:fs';
import { dirname, resolve } from 'node:path';

/** A file system in memory, on Linux. */
const memoryFolder = '/dev/shm';
/** More than a run has on disk at any time. A container may have as little as 64 MB there. */
const neededBytes = 4 * 2 ** 30;

/**
 * Sets where temporary files go, unless the caller has chosen a place, and where Node.js keeps compiled code. Tests create
 * hundreds of databases, each with hundreds of files, and start hundreds of processes.
 */
export function prepareTestEnvironment(env: NodeJS.ProcessEnv): void {
  if (env.TMPDIR === undefined && isUsable(memoryFolder)) env.TMPDIR = memoryFolder;
  env.NODE_COMPILE_CACHE ??= resolve('node_modules/.cache/compiled');
}

/** True if the folder is a file system of its own that has enough room and can execute programs. */
function isUsable(folder: string): boolean {
  if (process.platform !== 'linux') return false;
  const mounts = readFileSync('/proc/mounts', 'utf8').split('\n');
  const [, , , options] = mounts.find((mount) => mount.split(' ')[1] === folder)?.split(' ') ?? [];
  if (options === undefined || /\b(?:noexec|ro)\b/.test(options)) return false;
  const { bavail, bsize } = statfsSync(folder);
  return bavail * bsize > neededBytes;
}

/** For a program that a test starts: nothing of the caller's own configuration. */
export function bareEnvironment(): NodeJS.ProcessEnv {
  const { PATH, TMPDIR, NODE_COMPILE_CACHE } = process.env;
  return { PATH, TMPDIR, NODE_COMPILE_CACHE };
}

/** What `npm run` runs, without npm, which takes half a second of the processor. */
export function scriptOf(name: 'start' | 'shop'): string[] {
  const { scripts } = JSON.parse(readFileSync('package.json', 'utf8'));
  return ['sh', '-c', `PATH="${dirname(process.execPath)}:$PATH"; ${scripts[name]}`];
}
