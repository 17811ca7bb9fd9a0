// Bounds on the size of the code. They are today's figures, rounded up: lower them whenever code is removed.

import { glob, readFile } from 'node:fs/promises';
import { parseSync } from 'oxc-parser';
import { expect, test } from 'vitest';

interface File {
  name: string;
  text: string;
}

interface Place {
  lines: number;
  where: string;
}

const texts: File[] = [];
for await (const name of glob('{src,client,checkout,console,test}/**/*.{ts,tsx}')) {
  if (!/\/(?:gen|dist|node_modules)\//.test(name)) texts.push({ name, text: await readFile(name, 'utf8') });
}
const written = texts.filter(({ name }) => !name.startsWith('test/'));
const tests = texts.filter(({ name }) => name.startsWith('test/'));

const linesOf = (text: string) => text.split('\n').length - 1;
const sum = (all: readonly File[]) => all.reduce((lines, { text }) => lines + linesOf(text), 0);

/** Every function of a file, with its lines. */
function functionsIn({ name, text }: File): Place[] {
  const found: Place[] = [];
  const visit = (node: unknown): void => {
    if (typeof node !== 'object' || node === null) return;
    const { type, start, end } = node as { type?: string; start?: number; end?: number };
    if (type?.includes('Function') && start !== undefined && end !== undefined) {
      const at = linesOf(text.slice(0, start)) + 1;
      found.push({ lines: linesOf(text.slice(start, end)) + 1, where: `${name}:${at}` });
    }
    Object.values(node).forEach(visit);
  };
  visit(parseSync(name, text).program);
  return found;
}

const longest = (places: readonly Place[]) => places.reduce((a, b) => (b.lines > a.lines ? b : a));
const fileOf = ({ name, text }: File): Place => ({ where: name, lines: linesOf(text) });
const names = (all: readonly File[]) =>
  all.flatMap(
    ({ text }) => text.match(/^export (?:async )?(?:function|const|class|interface|type)\b/gm) ?? [],
  ).length;

test.each<[string, number, () => Place]>([
  [
    'hand-written lines of src, client, checkout and console',
    42_694,
    () => ({ lines: sum(written), where: '' }),
  ],
  ['lines of tests', 60_519, () => ({ lines: sum(tests), where: '' })],
  ['lines of the longest file', 450, () => longest(written.map(fileOf))],
  ['lines of the longest function', 100, () => longest(written.flatMap(functionsIn))],
  [
    'exported names in 1,000 lines',
    26.2,
    () => ({ lines: (1_000 * names(written)) / sum(written), where: '' }),
  ],
])('%s: no more than %i', (_, most, measure) => {
  const { lines, where } = measure();
  expect(lines, where).toBeLessThanOrEqual(most);
});
