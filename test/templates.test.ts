// The templates of examples/grpc for people with a network: what buf would ask of the plugins that it fetches there.

import { execFile } from 'node:child_process';
import { mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterEach, beforeEach, expect, test } from 'vitest';

const run = promisify(execFile);
let folder: string;

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'pi-templates-'));
});

afterEach(() => rm(folder, { recursive: true, force: true }));

const ours = ['json', 'payment_intent', 'payment_intent_service'].map((name) => `payments/v1/${name}.proto`);

interface Listing {
  files: string[];
  goPackages: Record<string, string | undefined>;
}

/** What the first plugin of a template is asked for, by all of its inputs. */
async function askedFor(language: string): Promise<Listing> {
  const text = await readFile(`examples/grpc/buf.gen.${language}.yaml`, 'utf8');
  const [head = '', first = ''] = text.split(/^ {2}- remote: .*$/m, 2);
  const plugin = `  - local: [${process.execPath}, test/support/protoc-gen-listing.ts]\n    strategy: all`;
  const template = join(folder, 'buf.gen.yaml');
  await writeFile(template, head + plugin + first);
  await run('node_modules/.bin/buf', ['generate', '--template', template, '--output', folder]);
  const listings = join(folder, 'gen/listings');
  const all: Listing[] = [];
  for (const name of await readdir(listings))
    all.push(JSON.parse(await readFile(join(listings, name), 'utf8')));
  return {
    files: all.flatMap(({ files }) => files),
    goPackages: Object.assign({}, ...all.map(({ goPackages }) => goPackages)),
  };
}

// Their languages have a package with google/api, which has to be the only one.
test.each(['go', 'java', 'python'])('%s: our contract, and nothing of what it imports', async (language) => {
  expect((await askedFor(language)).files.sort()).toEqual(ours);
});

test('TypeScript: the contract and what it imports, which no package has', async () => {
  const { files } = await askedFor('typescript');
  expect(files).toEqual(
    expect.arrayContaining([...ours, 'google/api/annotations.proto', 'google/rpc/error_details.proto']),
  );
});

test('Go: our package is yours, and google/api stays where its own package has it', async () => {
  const { goPackages } = await askedFor('go');
  expect(goPackages['payments/v1/payment_intent.proto']).toBe(
    'example.com/your/module/gen/payments/v1;paymentsv1',
  );
  expect(goPackages['google/api/annotations.proto']).toMatch(/^google\.golang\.org\/genproto\//);
});
