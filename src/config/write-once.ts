import { link, readFile, rm, writeFile } from 'node:fs/promises';

/** What a file holds, or undefined where there is none. */
export async function readIfThere(file: string): Promise<string | undefined> {
  try {
    return await readFile(file, 'utf8');
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error;
    return undefined;
  }
}

/**
 * Writes a file (0600) that is not there yet, whole or not at all, and answers what it holds: `text`, or what
 * another process that had the same idea at the same moment wrote first.
 */
export async function writeOnce(file: string, text: string): Promise<string> {
  const draft = `${file}.new-${process.pid}`;
  await writeFile(draft, text, { mode: 0o600 });
  try {
    await link(draft, file);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
  } finally {
    await rm(draft);
  }
  return readFile(file, 'utf8');
}
