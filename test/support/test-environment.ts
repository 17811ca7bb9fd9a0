// The environment of a test run, and of the programs that its tests start. It only makes them faster.

import { randomBytes } from 'node:crypto';
import { readFileSync, statfsSync } from 'node:fs';
import { dirname, resolve } from 'node:path';
import type { SocketLocation } from '../../src/config/database-location.ts';

/** A file system in memory, on Linux. */
const memoryFolder = '/dev/shm';
/** More than a run has on disk at any time. A container may have as little as 64 MB there. */
const neededBytes = 4 * 2 ** 30;

/**
 * Sets the folder for temporary files, unless the caller has chosen one, and that for Node.js's compiled
 * code. Tests create hundreds of databases, each with hundreds of files, and start hundreds of processes.
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

/** Returns the environment for a program that a test starts, without the caller's own configuration. */
export function bareEnvironment(): NodeJS.ProcessEnv {
  const { PATH, TMPDIR, NODE_COMPILE_CACHE } = process.env;
  return { PATH, TMPDIR, NODE_COMPILE_CACHE };
}

/** Any free ports. */
export const anyPorts = { HTTP_PORT: '0', GRPC_PORT: '0', METRICS_PORT: '0', CONSOLE_PORT: '0' };

/** A key ring of one random key, in the form of its variable. */
export const newKeyRing = (version = 1) => `${version}:${randomBytes(32).toString('base64')}`;

/** A key ring for each purpose. */
export const newSecrets = () => ({
  API_KEY_PEPPERS: newKeyRing(),
  CLIENT_SECRET_KEYS: newKeyRing(),
  WEBHOOK_SECRET_KEYS: newKeyRing(),
});

/** The `DATABASE_URL` of a database behind a Unix socket. */
export const databaseUrl = ({ socketFolder, user, database }: SocketLocation) =>
  `postgresql://${user}@localhost/${database}?host=${encodeURIComponent(socketFolder)}`;

/** Returns the command that `npm run` runs, because npm itself takes half a second of CPU time. */
export function scriptOf(name: 'start' | 'shop'): string[] {
  const { scripts } = JSON.parse(readFileSync('package.json', 'utf8'));
  return ['sh', '-c', `PATH="${dirname(process.execPath)}:$PATH"; ${scripts[name]}`];
}
