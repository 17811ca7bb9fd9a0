// Which anvil runs on a folder: it outlives a process that was killed, and the next one must find it.

import { execFile } from 'node:child_process';
import { readFile, rm } from 'node:fs/promises';
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

/** Returns the anvil that runs on the folder, or undefined. Whether it still answers is another question. */
export async function findNode(folder: string): Promise<NodeRecord | undefined> {
  const text = await readIfThere(recordFile(folder));
  if (text === undefined) return undefined;
  const { pid, port } = parseRecord(text);
  return pid > 0 && port > 0 && (await isNodeRunning(pid, folder)) ? { pid, port } : undefined;
}

/** Records a new anvil. Returns it, or the one that another process has started meanwhile. */
export async function recordNode(folder: string, node: NodeRecord): Promise<NodeRecord> {
  return parseRecord(await writeOnce(recordFile(folder), JSON.stringify(node)));
}

export async function forgetNode(folder: string): Promise<void> {
  await rm(recordFile(folder), { force: true });
}

const endTimeoutMs = 2_000;

/** Kills the folder's anvil, which has nothing to save. Resolves once it is gone. */
export async function endNode({ pid }: NodeRecord, folder: string): Promise<void> {
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

/**
 * True if the process is the folder's anvil. Its number may be in use again, and one that has ended is in the list,
 * without a command line, until its parent collects it.
 */
export async function isNodeRunning(pid: number, folder: string): Promise<boolean> {
  if (!isAlive(pid)) return false;
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
