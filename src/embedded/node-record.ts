// Which anvil runs on a folder. Anvil survives a killed process, and the next process must find it.

import { execFile } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { link, readFile, rename, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { promisify } from 'node:util';
import { readIfThere, writeOnce } from './write-once.ts';

const run = promisify(execFile);

export interface NodeRecord {
  pid: number;
  port: number;
}

const endTimeoutMs = 2_000;

/** Finds, records and ends the anvil of a folder. */
export function anvilOn(folder: string) {
  const file = join(folder, 'anvil.json');

  /** True if the process is the folder's anvil: an id may be reused, and a zombie has no command line. */
  async function isRunning({ pid }: Pick<NodeRecord, 'pid'>): Promise<boolean> {
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

  return {
    isRunning,
    /** Returns the last recorded one, or undefined. It may have ended. */
    async recorded(): Promise<NodeRecord | undefined> {
      const text = await readIfThere(file);
      return text === undefined ? undefined : parseRecord(text);
    },
    /** Records a new one. Returns it, or the one that another process recorded first. */
    async record(node: NodeRecord): Promise<NodeRecord> {
      return parseRecord(await writeOnce(file, JSON.stringify(node)));
    },
    /** Removes the record of this one, but not of another. */
    async forget({ pid }: NodeRecord): Promise<void> {
      const aside = `${file}.${randomUUID()}`;
      try {
        await rename(file, aside);
        if (parseRecord(await readFile(aside, 'utf8')).pid !== pid) await link(aside, file);
      } catch (error) {
        const { code = '' } = error as NodeJS.ErrnoException;
        if (!['ENOENT', 'EEXIST'].includes(code)) throw error;
      }
      await rm(aside, { force: true });
    },
    /** Kills it, if it is the folder's anvil. Nothing needs to be saved. Resolves once it has ended. */
    async end(node: NodeRecord): Promise<void> {
      if (!(await isRunning(node))) return;
      try {
        process.kill(node.pid, 'SIGKILL');
      } catch {
        return;
      }
      for (const deadlineMs = Date.now() + endTimeoutMs; Date.now() < deadlineMs; await sleep(10)) {
        if (!(await isRunning(node))) return;
      }
    },
  };
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
