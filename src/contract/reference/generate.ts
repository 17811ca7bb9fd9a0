// Writes the reference page: node src/contract/reference/generate.ts openapi.json FOLDER

import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { stripTypeScriptTypes } from 'node:module';
import { join } from 'node:path';
import { renderPage } from './page.ts';

const [source, folder] = process.argv.slice(2);
if (source === undefined || folder === undefined) throw new Error('usage: generate.ts openapi.json FOLDER');
const read = (path: string) => readFile(new URL(path, import.meta.url), 'utf8');
/** In the order in which a reader needs them. */
const guides = 'quickstart webhooks settlement exceptional-payments refunds client checkout'.split(' ');
const { page, index } = renderPage({
  document: JSON.parse(await readFile(source, 'utf8')),
  guides: await Promise.all(guides.map((name) => read(`guides/${name}.md`))),
  changelog: await read('guides/changelog.md'),
});

await mkdir(folder, { recursive: true });
const write = (name: string, text: string) => writeFile(join(folder, name), text);
await write('page.html', page);
await write('search.json', `[\n${index.map((entry) => JSON.stringify(entry)).join(',\n')}\n]\n`);
for (const name of ['page.css', 'icon.svg']) await write(name, await read(`browser/${name}`));
for (const name of ['page', 'search', 'try-it']) {
  // Stripped types leave spaces behind.
  await write(`${name}.js`, stripTypeScriptTypes(await read(`browser/${name}.ts`)).replace(/[ \t]+$/gm, ''));
}
