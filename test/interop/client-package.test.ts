// The package as merchants use it: packed, installed into an empty folder, compiled, run, bundled for the edge.

import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdir, readdir, readFile, writeFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { join, resolve } from 'node:path';
import { createInterface } from 'node:readline';
import type { Readable } from 'node:stream';
import { promisify } from 'node:util';
import { rolldown } from 'rolldown';
import { Webhook } from 'standardwebhooks';
import { describe, expect, test, vi } from 'vitest';
import { createPaymentIntentsClient } from '../../client/index.ts';
import { catalogue, isRetryable } from '../../src/contract/error-catalogue.ts';
import { useFolder } from '../support/folder.ts';
import { closedPort } from '../support/listen.ts';
import { startProgram } from '../support/program.ts';
import { insertTransfers } from '../support/transfer-rows.ts';
import { useService } from '../support/use-service.ts';

const run = promisify(execFile);
const require = createRequire(import.meta.url);
const service = await useService();

/** A folder with only the package installed. */
const folder = await useFolder();
const packed = await run(process.execPath, ['pack.ts', 'client', folder]);
const tarball = resolve(packed.stdout.trim());
await writeFile(join(folder, 'package.json'), '{"name":"empty","private":true}');
await run('npm', ['install', '--no-audit', '--no-fund', '--prefer-offline', tarball], { cwd: folder });
const env = {
  ...process.env,
  PAYMENTS_URL: service.publicUrl,
  PAYMENTS_GRPC_URL: service.internalUrl,
  PAYMENTS_API_KEY: service.merchant.keys.testnet.apiKey,
};

const installed = (...path: string[]) => join(folder, 'node_modules/payment-intents-client', ...path);

/** The oldest TypeScript that the types support: the one of `@arethetypeswrong/cli`. */
const oldTypeScript = require.resolve('typescript/bin/tsc');
const typeScript = resolve('node_modules/typescript/bin/tsc');

interface Compilation {
  module: string;
  moduleResolution: string;
  compiler?: string;
}

/** Compiles files of the folder, including declarations of packages. Throws the compiler's output. */
async function compile(
  files: readonly string[],
  { module, moduleResolution, compiler = typeScript }: Compilation,
) {
  const options = [
    ...[
      '--noEmit',
      '--strict',
      '--exactOptionalPropertyTypes',
      '--skipLibCheck',
      'false',
      '--target',
      'es2022',
    ],
    ...['--module', module, '--moduleResolution', moduleResolution, '--ignoreConfig'],
    ...['--typeRoots', resolve('node_modules/@types'), '--types', 'node', ...files],
  ].filter((option) => compiler === typeScript || option !== '--ignoreConfig');
  await run(process.execPath, [compiler, ...options], { cwd: folder }).catch(({ stdout, stderr }) => {
    throw new Error(`${stdout}${stderr}`);
  });
}

test('packing prints where the tarball is and leaves nothing to commit', { timeout: 60_000 }, async () => {
  const status = async () => (await run('git', ['status', '--porcelain'])).stdout;
  const before = await status();
  const { stdout } = await run('npm', ['run', '-s', 'pack:client']);
  expect(stdout).toMatch(/^client\/dist\/payment-intents-client-\d+\.\d+\.\d+\.tgz\n$/);
  expect((await run('tar', ['tzf', stdout.trim()])).stdout).toContain('package/README.md\n');
  expect(await status()).toBe(before);
});

test('passes Are The Types Wrong', { timeout: 60_000 }, async () => {
  const { stdout } = await run('test/interop/node_modules/.bin/attw', ['--format', 'json', tarball]);
  const { analysis, problems } = JSON.parse(stdout);
  expect(problems ?? {}).toEqual({});
  expect(analysis.problems).toEqual([]);
  expect(Object.keys(analysis.entrypoints).sort()).toEqual(['.', './json', './package.json', './webhook']);
  for (const { resolutions } of Object.values<{ resolutions: object }>(analysis.entrypoints)) {
    expect(Object.keys(resolutions).sort()).toEqual(['bundler', 'node10', 'node16-cjs', 'node16-esm']);
  }
});

const consumer = `
import { createPaymentIntentsClient, type AnyPaymentIntent, type CreatePaymentIntent, type Event, type List, type Page, type Payment, type PaymentIntent, PaymentIntentsError, type PaymentIntentState, type Transfer, type WebhookDelivery, type WebhookEndpointWithSecret } from 'payment-intents-client';
import { createPaymentIntentsClient as overJson } from 'payment-intents-client/json';
import { verifyWebhook, WebhookVerificationError } from 'payment-intents-client/webhook';
import type { IncomingMessage } from 'node:http';

interface Order {
  order_id: string;
  items: { sku: string; count?: number }[];
  note: string | null | undefined;
}

interface Tree {
  readonly name: string & { readonly brand: 'name' };
  readonly children?: readonly Tree[];
}

export async function use(order: Order, anything: Record<string, unknown>, tree: Tree): Promise<string> {
  const payments = createPaymentIntentsClient({ baseUrl: 'http://127.0.0.1', apiKey: 'sk', protocol: 'grpc' });
  const intent: PaymentIntent = await payments.createPaymentIntent({ amountUnits: 5, metadata: order });
  const create: CreatePaymentIntent = { amountUnits: 5n, chain: 'polygon', metadata: order };
  await payments.createPaymentIntent(create, { idempotencyKey: 'order-1', signal: AbortSignal.timeout(5) });
  await payments.createPaymentIntent({ amountUnits: 5, metadata: anything });
  await payments.createPaymentIntent({ amountUnits: 5, metadata: { a: [1, 'x', null, { b: true }], c: undefined } });
  await payments.createPaymentIntent({ amountUnits: 5, metadata: intent.metadata });
  await payments.createPaymentIntent({ amountUnits: 5, metadata: tree });
  await payments.createPaymentIntent({ amountUnits: 5, metadata: { ids: [1, 'x'], of: { a: null } } as const });
  await payments.createPaymentIntent({ amountUnits: 5, metadata: JSON.parse('{}') });
  await payments.createPaymentIntent({ amountUnits: 5, metadata: undefined });
  const wrapped: typeof payments.createPaymentIntent = (asked, options) => payments.createPaymentIntent(asked, options);
  await wrapped({ amountUnits: 5, metadata: order });
  // @ts-expect-error: a Date is no JSON value
  await payments.createPaymentIntent({ amountUnits: 5, metadata: { at: new Date() } });
  // @ts-expect-error: nor is a bigint, however deep
  await payments.createPaymentIntent({ amountUnits: 5, metadata: { a: [{ b: 5n }] } });
  // @ts-expect-error: nor is a function
  await payments.createPaymentIntent({ amountUnits: 5, metadata: { a: () => 5 } });
  // @ts-expect-error: metadata is an object
  await payments.createPaymentIntent({ amountUnits: 5, metadata: 'order-1' });
  // @ts-expect-error: there is no such chain
  await payments.createPaymentIntent({ amountUnits: 5, chain: 'solana' });
  // @ts-expect-error: there is no such field
  await payments.createPaymentIntent({ amountUnits: 5, walletAdress: '0x0' });
  // @ts-expect-error: a key that is not there would be a new one
  await payments.createPaymentIntent({ amountUnits: 5 }, { idempotencyKey: undefined });
  // @ts-expect-error: JSON alone has no gRPC
  overJson({ baseUrl: 'http://127.0.0.1', apiKey: 'sk', protocol: 'grpc' });
  try {
    await overJson({ baseUrl: 'http://127.0.0.1', apiKey: 'sk' }).createPaymentIntent({ amountUnits: 5 });
  } catch (error) {
    if (!(error instanceof PaymentIntentsError)) throw error;
    const [first] = error.details;
    const told: [string, boolean, number | undefined, string | undefined] = [error.code, error.isRetryable, error.httpStatus, error.docUrl];
    return \`\${told} \${first?.field}\`;
  }
  await follow(intent);
  switch (intent.status) {
    case 'requires_payment':
    case 'processing':
    case 'succeeded':
    case 'expired':
    case 'canceled':
      return intent.expiresAt.toISOString();
    default: {
      const newer: \`unknown:\${string}\` = intent.status;
      return newer;
    }
  }
}

async function follow(created: AnyPaymentIntent): Promise<void> {
  const options = { baseUrl: 'http://127.0.0.1', apiKey: 'sk' };
  const payments = createPaymentIntentsClient({ ...options, protocol: 'grpc' });
  const listed: List<PaymentIntentState> = payments.listPaymentIntents({ status: 'succeeded', createdFrom: new Date() });
  for await (const intent of listed) {
    const [payment]: (Payment | undefined)[] = intent.payments;
    const received: [bigint, Date | undefined, string[]] = [payment?.amountUnits ?? intent.amountReceivedUnits, intent.succeededAt, intent.labels];
    // @ts-expect-error: a list has no secrets
    console.log(received, intent.clientSecret);
  }
  const page: Page<PaymentIntentState> = await listed.page();
  await listed.page(page.nextPageToken);
  const secret: string = (await payments.retrievePaymentIntent(created.id)).clientSecret;
  for await (const { event, position } of payments.watchEvents({ after: undefined, onInterruption: (error) => console.log(error.code) })) {
    const watched: [Event | undefined, string] = [event, position];
    console.log(watched);
  }
  // @ts-expect-error: there is no stream over JSON
  createPaymentIntentsClient(options).watchEvents();
  // @ts-expect-error: nor is there one over JSON alone
  overJson(options).watchEvents();
  // @ts-expect-error: a call that is safe to repeat has no idempotency key
  await payments.cancelPaymentIntent(created.id, { idempotencyKey: 'order-1' });
  // @ts-expect-error: there is no such filter
  payments.listEvents({ intent: created.id });
  const endpoint: WebhookEndpointWithSecret = await payments.createWebhookEndpoint({ url: 'https://shop.example', eventTypes: ['*', 'payment_intent.succeeded', 'newer'] }, { idempotencyKey: secret });
  const deliveries: WebhookDelivery[] = await payments.redeliverEvent('evt_1', { webhookEndpoint: endpoint.id });
  console.log(deliveries[0]?.attempts[0]?.statusCode);
  const due: number = await payments.redeliverWebhookEndpoint(endpoint.id, { status: 'pending', createdFrom: new Date(0) });
  console.log(due);
  const transfers: Transfer[] = (await payments.listTransfers({ status: 'unattributed' }).page()).items;
  for (const { id } of transfers) await payments.attributeTransfer(id, { paymentIntent: created.id });
  // @ts-expect-error: a transfer is attributed to something
  await payments.attributeTransfer('tr_1');
}

export function receive(request: IncomingMessage, fetched: Request, body: Buffer): string {
  try {
    const event: Event = verifyWebhook({ body, headers: request.headers, secret: ['whsec_a', 'whsec_b'] });
    verifyWebhook({ body: 'text', headers: fetched.headers, secret: 'whsec_a' });
    // @ts-expect-error: the body is not parsed
    verifyWebhook({ body: { id: 'evt_1' }, headers: {}, secret: 'whsec_a' });
    return event.type === 'payment_intent.succeeded' ? event.data.paymentIntent?.id ?? '' : event.type;
  } catch (error) {
    return error instanceof WebhookVerificationError ? error.code : '';
  }
}
`;

describe('its types', () => {
  const node16 = { module: 'node16', moduleResolution: 'node16' };
  const bundler = { module: 'esnext', moduleResolution: 'bundler' };
  const inBothModules = ['consumer.mts', 'consumer.cts'];

  test.each<[string, string[], Compilation]>([
    ['node10', ['consumer.ts'], { module: 'commonjs', moduleResolution: 'node10', compiler: oldTypeScript }],
    ['node16', inBothModules, node16],
    ['bundler', ['consumer.ts'], bundler],
    ['node16, TypeScript 5.6', inBothModules, { ...node16, compiler: oldTypeScript }],
    ['bundler, TypeScript 5.6', ['consumer.ts'], { ...bundler, compiler: oldTypeScript }],
  ])('%s', { timeout: 60_000 }, async (_, files, compilation) => {
    for (const file of files) await writeFile(join(folder, file), consumer);
    await compile(files, compilation);
  });

  test('explain each compile error', { timeout: 60_000 }, async () => {
    const wrong = `
import { createPaymentIntentsClient } from 'payment-intents-client';
import { createPaymentIntentsClient as overJson } from 'payment-intents-client/json';
const options = { baseUrl: 'http://127.0.0.1', apiKey: 'sk' };
createPaymentIntentsClient(options).watchEvents({ after: 'x' });
overJson(options).watchEvents();
overJson(options).createPaymentIntent({ amountUnits: 5, metadata: { at: new Date() } });
`;
    await writeFile(join(folder, 'wrong.mts'), wrong);
    for (const compiler of [typeScript, oldTypeScript]) {
      const output = await compile(['wrong.mts'], { ...node16, compiler }).catch(
        (error: Error) => error.message,
      );
      const linesOf = (pattern: RegExp) => [...String(output).matchAll(pattern)].length;
      expect(linesOf(/Events are watched over gRPC: create the client with protocol 'grpc'/g)).toBe(2);
      expect(
        linesOf(/'Date'.*not assignable.*"not JSON: send the toISOString\(\) of a Date"/g),
      ).toBeGreaterThan(0);
    }
  });

  test('every returned field has a doc comment', async () => {
    const folders = installed('dist/esm');
    const files = (await readdir(folders, { recursive: true })).filter((name) => name.endsWith('.d.ts'));
    const texts = await Promise.all(files.map((name) => readFile(join(folders, name), 'utf8')));
    for (const name of [
      ...['AnyPaymentIntent', 'PaymentIntent', 'PaymentIntentState', 'RetrievedPaymentIntent', 'Payment'],
      ...['CreatePaymentIntent', 'ListPaymentIntents', 'Event', 'EventData', 'ListEvents'],
      ...['Transfer', 'ListTransfers', 'AttributeTransfer'],
      ...['WebhookEndpoint', 'WebhookEndpointWithSecret', 'WebhookDelivery', 'WebhookAttempt'],
      ...['CreateWebhookEndpoint', 'UpdateWebhookEndpoint', 'RotateWebhookSecret', 'RedeliverEvent'],
      ...['ListWebhookEndpoints', 'ListWebhookDeliveries', 'WatchEvents', 'WatchEventsResponse', 'Page'],
      ...['ReceivedWebhook', 'WebhookVerificationError', 'PaymentIntentsError', 'JsonClientOptions'],
      ...['PaymentIntentsClientOptions', 'CallOptions', 'CreateOptions', 'Timeouts'],
    ]) {
      const declaration = new RegExp(
        `export (?:declare )?(?:interface|class) ${name}\\b[^{]*\\{\\n([\\s\\S]*?)\\n\\}`,
      );
      const bodies = texts.flatMap((text) => declaration.exec(text)?.[1] ?? []);
      const fields = bodies.flatMap((body) => [...body.matchAll(/^(.*)\n {4}(?:readonly )?(\w+)\??:/gm)]);
      expect([name, fields.length > 0]).toEqual([name, true]);
      for (const [, lineBefore = '', field] of fields) {
        expect([name, field, lineBefore.trim()]).toEqual([name, field, expect.stringMatching(/\*\/$/)]);
      }
    }
  });
});

describe('it runs', () => {
  const use = `
const results = [];
for (const [client, options] of [[main, { baseUrl: process.env.PAYMENTS_URL }], [main, { baseUrl: process.env.PAYMENTS_GRPC_URL, protocol: 'grpc' }], [json, { baseUrl: process.env.PAYMENTS_URL }]]) {
  const payments = client.createPaymentIntentsClient({ ...options, apiKey: process.env.PAYMENTS_API_KEY });
  const intent = await payments.createPaymentIntent({ amountUnits: 5 });
  const error = await payments.createPaymentIntent({ amountUnits: 0 }).catch((reason) => reason);
  results.push([intent.id.slice(0, 3), error instanceof client.PaymentIntentsError, error instanceof other.PaymentIntentsError, error instanceof TypeError, error.code]);
}
try {
  webhook.verifyWebhook({ body: '{}', headers: {}, secret: 'whsec_AAAA' });
} catch (error) {
  results.push([error instanceof webhook.WebhookVerificationError, error instanceof otherWebhook.WebhookVerificationError, error instanceof TypeError, error.code]);
}
console.log(JSON.stringify(results));
`;
  // Each module format recognises errors of the other, because a process may load both.
  const expected = [
    ...Array(3).fill(['pi_', true, true, false, 'invalid_body']),
    [true, true, false, 'headers_missing'],
  ];

  test('imported', async () => {
    const file = join(folder, 'run.mjs');
    await writeFile(
      file,
      `import * as main from 'payment-intents-client';
import * as json from 'payment-intents-client/json';
import * as webhook from 'payment-intents-client/webhook';
import { createRequire } from 'node:module';
const require = createRequire(import.meta.url);
const other = require('payment-intents-client');
const otherWebhook = require('payment-intents-client/webhook');
if (other.PaymentIntentsError === main.PaymentIntentsError) throw new Error('one format only');
${use}`,
    );
    const { stdout } = await run(process.execPath, [file], { env });
    expect(JSON.parse(stdout)).toEqual(expected);
  });

  test('required', async () => {
    const file = join(folder, 'run.cjs');
    await writeFile(
      file,
      `const main = require('payment-intents-client');
const json = require('payment-intents-client/json');
const webhook = require('payment-intents-client/webhook');
(async () => {
const other = await import('payment-intents-client');
const otherWebhook = await import('payment-intents-client/webhook');
${use} })();`,
    );
    const { stdout } = await run(process.execPath, [file], { env });
    expect(JSON.parse(stdout)).toEqual(expected);
  });
});

describe('its README', () => {
  /** Returns the one TypeScript block of the README that contains `mark`. */
  async function block(mark: string): Promise<string> {
    const readme = await readFile(installed('README.md'), 'utf8');
    const blocks = [...readme.matchAll(/^```ts\n([\s\S]*?)^```$/gm)].map(([, code = '']) => code);
    const found = blocks.filter((code) => code.includes(mark));
    expect([mark, found.length]).toEqual([mark, 1]);
    return found[0] as string;
  }

  test('has only blocks that compile', { timeout: 60_000 }, async () => {
    const readme = await readFile(installed('README.md'), 'utf8');
    const blocks = [...readme.matchAll(/^```ts\n([\s\S]*?)^```$/gm)].map(([, code = '']) => code);
    expect(blocks.length).toBe(12);
    await mkdir(join(folder, 'readme'), { recursive: true });
    const files = blocks.map((_, i) => `readme/${i}.mts`);
    for (const [i, file] of files.entries()) await writeFile(join(folder, file), blocks[i] as string);
    await compile(files, { module: 'nodenext', moduleResolution: 'nodenext' });
  });

  test('lists every error code, retryable or not', async () => {
    const readme = await readFile(installed('README.md'), 'utf8');
    const rows = [...readme.matchAll(/^\| (`[a-z_]+`(?:, `[a-z_]+`)*) *\| .* \| (.*?) *\|$/gm)].flatMap(
      ([, codes = '', advice = '']) => [...codes.matchAll(/`([a-z_]+)`/g)].map(([, code]) => [code, advice]),
    );
    const retryable = Object.fromEntries(
      rows.map(([code, advice]) => [code, advice?.startsWith('try later')]),
    );
    const byCode = Object.keys(catalogue).map((code) => [code, isRetryable(code)]);
    expect(retryable).toMatchObject({
      ...Object.fromEntries(byCode),
      network: true,
      unexpected_answer: false,
    });
  });

  test('creates an intent and handles an error', async () => {
    const file = join(folder, 'create.mts');
    await writeFile(file, await block('process.exitCode'));
    const first = await run(process.execPath, [file, 'order-1001'], { env });
    expect(first.stdout).toMatch(
      /^(pi_\w{26}) testnet base requires_payment \d{4}-\d\d-\d\dT[\d:.]+Z\n\1_secret_[\w-]{43}\n$/,
    );
    expect((await run(process.execPath, [file, 'order-1001'], { env })).stdout).toBe(first.stdout);
    const refused = await run(process.execPath, [file, 'order-1002', '0'], { env }).catch((error) => error);
    expect(refused.code).toBe(1);
    const readme = await readFile(installed('README.md'), 'utf8');
    const [, shown = ''] = /^```\n(PaymentIntentsError: [\s\S]*?)^```$/m.exec(readme) ?? [];
    const lines = shown.trimEnd().split('\n');
    expect(lines.length).toBeGreaterThan(5);
    for (const line of lines) {
      const pattern = line
        .trim()
        .replaceAll(/[.*+?^${}()|[\]\\]/g, '\\$&')
        .replaceAll('…', '.*')
        .replace(/req_[0-9a-f]+/, 'req_[0-9a-f]+');
      expect(refused.stderr).toMatch(new RegExp(pattern));
    }
    const away = { ...env, PAYMENTS_API_KEY: '' };
    const unset = await run(process.execPath, [file], { env: away }).catch((error) => error);
    expect(unset.stderr).toContain('it is empty; is the environment variable set?');
  });

  test('works over gRPC, and the process ends', async () => {
    const file = join(folder, 'grpc.mts');
    await writeFile(file, await block('createPaymentIntent({ amountUnits: 12_500_000 })'));
    const { stdout } = await run(process.execPath, [file], { env, timeout: 10_000 });
    expect(stdout).toMatch(/^pi_\w{26}\n$/);
  });

  test('retrieves, lists and cancels', async () => {
    const file = join(folder, 'cancel.mts');
    await writeFile(file, await block('listPaymentIntents('));
    const client = clientOfService();
    const { id } = await client.createPaymentIntent(
      { amountUnits: 12_500_000, metadata: { order_id: 'order-1001' } },
      { idempotencyKey: 'order-1001' },
    );
    const { stdout } = await run(process.execPath, [file], { env });
    expect(stdout).toMatch(
      new RegExp(`^${id} requires_payment 0n \\[\\]\\ncanceled \\d{4}-\\d\\d-\\d\\dT[\\d:.]+Z\\n$`),
    );
    expect((await run(process.execPath, [file], { env })).stdout).toBe(`${id} canceled 0n []\n`);
  });

  test('writes an event as JSON', async () => {
    const file = join(folder, 'json.mts');
    await writeFile(file, await block('JSON.stringify('));
    const [event] = await eventsOf(await cancelNew());
    const { stdout } = await run(process.execPath, [file, event?.id ?? ''], { env });
    const data = { payment_intent: { id: event?.data.paymentIntent?.id, amount_units: expect.any(Number) } };
    expect(JSON.parse(stdout)).toMatchObject({ handled: true, event: { id: event?.id, data } });
  });

  test('lists unattributed transfers, and attributes one', async () => {
    const file = join(folder, 'attribute.mts');
    await writeFile(file, await block('attributeTransfer('));
    const [id = ''] = await insertTransfers(service, service.merchant, [{ amountUnits: 12_500_000 }]);
    const script = async (...args: string[]) =>
      (await run(process.execPath, [file, ...args], { env })).stdout;
    expect(await script()).toBe(`${id} base 12500000n 0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed\n`);
    const intent = await clientOfService().createPaymentIntent({ amountUnits: 12_500_000 });
    expect(await script(id, intent.id)).toBe(`${id} attributed processing 12500000n\n`);
    expect(await script()).toBe('');
  });

  test('has a job that follows events, each once', async () => {
    const file = join(folder, 'job.mts');
    await writeFile(file, await block('listEvents('));
    const job = async () => (await run(process.execPath, [file], { env, cwd: folder })).stdout;
    // The job also gets events of the other tests.
    await eventsOf(await cancelNew());
    expect(await job()).toContain('payment_intent.canceled 1 canceled\n');
    expect(await job()).toBe('');
    const [event] = await eventsOf(await cancelNew());
    expect(await job()).toBe(`${event?.id} payment_intent.canceled 1 canceled\n`);
  });

  test('has a service that watches events, and continues from its stored position after a crash', async () => {
    const file = join(folder, 'watch.mts');
    await writeFile(file, await block('watchEvents('));
    const watch = async (until: (position: string) => Promise<RegExp>) => {
      const watcher = startProgram([process.execPath, file], { env, cwd: folder });
      // The service has connected once the position is stored.
      const position = await vi.waitFor(() => readFile(join(folder, 'position'), 'utf8'), {
        timeout: 10_000,
      });
      const expected = await until(position);
      await watcher.until(expected);
      await watcher.end('SIGKILL');
      return watcher.printed.output;
    };
    const lineOf = async (id: string) => {
      const [event] = await eventsOf(id);
      return new RegExp(`^${event?.id} payment_intent\\.canceled canceled\\n`, 'm');
    };
    await watch(async () => lineOf(await cancelNew()));
    // This event is made while nobody watches.
    const missed = await lineOf(await cancelNew());
    const stdout = await watch(async () => missed);
    // At most the last event before the crash is repeated.
    expect(stdout.trim().split('\n').length).toBeLessThanOrEqual(2);
  });

  test('creates a webhook endpoint, and receives its webhooks', async () => {
    const [create, receive] = [join(folder, 'endpoint.mts'), join(folder, 'receive.mts')];
    await writeFile(create, await block('createWebhookEndpoint('));
    await writeFile(receive, await block('verifyWebhook('));
    const port = await closedPort();
    const withUrl = { ...env, WEBHOOK_URL: `http://127.0.0.1:${port}/webhooks` };
    const { stdout } = await run(process.execPath, [create], { env: withUrl });
    const [, id = '', secret = ''] = /^(we_\w{26}) (whsec_\S+)\n$/.exec(stdout) ?? [];
    expect((await run(process.execPath, [create], { env: withUrl })).stdout).toBe(stdout);
    const receiver = startProgram([process.execPath, receive], {
      env: { ...env, PORT: String(port), WEBHOOK_SECRET: secret },
    });
    try {
      const post = () => fetch(withUrl.WEBHOOK_URL, { method: 'POST', body: '{}' });
      const forged = await vi.waitFor(post, { timeout: 10_000 });
      expect(forged.status).toBe(400);
      await receiver.until(/code: 'headers_missing'/);
      const canceled = await cancelNew();
      const [event] = await eventsOf(canceled);
      const line = `${event?.id} payment_intent.canceled canceled\n`;
      await receiver.until(new RegExp(line));
      const deliveredTimes = (attempts: object[]) =>
        vi.waitFor(
          async () => {
            const { items } = await clientOfService()
              .listWebhookDeliveries(id, { status: 'delivered' })
              .page();
            const delivery = items.find((item) => item.event === event?.id);
            expect(delivery?.attempts).toMatchObject(attempts);
          },
          { timeout: 10_000 },
        );
      // A redelivery does not touch a delivery whose attempt is still being recorded.
      await deliveredTimes([{ statusCode: 204 }]);
      await clientOfService().redeliverEvent(event?.id ?? '', { webhookEndpoint: id });
      await deliveredTimes([{ statusCode: 204 }, { statusCode: 204 }]);
      // The webhook came twice and was handled once.
      expect(receiver.printed.output.split(line)).toHaveLength(2);
    } finally {
      await clientOfService().deleteWebhookEndpoint(id);
      await receiver.end();
    }
  });

  test('verifies webhooks on an edge runtime', { timeout: 60_000 }, async () => {
    const secret = `whsec_${Buffer.from('a secret of 32 bytes, or nearly.').toString('base64')}`;
    await writeFile(
      join(folder, 'webhook-worker.ts'),
      `import { verifyWebhook, WebhookVerificationError } from 'payment-intents-client/webhook';
export default {
  async fetch(request: Request): Promise<Response> {
    try {
      const event = verifyWebhook({ body: await request.arrayBuffer(), headers: request.headers, secret: '${secret}' });
      return Response.json([event.id, event.createdAt]);
    } catch (error) {
      return Response.json([error instanceof WebhookVerificationError, (error as { code: string }).code], { status: 400 });
    }
  },
};
`,
    );
    const bundle = await rolldown({
      input: join(folder, 'webhook-worker.ts'),
      cwd: folder,
      platform: 'browser',
    });
    const { output } = await bundle.write({ file: join(folder, 'worker.js') });
    expect(output[0].imports).toEqual([]);
    expect(output[0].moduleIds.filter((id) => /grpc|protobuf|_pb\./.test(id))).toEqual([]);
    const worker = await startWorker();
    try {
      const at = new Date();
      const body =
        '{"id":"evt_1","type":"x","created_at":"2026-11-21T12:04:02.000Z","mode":"testnet","data":{}}';
      const headers = {
        'webhook-id': 'evt_1',
        'webhook-timestamp': String(Math.floor(at.getTime() / 1_000)),
        'webhook-signature': new Webhook(secret).sign('evt_1', at, body),
      };
      const send = async (body: string) =>
        (await fetch(worker.url, { method: 'POST', headers, body })).json();
      expect(await send(body)).toEqual(['evt_1', '2026-11-21T12:04:02.000Z']);
      expect(await send(`${body} `)).toEqual([true, 'signature_wrong']);
    } finally {
      await worker.close();
    }
  });

  const clientOfService = () =>
    createPaymentIntentsClient({ baseUrl: service.publicUrl, apiKey: service.merchant.keys.testnet.apiKey });

  /** Creates an intent and cancels it. Returns its id. */
  async function cancelNew(): Promise<string> {
    const { id } = await clientOfService().createPaymentIntent({ amountUnits: 1 });
    await clientOfService().cancelPaymentIntent(id);
    return id;
  }

  /** Returns the events of an intent once it has one. */
  const eventsOf = (paymentIntent: string) =>
    vi.waitFor(
      async () => {
        const { items } = await clientOfService().listEvents({ paymentIntent }).page();
        expect(items).toHaveLength(1);
        return items;
      },
      { timeout: 10_000 },
    );

  test('works on an edge runtime: bundled, and run by workerd with a plain compatibility date', {
    timeout: 60_000,
  }, async () => {
    await writeFile(join(folder, 'worker.ts'), await block('export default'));
    const bundle = await rolldown({ input: join(folder, 'worker.ts'), cwd: folder, platform: 'neutral' });
    const { output } = await bundle.write({ file: join(folder, 'worker.js') });
    const [chunk] = output;
    // The bundle contains neither Node.js modules nor gRPC.
    expect(chunk.imports).toEqual([]);
    expect(
      chunk.moduleIds.filter(
        (id) => !/worker\.ts$|payment-intents-client\/dist\/esm\/(client|src)\//.test(id),
      ),
    ).toEqual([]);
    expect(chunk.moduleIds.filter((id) => /grpc|_pb\./.test(id))).toEqual([]);

    const worker = await startWorker();
    try {
      const first = await fetch(worker.url).then((answer) => answer.json());
      expect(first).toEqual({ client_secret: expect.stringMatching(/^pi_\w{26}_secret_/) });
      expect(await fetch(worker.url).then((answer) => answer.json())).toEqual(first);
    } finally {
      await worker.close();
    }
  });

  /** Runs the folder's worker.js in workerd, which can only reach the service. */
  async function startWorker(): Promise<{ url: string; close(): Promise<void> }> {
    await writeFile(
      join(folder, 'workerd.capnp'),
      `using Workerd = import "/workerd/workerd.capnp";
const config :Workerd.Config = (
  services = [
    (name = "main", worker = .worker),
    (name = "internet", network = (allow = ["local"])),
  ],
  sockets = [(name = "http", address = "127.0.0.1:0", http = (), service = "main")],
);
const worker :Workerd.Worker = (
  modules = [(name = "worker.js", esModule = embed "worker.js")],
  compatibilityDate = "2026-10-01",
  bindings = [
    (name = "PAYMENTS_URL", text = "${service.publicUrl}"),
    (name = "PAYMENTS_API_KEY", text = "${service.merchant.keys.testnet.apiKey}"),
  ],
);
`,
    );
    const { default: workerd } = require('workerd') as { default: string };
    const child = spawn(workerd, ['serve', join(folder, 'workerd.capnp'), '--control-fd=3'], {
      stdio: ['ignore', 'inherit', 'inherit', 'pipe'],
    });
    const lines = createInterface({ input: child.stdio[3] as Readable });
    const [line] = await Promise.race([
      once(lines, 'line'),
      once(child, 'exit').then(([code]) => expect.fail(`workerd exited with ${code}`)),
    ]);
    return {
      url: `http://127.0.0.1:${JSON.parse(String(line)).port}`,
      async close() {
        child.kill();
        await once(child, 'exit');
      },
    };
  }
});

test('the tarball contains the documented files and nothing of the service', async () => {
  const files = (await readdir(installed('dist/esm/src'), { recursive: true })).sort();
  expect(files.filter((name) => name.endsWith('.js'))).toEqual([
    'contract/error-catalogue.js',
    'contract/event-types.js',
    'contract/gen/google/api/annotations_pb.js',
    'contract/gen/google/api/http_pb.js',
    'contract/gen/google/rpc/error_details_pb.js',
    'contract/gen/payments/v1/access_pb.js',
    'contract/gen/payments/v1/event_pb.js',
    'contract/gen/payments/v1/event_service_pb.js',
    'contract/gen/payments/v1/json_pb.js',
    'contract/gen/payments/v1/payment_intent_pb.js',
    'contract/gen/payments/v1/payment_intent_service_pb.js',
    'contract/gen/payments/v1/payment_pb.js',
    'contract/gen/payments/v1/refund_pb.js',
    'contract/gen/payments/v1/refund_service_pb.js',
    'contract/gen/payments/v1/transfer_pb.js',
    'contract/gen/payments/v1/transfer_service_pb.js',
    'contract/gen/payments/v1/webhook_endpoint_pb.js',
    'contract/gen/payments/v1/webhook_endpoint_service_pb.js',
    'contract/gen/words.js',
    'contract/nearest-name.js',
    'contract/unary.js',
    'contract/units.js',
  ]);
});
