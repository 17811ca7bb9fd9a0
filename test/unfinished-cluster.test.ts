// A start that is killed while it creates the embedded database leaves 39 MB, which the next start removes.

import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { chmod, mkdir, readdir, utimes, watch } from 'node:fs/promises';
import { join } from 'node:path';
import { beforeEach, expect, onTestFinished, test } from 'vitest';
import { startEmbeddedPostgres } from '../src/embedded/postgres.ts';
import { useFolder } from './support/folder.ts';
import { bareEnvironment } from './support/test-environment.ts';

let dataDir: string;

beforeEach(async () => {
  dataDir = await useFolder(onTestFinished);
  // For root, PostgreSQL runs as another user, which needs access.
  await chmod(dataDir, 0o711);
});

const unfinished = async () =>
  (await readdir(dataDir)).filter((name) => name.startsWith('postgres.new-')).sort();

test('a start removes what a killed start has left behind', async () => {
  const stopWatching = new AbortController();
  const changes = watch(dataDir, { signal: stopWatching.signal });
  const killed = spawn(process.execPath, ['src/main.ts'], {
    env: { ...bareEnvironment(), DATA_DIR: dataDir },
    stdio: 'ignore',
    detached: true,
  });
  for await (const { filename } of changes) if (filename?.startsWith('postgres.new-')) break;
  stopWatching.abort();
  const exited = once(killed, 'exit');
  process.kill(-(killed.pid as number), 'SIGKILL');
  await exited;
  expect(await unfinished()).toEqual([expect.stringContaining(`postgres.new-${killed.pid}`)]);

  const postgres = await startEmbeddedPostgres(dataDir);
  expect(await unfinished()).toEqual([]);
  await postgres.stop();
});

test('the folder of a running process is kept, but not every folder with a running pid', async () => {
  const dead = spawn('true');
  await once(dead, 'exit');
  const living = `postgres.new-${process.ppid}-abcdef`;
  const names = {
    living,
    dead: `postgres.new-${dead.pid}-abcdef`,
    // The names used by an earlier version.
    deadOfEarlierVersion: `postgres.new-${dead.pid}`,
    // In a container, a process often has the same pid as its predecessor.
    formerUs: `postgres.new-${process.pid}-abcdef`,
    elevenMinutesOld: `postgres.new-${process.ppid}-ghijkl`,
    somethingElse: 'postgres.new-backup',
  };
  for (const name of Object.values(names)) await mkdir(join(dataDir, name, 'base'), { recursive: true });
  const before = Date.now() / 1000 - 11 * 60;
  await utimes(join(dataDir, names.elevenMinutesOld), before, before);
  const postgres = await startEmbeddedPostgres(dataDir);
  expect(await unfinished()).toEqual([living, names.somethingElse].sort());
  await postgres.stop();
});
