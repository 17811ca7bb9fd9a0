// Writes the reference page of an OpenAPI document: node src/contract/reference/generate.ts openapi.json FOLDER

import { copyFile, mkdir, readFile, writeFile } from 'node:fs/promises';
import { stripTypeScriptTypes } from 'node:module';
import { join } from 'node:path';
import type { OpenApiDocument } from './document.ts';
import { renderPage } from './page.ts';

const [source, folder] = process.argv.slice(2);
if (source === undefined || folder === undefined) throw new Error('usage: generate.ts openapi.json FOLDER');
const document: OpenApiDocument = JSON.parse(await readFile(source, 'utf8'));
const browser = (file: string) => new URL(`browser/${file}`, import.meta.url);

await mkdir(folder, { recursive: true });
await writeFile(join(folder, 'page.html'), renderPage(document));
for (const name of ['page', 'try-it']) {
  const script = stripTypeScriptTypes(await readFile(browser(`${name}.ts`), 'utf8'));
  // Stripped types leave spaces behind.
  await writeFile(join(folder, `${name}.js`), script.replace(/[ \t]+$/gm, ''));
}
for (const file of ['page.css', 'icon.svg']) await copyFile(browser(file), join(folder, file));
