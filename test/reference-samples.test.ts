// Runs the samples of the reference page unchanged: those of this service's page, and those of a page for a document
// with features that this service does not use yet.

import { execFile } from 'node:child_process';
import { glob, mkdir, readFile, symlink, writeFile } from 'node:fs/promises';
import http from 'node:http';
import type { AddressInfo } from 'node:net';
import { homedir } from 'node:os';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { OpenApiDocument } from '../src/contract/reference/document.ts';
import { renderPage } from '../src/contract/reference/page.ts';
import { useFolder } from './support/folder.ts';
import { succeeds } from './support/succeeds.ts';
import { useService } from './support/use-service.ts';

const run = promisify(execFile);

/** The command that runs a file in each language. */
const runners: Record<string, { file: string; command: string[]; probe: string[] }> = {
  curl: { file: 'sample.sh', command: ['sh'], probe: ['curl', '--version'] },
  TypeScript: { file: 'sample.ts', command: [process.execPath], probe: [process.execPath, '--version'] },
  Python: {
    file: 'sample.py',
    command: ['/usr/bin/python3', '-I'],
    probe: ['/usr/bin/python3', '--version'],
  },
  Go: { file: 'sample.go', command: ['go', 'run'], probe: ['go', 'version'] },
};
/** In the order of the page, our own client first. */
const languages = ['TypeScript', 'curl', 'Python', 'Go'];
const canRun = (language: string) => {
  const [program = '', ...args] = runners[language]?.probe ?? [];
  return succeeds(program, ...args);
};
const runnable = languages.filter(canRun);
for (const language of languages.filter((one) => !canRun(one))) {
  console.log(`skipped: the ${language} samples (apt-get install curl python3 golang-go)`);
}

/** The user's cache, which may already hold the compiled standard library. */
const goCache = process.env.GOCACHE ?? join(homedir(), '.cache/go-build');

const folder = await useFolder();

/** Our packages as the samples import them, straight from their sources. */
const packages = {
  'payment-intents-client': {
    '.': 'client/index.ts',
    './json': 'client/json.ts',
    './webhook': 'client/webhook.ts',
  },
  'payment-intents-checkout': { '.': 'checkout/sdk/index.ts' },
};
await mkdir(join(folder, 'node_modules'));
for (const [name, entries] of Object.entries(packages)) {
  const source = join(folder, name);
  await mkdir(source);
  const files = Object.values(entries).map((file, i) => [`./${i}.ts`, file] as const);
  for (const [file, target] of files) {
    await writeFile(join(source, file), `export * from '${join(process.cwd(), target)}';\n`);
  }
  const exports = Object.fromEntries(Object.keys(entries).map((entry, i) => [entry, `./${i}.ts`]));
  await writeFile(join(source, 'package.json'), JSON.stringify({ name, type: 'module', exports }));
  // Node strips types only outside of node_modules, where the link leads.
  await symlink(source, join(folder, 'node_modules', name));
}
for (const name of ['@types', 'viem']) {
  await symlink(join(process.cwd(), 'node_modules', name), join(folder, 'node_modules', name));
}

/** Runs a sample in an empty folder, with the two variables from the page. */
async function runSample({ language, code }: PageSample, url: string, apiKey: string) {
  const { file, command } = runners[language] as { file: string; command: string[] };
  await writeFile(join(folder, file), code);
  const [program = '', ...args] = command;
  const env = {
    ...{ PATH: process.env.PATH, HOME: folder, GOCACHE: goCache, GOFLAGS: '-mod=mod' },
    ...{ PAYMENTS_URL: url, PAYMENTS_API_KEY: apiKey },
  };
  const done = run(program, [...args, file], { cwd: folder, env });
  return done.then(
    ({ stdout }) => ({ succeeded: true, output: stdout }),
    ({ stdout, stderr }) => ({ succeeded: false, output: `${stdout}${stderr}` }),
  );
}

describe("the page's samples", async () => {
  const service = await useService();
  const page = await (await fetch(`${service.publicUrl}/docs`)).text();
  const samples = await samplesOnPage(page, 'createPaymentIntent');
  const sampleIn = (language: string) => samples.find((sample) => sample.language === language) as PageSample;

  test('exist in each language, those of our client first', () => {
    expect(samples.map(({ language }) => language)).toEqual(languages);
    expect(sampleIn('TypeScript').code).toMatch(/^import .* from 'payment-intents-client';/);
    expect(sampleIn('curl').code).toContain('-H "Authorization: Bearer $PAYMENTS_API_KEY"');
  });

  test('in TypeScript compile, as do those of the guides', { timeout: 60_000 }, async () => {
    const ofOperations = (await samplesOnPage()).filter(({ language }) => language === 'TypeScript');
    const codes = ofOperations.map(({ code }) => code);
    expect(codes.length).toBeGreaterThan(15);
    for await (const guide of glob('src/contract/reference/guides/*.md')) {
      const fences = (await readFile(guide, 'utf8')).matchAll(/^```ts[^\n]*\n(.*?)^```$/gms);
      codes.push(...[...fences].map(([, code = '']) => code));
    }
    expect(codes.length).toBeGreaterThan(ofOperations.length + 6);
    const files = codes.map((_, i) => join(folder, `compiles-${i}.mts`));
    for (const [i, code] of codes.entries()) await writeFile(files[i] as string, `${code}\nexport {};\n`);
    const options = [
      '--noEmit',
      '--strict',
      '--skipLibCheck',
      '--allowImportingTsExtensions',
      '--target',
      'es2024',
    ];
    const libraries = ['--module', 'nodenext', '--lib', 'es2024,dom,dom.iterable', '--types', 'node'];
    const tsc = join(process.cwd(), 'node_modules/typescript/bin/tsc');
    const compiled = run(process.execPath, [tsc, '--ignoreConfig', ...options, ...libraries, ...files], {
      cwd: folder,
    });
    expect(await compiled.catch(({ stdout }) => ({ stdout }))).toMatchObject({ stdout: '' });
  });

  test.skipIf(!canRun('Go'))('in Go are formatted like gofmt', async () => {
    await writeFile(join(folder, 'formatted.go'), `${sampleIn('Go').code}\n`);
    expect((await run('gofmt', ['-d', join(folder, 'formatted.go')])).stdout).toBe('');
  });

  test.each(runnable)(
    'in %s create an intent, and return it again for the same key',
    { timeout: 120_000 },
    async (language) => {
      const { apiKey } = service.merchant.keys.testnet;
      await service.query('delete from payment_intents');
      const first = await runSample(sampleIn(language), service.publicUrl, apiKey);
      expect(first).toMatchObject({ succeeded: true });
      const intent = JSON.parse(first.output);
      expect(intent).toMatchObject({ status: 'requires_payment', amount_units: 12_500_000 });
      const again = await runSample(sampleIn(language), service.publicUrl, apiKey);
      expect(JSON.parse(again.output)).toEqual(intent);
      expect(await service.query('select idempotency_key as key, metadata from payment_intents')).toEqual([
        { key: 'order-1001/1', metadata: { order_id: 'order-1001', customer_id: 'customer-42' } },
      ]);
    },
  );

  test.each(runnable)('in %s fail and print the error', { timeout: 120_000 }, async (language) => {
    const { succeeded, output } = await runSample(sampleIn(language), service.publicUrl, 'sk_testnet_x');
    expect([succeeded, output]).toEqual([false, expect.stringContaining('api_key_invalid')]);
    expect(output).toContain('401');
  });
});

/** Text that must be quoted in every language. */
const awkward = `O'Brien "&" <b>\`$HOME\` \\ \${x} é 😀`;
const intentRef = { $ref: '#/components/schemas/Intent' };
const pathId = {
  ...{ name: 'id', in: 'path' as const, required: true },
  ...{ schema: { type: 'string' }, example: 'a b/ü?' },
};
const json = (schema: object, example?: unknown) => ({
  'application/json': { schema, ...(example === undefined ? {} : { example }) },
});
const operation = (operationId: string, more: object) => ({
  ...{ operationId, summary: `Does ${operationId}.`, tags: ['Intents'] },
  ...{ responses: { 200: { description: 'Done.', content: json(intentRef) } } },
  ...more,
});
const document: OpenApiDocument = {
  info: {
    title: 'Test',
    version: '1',
    description: 'A lead with <b>.\n\n## One\n\nText.\n\n## Two\n\nMore.',
  },
  tags: [{ name: 'Intents', description: 'All of them.' }, { name: 'Nothing' }],
  security: [{ key: [] }],
  paths: {
    '/v1/intents': {
      get: operation('listIntents', {
        parameters: [
          {
            ...{ name: 'limit', in: 'query', required: true, example: 10 },
            ...{ schema: { type: 'integer', minimum: 1, maximum: 100 } },
          },
          { name: 'name', in: 'query', required: true, schema: { type: 'string' }, example: 'a&b=c d' },
          { name: 'after', in: 'query', schema: { type: 'string' }, example: 'not in the samples' },
        ],
        responses: {
          200: {
            description: 'A page.',
            content: json({
              type: 'object',
              properties: { data: { type: 'array', items: intentRef }, next: { type: ['string', 'null'] } },
            }),
          },
        },
      }),
      post: operation('createIntent', {
        requestBody: { content: json({ $ref: '#/components/schemas/Create' }) },
      }),
    },
    '/v1/intents/{id}': {
      get: operation('getIntent', { parameters: [pathId] }),
      patch: operation('updateIntent', {
        parameters: [pathId],
        requestBody: {
          content: json({ $ref: '#/components/schemas/Create' }, { name: awkward, tags: [null, true, {}] }),
        },
      }),
      delete: operation('deleteIntent', {
        parameters: [
          pathId,
          { name: 'X-Reason', in: 'header', schema: { type: 'string' }, example: `it's "old"` },
        ],
        responses: { 204: { description: 'Gone.' } },
      }),
    },
    '/v1/ping': { get: operation('ping', { security: [], responses: { 200: { description: 'Pong.' } } }) },
  } as OpenApiDocument['paths'],
  components: {
    schemas: {
      Create: {
        type: 'object',
        required: ['payer'],
        properties: {
          payer: { $ref: '#/components/schemas/Payer' },
          lines: { type: 'array', minItems: 1, items: { $ref: '#/components/schemas/Line' } },
        },
      },
      Payer: {
        type: 'object',
        properties: {
          name: { type: 'string', minLength: 1, examples: [awkward] },
          parent: { $ref: '#/components/schemas/Payer' },
        },
      },
      Line: { type: 'object', properties: { units: { type: 'integer', const: 7 } } },
      Intent: {
        type: 'object',
        properties: {
          id: { type: 'string', examples: ['x'] },
          children: { type: 'array', items: intentRef },
        },
      },
      Error: {
        type: 'object',
        properties: { error: { type: 'object', properties: { code: { type: 'string' } } } },
      },
    },
  },
  'x-errors': {
    teapot: {
      status: 418,
      retryable: false,
      message: 'No.',
      description: 'Never.',
      example: { error: { code: 'teapot' } },
    },
  },
};

describe('a document with paths, queries, lists, nested messages and every method', () => {
  const { page, index } = renderPage({ document });
  const received: { method: string; url: string; headers: http.IncomingHttpHeaders; body: string }[] = [];
  const server = http.createServer(async (request, response) => {
    const { method = '', url = '', headers } = request;
    received.push({ method, url, headers, body: await text(request) });
    if (method === 'DELETE' || url === '/v1/ping') response.writeHead(204).end();
    else response.writeHead(200, { 'Content-Type': 'application/json' }).end('{"ok":true}');
  });

  beforeAll(() => new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve)));
  afterAll(() => server.close());

  const id = encodeURIComponent('a b/ü?');
  const created = { payer: { name: awkward }, lines: [{ units: 7 }] };
  const expected = [
    { method: 'GET', url: '/v1/intents?limit=10&name=a%26b%3Dc+d' },
    { method: 'POST', url: '/v1/intents', body: created },
    { method: 'GET', url: `/v1/intents/${id}` },
    { method: 'PATCH', url: `/v1/intents/${id}`, body: { name: awkward, tags: [null, true, {}] } },
    { method: 'DELETE', url: `/v1/intents/${id}`, reason: `it's "old"` },
    { method: 'GET', url: '/v1/ping', isOpen: true },
  ];

  // Our client has only the methods of this service.
  test.each(runnable.filter((language) => language !== 'TypeScript'))(
    'each of its samples in %s sends the documented request',
    { timeout: 300_000 },
    async (language) => {
      const samples = (await samplesOnPage(page)).filter((sample) => sample.language === language);
      received.length = 0;
      for (const sample of samples) {
        const { port } = server.address() as AddressInfo;
        expect(await runSample(sample, `http://127.0.0.1:${port}`, 'sk_testnet_1')).toMatchObject({
          succeeded: true,
        });
      }
      expect(
        received.map(({ method, url, headers, body }) => ({
          ...{ method, url },
          ...(body === '' ? {} : { body: JSON.parse(body) }),
          ...(headers['x-reason'] === undefined ? {} : { reason: headers['x-reason'] }),
          ...(headers.authorization === 'Bearer sk_testnet_1' ? {} : { isOpen: true }),
        })),
      ).toEqual(expected);
      for (const { headers, body } of received) {
        if (body !== '') expect(headers['content-type']).toBe('application/json');
      }
    },
  );

  test('its page has a section for each operation and object, with nested fields', () => {
    const ids = [...page.matchAll(/ id="([^"]+)"/g)].map(([, one]) => one);
    expect(ids).toEqual(
      expect.arrayContaining(['one', 'two', 'intents', 'nothing', 'object-Intent', 'error-teapot']),
    );
    expect(ids).toEqual(expect.arrayContaining(['listIntents', 'updateIntent', 'deleteIntent', 'ping']));
    expect(ids).toEqual(
      expect.arrayContaining([
        ...['createIntent-body-payer', 'createIntent-body-payer-name', 'createIntent-body-payer-parent'],
        ...[
          'createIntent-body-lines-units',
          'getIntent-path-id',
          'listIntents-query-limit',
          'listIntents-200-data',
        ],
      ]),
    );
    expect(new Set(ids).size).toBe(ids.length);
    const goals = [...page.matchAll(/href="#([^"]+)"/g)].map(([, goal]) => goal as string);
    expect(goals.filter((goal) => goal !== 'content' && !ids.includes(goal))).toEqual([]);
    expect(page).toContain('list of <a href="#object-Intent">');
    expect(page).toMatch(/1 to 100/);
  });

  test('operations come before objects, on the page and in its contents', () => {
    for (const place of [
      page.slice(page.indexOf('<nav'), page.indexOf('</nav>')),
      page.slice(page.indexOf('<main')),
    ]) {
      const order = ['listIntents', 'deleteIntent', 'ping', 'object-Intent'].map((id) =>
        place.search(`(id="|#)${id}"`),
      );
      expect(order).not.toContain(-1);
      expect(order).toEqual(order.toSorted((a, b) => a - b));
    }
  });

  test('its search index leads to every operation, object, field and error', () => {
    const goals = index.map(([id]) => id);
    expect(new Set(goals).size).toBe(goals.length);
    const ids = [...page.matchAll(/ id="([^"]+)"/g)].map(([, one]) => one);
    expect(goals.filter((goal) => !ids.includes(goal))).toEqual([]);
    expect(goals).toEqual(
      expect.arrayContaining([
        'one',
        'listIntents',
        'createIntent-body-payer-name',
        'object-Intent',
        'error-teapot',
      ]),
    );
  });

  test('text of the document is escaped on the page', () => {
    expect(page).toContain('A lead with &lt;b&gt;.');
    expect(page).not.toMatch(/<b>/);
  });
});

// The text of the reference page's code blocks, as a reader would copy it.

interface PageSample {
  /** The label of its tab. */
  language: string;
  code: string;
}

/** Returns the samples of a reference page in order, or of one operation; by default those of the generated page. */
async function samplesOnPage(page?: string, operationId?: string): Promise<PageSample[]> {
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
