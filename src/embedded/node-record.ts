// Records which anvil runs on a folder. Anvil survives a killed process, and the next process must find it.

import { execFile } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { link, readFile, rename, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { promisify } from 'node:util';
import { readIfThere, writeOnce } from '../config/write-once.ts';

const run = promisify(execFile);

export interface NodeRecord {
  pid: number;
  port: number;
}

const recordFile = (folder: string) => join(folder, 'anvil.json');

/** Returns the last recorded anvil, or undefined. It may have ended. */
export async function readRecord(folder: string): Promise<NodeRecord | undefined> {
  const text = await readIfThere(recordFile(folder));
  return text === undefined ? undefined : parseRecord(text);
}

/** Records a new anvil. Returns it, or the one that another process recorded first. */
export async function recordNode(folder: string, node: NodeRecord): Promise<NodeRecord> {
  return parseRecord(await writeOnce(recordFile(folder), JSON.stringify(node)));
}

/** Removes the record of this anvil, but not of another one. */
export async function forgetNode(folder: string, { pid }: NodeRecord): Promise<void> {
  const aside = `${recordFile(folder)}.${randomUUID()}`;
  try {
    await rename(recordFile(folder), aside);
    if (parseRecord(await readFile(aside, 'utf8')).pid !== pid) await link(aside, recordFile(folder));
  } catch (error) {
    const { code = '' } = error as NodeJS.ErrnoException;
    if (!['ENOENT', 'EEXIST'].includes(code)) throw error;
  }
  await rm(aside, { force: true });
}

const endTimeoutMs = 2_000;

/** Kills the folder's anvil, if it is this one. Nothing needs to be saved. Resolves once it has ended. */
export async function endNode({ pid }: NodeRecord, folder: string): Promise<void> {
  if (!(await isNodeRunning(pid, folder))) return;
  try {
    process.kill(pid, 'SIGKILL');
  } catch {
    return;
  }
  for (const deadlineMs = Date.now() + endTimeoutMs; Date.now() < deadlineMs; await sleep(10)) {
    if (!(await isNodeRunning(pid, folder))) return;
  }
}

export function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'EPERM';
  }
}

function parseRecord(text: string): NodeRecord {
  try {
    const { pid, port } = JSON.parse(text);
    return { pid: Number(pid), port: Number(port) };
  } catch {
    return { pid: 0, port: 0 };
  }
}

/** True if the process is the folder's anvil: an id may be reused, and a zombie has no command line. */
export async function isNodeRunning(pid: number, folder: string): Promise<boolean> {
  if (pid === 0 || !isAlive(pid)) return false;
  try {
    const command =
      process.platform === 'linux'
        ? (await readFile(`/proc/${pid}/cmdline`, 'utf8')).replaceAll('\0', ' ')
        : (await run('ps', ['-o', 'command=', '-p', String(pid)])).stdout;
    return command.includes(`${folder}/`);
  } catch {
    return false;
  }
}
