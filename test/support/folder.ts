import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll } from 'vitest';

/** Makes a folder, and removes it after the tests of the file, or of whatever `after` waits for. */
export async function useFolder(after: (remove: () => Promise<void>) => void = afterAll): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), 'pi-test-'));
  after(() => rm(folder, { recursive: true, force: true }));
  return folder;
}
