// The order of the folders in src/: each imports only from itself and from those before it.

import { readdir, readFile } from 'node:fs/promises';
import { dirname, join, normalize } from 'node:path';
import { expect, test } from 'vitest';

const order = [
  ...'contract config requests telemetry scheduling database merchants payment-intents refunds'.split(' '),
  ...'events webhooks settlement authorizations checkout console doors embedded processes'.split(' '),
];

/** The project's files that each file imports, type-only and dynamic imports included. */
async function importsOf(folders: readonly string[]): Promise<Map<string, string[]>> {
  const imports = new Map<string, string[]>();
  for (const folder of folders) {
    for (const name of await readdir(folder, { recursive: true })) {
      if (!name.endsWith('.ts') || name.includes('dist/')) continue;
      const file = join(folder, name);
      const text = await readFile(file, 'utf8');
      const paths = [
        ...text.matchAll(/^(?:import|export|\} from)\b.*?'(\.[^']+\.ts)'|import\('(\.[^']+\.ts)'\)/gm),
      ];
      imports.set(
        file,
        paths.map(([, path, dynamic]) => normalize(join(dirname(file), (path ?? dynamic) as string))),
      );
    }
  }
  return imports;
}

/** Returns a circle of files that import each other, or undefined. */
function circleIn(imports: ReadonlyMap<string, readonly string[]>): string[] | undefined {
  const done = new Set<string>();
  const visit = (file: string, above: readonly string[]): string[] | undefined => {
    const at = above.indexOf(file);
    if (at !== -1) return [...above.slice(at), file];
    if (done.has(file)) return undefined;
    for (const next of imports.get(file) ?? []) {
      const circle = visit(next, [...above, file]);
      if (circle !== undefined) return circle;
    }
    done.add(file);
    return undefined;
  };
  for (const file of imports.keys()) {
    const circle = visit(file, []);
    if (circle !== undefined) return circle;
  }
  return undefined;
}

/** Returns imports from a later folder, and imports of the client from the server. */
function upwardIn(imports: ReadonlyMap<string, readonly string[]>): string[] {
  const rankOf = (file: string) => {
    const [top, folder = ''] = file.split('/');
    if (top !== 'src') return top;
    return folder.endsWith('.ts') ? order.length : order.indexOf(folder);
  };
  return [...imports].flatMap(([file, targets]) =>
    targets
      .filter((target) => {
        const [from, to] = [rankOf(file), rankOf(target)];
        if (from === to) return false;
        if (typeof from === 'number' && typeof to === 'number') return to > from || from === -1 || to === -1;
        return to !== order.indexOf('contract');
      })
      .map((target) => `${file} -> ${target}`),
  );
}

test('no file imports from a later folder, and there are no circular imports', async () => {
  const imports = await importsOf(['src', 'client']);
  expect([...imports.values()].flat().length).toBeGreaterThan(1_000);
  expect(upwardIn(imports)).toEqual([]);
  expect(circleIn(imports)).toBeUndefined();
});

test('src/ itself contains only the entry points', async () => {
  const entries = await readdir('src', { withFileTypes: true });
  expect(entries.filter((entry) => entry.isFile()).map(({ name }) => name)).toEqual(['admin.ts', 'main.ts']);
  expect(
    entries
      .filter((entry) => entry.isDirectory())
      .map(({ name }) => name)
      .sort(),
  ).toEqual([...order].sort());
});
