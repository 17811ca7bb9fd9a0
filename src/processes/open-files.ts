import { readFile } from 'node:fs/promises';

/**
 * The maximum of open files and sockets for this process, or undefined if the system does not report it. Node has
 * already raised it as far as allowed.
 */
export async function openFilesLimit(): Promise<number | undefined> {
  const limits = await readFile('/proc/self/limits', 'utf8').catch(() => '');
  const [, limit] = /^Max open files +(\d+)/m.exec(limits) ?? [];
  return limit === undefined ? undefined : Number(limit);
}
