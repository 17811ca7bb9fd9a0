// The release before events and webhooks: its migrations and its code.

import { execFile } from 'node:child_process';
import { mkdir, symlink } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import { promisify } from 'node:util';
import { ourMigrations } from '../../../src/database/orm.ts';
import { succeeds } from '../../support/succeeds.ts';

const run = promisify(execFile);

const release = '392c8a0';
const lastMigration = '2026-11-22-narrow-payment-intents';

/** Its migrations: the first ones of this version. */
export const releasedMigrations = ourMigrations.slice(
  0,
  ourMigrations.findIndex(({ name }) => name === lastMigration) + 1,
);

/** False in a clone without its history, such as a shallow one. */
export const hasReleasedCode = succeeds('git', 'cat-file', '-e', `${release}^{commit}`);

/** Puts its code into a folder, with the packages of this version, which include all that it needs. */
export async function unpackRelease(folder: string): Promise<void> {
  await mkdir(folder);
  const unpack = 'git archive "$0" package.json src | tar --extract --directory "$1"';
  await run('sh', ['-ec', unpack, release, folder]);
  await symlink(resolve('node_modules'), join(folder, 'node_modules'));
}
