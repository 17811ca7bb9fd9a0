// Types that openapi-typescript generates from our OpenAPI document accept the documented bodies, and current
// and future answers.

import { execFile } from 'node:child_process';
import { mkdir, readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import openapi from '../../src/contract/gen/openapi.json' with { type: 'json' };

const run = promisify(execFile);
/** Inside the repository, so that the compiler finds @types/node. */
const folder = 'node_modules/.cache/openapi-types';

const preamble = `import type { components, paths } from './openapi.ts';
type Body = NonNullable<paths['/v1/payment_intents']['post']['requestBody']>['content']['application/json'];
type Intent = paths['/v1/payment_intents']['post']['responses'][201]['content']['application/json'];
type Failure = components['schemas']['Error'];
`;

beforeAll(async () => {
  await mkdir(folder, { recursive: true });
  await run(process.execPath, [
    ...[
      'test/interop/node_modules/openapi-typescript/bin/cli.js',
      'src/contract/gen/openapi.json',
      '--output',
      join(folder, 'openapi.ts'),
    ],
  ]);
});

afterAll(() => rm(folder, { recursive: true, force: true }));

/** Returns the compiler's output for a file; empty if there is none. */
async function complaintsAbout(name: string, code: string): Promise<string> {
  const file = join(folder, `${name}.mts`);
  await writeFile(file, code);
  const options = ['--strict', '--noEmit', '--target', 'es2024', '--module', 'nodenext', '--types', 'node'];
  const args = [...options, '--skipLibCheck', '--allowImportingTsExtensions', '--ignoreConfig', file];
  return run('node_modules/.bin/tsc', args).then(
    () => '',
    ({ stdout }) => String(stdout),
  );
}

describe('request bodies compile', () => {
  test("the README's", async () => {
    const readme = await readFile('README.md', 'utf8');
    const bodies = [...readme.matchAll(/-d '(\{"amount_units":\d.*?\})'/g)].map(([, body]) => body);
    expect(bodies.length).toBeGreaterThan(0);
    const code = bodies.map((body, i) => `export const body${i}: Body = ${body};\n`).join('');
    expect(await complaintsAbout('readme', preamble + code)).toBe('');
  });

  test("the reference's", async () => {
    const { example } = openapi.paths['/v1/payment_intents'].post.requestBody.content['application/json'];
    const code = `export const body: Body = ${JSON.stringify(example)};\n`;
    expect(await complaintsAbout('reference', preamble + code)).toBe('');
  });

  test('with required fields only, with any metadata, and with null for omitted fields', async () => {
    const code = `export const bodies: Body[] = [
  { amount_units: 1 },
  { amount_units: 1, metadata: { order_id: 'a', lines: [{ sku: 1 }], paid: null } },
  { amount_units: 1, chain: null, lane: null, token: null, metadata: null, expires_in_minutes: null },
];\n`;
    expect(await complaintsAbout('required', preamble + code)).toBe('');
  });

  test.each([
    ['no amount', '{}'],
    ['a quoted amount', `{ amount_units: '1' }`],
    ['a misspelt field', '{ amount_units: 1, walletAddress: "0x" }'],
    ['another chain', '{ amount_units: 1, chain: "solana" }'],
  ])('do not compile with %s', async (_, body) => {
    const complaints = await complaintsAbout('refused', `${preamble}export const body: Body = ${body};\n`);
    expect(complaints).toMatch(/error TS2\d+/);
  });
});

test('an answer accepts future values, and its metadata is any JSON', async () => {
  const code = `declare const intent: Intent;
export const status: Intent['status'] = 'succeeded';
export const chainId: Intent['chain_id'] = 1;
export const chain: Intent['chain'] = 'ethereum';
export const code: Failure['error']['code'] = 'wallet_blocked';
export const order = intent.metadata.order_id as string;
`;
  expect(await complaintsAbout('later', preamble + code)).toBe('');
});
