// Checks the accessibility of a page with axe.

import { readFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import type axe from 'axe-core';
import type { Page } from 'playwright-core';

const source = await readFile(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');

/** Checks all rules or these, on the whole page or within this selector. The page has no frames. */
export async function findProblems(page: Page, rules?: string[], within = 'html'): Promise<unknown[]> {
  // axe is half a megabyte, so a page loads it once.
  if (!(await page.evaluate("'axe' in globalThis"))) await page.evaluate(source);
  // Describing every element that passes takes longer than checking it.
  const options = { resultTypes: ['violations' as const], ...(rules && { runOnly: rules }) };
  const { violations, passes } = await page.evaluate(
    ([within, options]) => (globalThis as unknown as { axe: typeof axe }).axe.run(within, options),
    [within, options] as const,
  );
  if (passes.length < (rules ? 1 : 10)) throw new Error(`axe looked at nothing: ${page.url()}`);
  return violations.map(({ id, nodes }) => [id, nodes.map(({ html }) => html)]);
}
