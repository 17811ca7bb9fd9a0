import { randomUUID } from 'node:crypto';
import { link, readFile, rm, writeFile } from 'node:fs/promises';

/** For `catch`: returns undefined if the file does not exist; throws all other errors. */
export function ifMissing(error: NodeJS.ErrnoException): undefined {
  if (error.code !== 'ENOENT') throw error;
}

/** Returns the contents of a file, or undefined if it does not exist. */
export const readIfThere = (file: string) => readFile(file, 'utf8').catch(ifMissing);

/** Creates a file (0600), whole or not at all, unless it exists. Returns what the file then holds. */
export async function writeOnce(file: string, text: string): Promise<string> {
  const draft = `${file}.new-${randomUUID()}`;
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
