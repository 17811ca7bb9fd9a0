// What buf passes to the plugins of those templates in examples/grpc that need a network.

import { execFile } from 'node:child_process';
import { readdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { beforeEach, expect, onTestFinished, test } from 'vitest';
import { useFolder } from './support/folder.ts';

const run = promisify(execFile);
let folder: string;

beforeEach(async () => {
  folder = await useFolder(onTestFinished);
});

const ours = [
  ...'access checkout checkout_service event event_service json payment payment_intent'.split(' '),
  ...'payment_intent_service refund refund_service transfer transfer_service webhook_endpoint'.split(' '),
  ...'webhook_endpoint_service'.split(' '),
].map((name) => `payments/v1/${name}.proto`);

interface Listing {
  files: string[];
  goPackages: Record<string, string | undefined>;
}

/** Returns the files that the first plugin of a template must generate, for all of its inputs. */
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

// These languages have a package with google/api, which must not be generated a second time.
test.each(['go', 'java', 'python'])('for %s only our contract is generated', async (language) => {
  expect((await askedFor(language)).files.sort()).toEqual(ours);
});

test('for TypeScript our contract is generated with its imports, because no package has them', async () => {
  const { files } = await askedFor('typescript');
  expect(files).toEqual(
    expect.arrayContaining([...ours, 'google/api/annotations.proto', 'google/rpc/error_details.proto']),
  );
});

test('for Go our package gets the module path of the user, and google/api keeps its own', async () => {
  const { goPackages } = await askedFor('go');
  expect(goPackages['payments/v1/payment_intent.proto']).toBe(
    'example.com/your/module/gen/payments/v1;paymentsv1',
  );
  expect(goPackages['google/api/annotations.proto']).toMatch(/^google\.golang\.org\/genproto\//);
});
