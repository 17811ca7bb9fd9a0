// What a reader of the reference page copies from it: the text of its code blocks.

import { readFile } from 'node:fs/promises';

export interface PageSample {
  /** As its tab says. */
  language: string;
  code: string;
}

/** The samples of a reference page, in its order; of the one that is generated, if no page is given. */
export async function samplesOnPage(page?: string): Promise<PageSample[]> {
  const html = page ?? (await readFile('src/contract/gen/reference/page.html', 'utf8'));
  const panels = html.matchAll(/data-language="(\w+)"><pre[^>]*><code>(.*?)<\/code><\/pre>/gs);
  return [...panels].map(([, language = '', code = '']) => ({ language, code: textOf(code) }));
}

/** The text of HTML that has no more than elements and the entities of escaped text. */
function textOf(html: string): string {
  const entities: Record<string, string> = { lt: '<', gt: '>', quot: '"', '#x27': "'", '#39': "'", amp: '&' };
  return html.replace(/<[^>]*>/g, '').replace(/&(#?\w+);/g, (_, name) => entities[name] ?? `&${name};`);
}
