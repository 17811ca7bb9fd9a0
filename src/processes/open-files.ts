import { readFile } from 'node:fs/promises';

/**
 * How many files and sockets this process may have open at once, or undefined where the system does not say. Node has
 * raised it as far as it may.
 */
export async function openFilesLimit(): Promise<number | undefined> {
  const limits = await readFile('/proc/self/limits', 'utf8').catch(() => '');
  const [, limit] = /^Max open files +(\d+)/m.exec(limits) ?? [];
  return limit === undefined ? undefined : Number(limit);
}
