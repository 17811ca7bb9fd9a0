// The text of the reference page's code blocks, as a reader would copy it.

import { readFile } from 'node:fs/promises';

export interface PageSample {
  /** The label of its tab. */
  language: string;
  code: string;
}

/** Returns the samples of a reference page in order, or of one operation; by default those of the generated page. */
export async function samplesOnPage(page?: string, operationId?: string): Promise<PageSample[]> {
  const whole = page ?? (await readFile('src/contract/gen/reference/page.html', 'utf8'));
  const begin =
    operationId === undefined ? 0 : whole.indexOf(`<section class="row operation" id="${operationId}"`);
  const html = operationId === undefined ? whole : whole.slice(begin, whole.indexOf('</section>', begin));
  const panels = html.matchAll(/data-language="(\w+)"><pre[^>]*><code>(.*?)<\/code><\/pre>/gs);
  return [...panels].map(([, language = '', code = '']) => ({ language, code: textOf(code) }));
}

/** Returns the text of HTML that only has elements and the entities of escaped text. */
function textOf(html: string): string {
  const entities: Record<string, string> = { lt: '<', gt: '>', quot: '"', '#x27': "'", '#39': "'", amp: '&' };
  return html.replace(/<[^>]*>/g, '').replace(/&(#?\w+);/g, (_, name) => entities[name] ?? `&${name};`);
}
