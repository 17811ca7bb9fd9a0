import { access, glob, readFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { Code } from '@connectrpc/connect';
import { codeToString } from '@connectrpc/connect/protocol-connect';
import { expect, test } from 'vitest';
import { loadConfig } from '../src/config/config.ts';
import { catalogue, type ErrorCode, isRetryable } from '../src/contract/error-catalogue.ts';

const readme = await readFile('README.md', 'utf8');
const integrate = await readFile('docs/integrate.md', 'utf8');
const configuration = await readFile('docs/configuration.md', 'utf8');

test('the table of errors matches the catalogue', () => {
  const rows = [
    ...integrate.matchAll(
      /^\| (`[a-z_]+`(?:, `[a-z_]+`)*) *\| ([\d, ]+?) *\| (?:`([A-Z_]+)`)? *\| (.*) \|$/gm,
    ),
  ];
  const documented = rows.flatMap(([, codes = '', statuses = '', grpcCode, advice = '']) =>
    [...codes.matchAll(/`([a-z_]+)`/g)].map(([, code], i) => {
      const { httpStatus, grpcCode: connectCode } = catalogue[code as ErrorCode];
      expect([code, Number(statuses.split(',')[i])]).toEqual([code, httpStatus]);
      if (code !== 'browser_forbidden')
        expect([code, grpcCode]).toEqual([code, codeToString(Code[connectCode]).toUpperCase()]);
      expect([code, advice.includes('**retry**')]).toEqual([code, isRetryable(code ?? '')]);
      return code;
    }),
  );
  expect(documented.sort()).toEqual(Object.keys(catalogue).sort());
});

test('the table of variables lists every variable with its default', () => {
  const defaults = Object.fromEntries(
    [...configuration.matchAll(/^\| ((?:`[A-Z0-9_]+`(?:, )?)+) *\| (?:`([^`]+)` *|[^|]*)\|/gm)].flatMap(
      ([, names = '', value]) => [...names.matchAll(/`([A-Z0-9_]+)`/g)].map(([, name]) => [name, value]),
    ),
  );
  expect(Object.keys(defaults).sort()).toEqual(
    [
      'DATABASE_URL',
      'DATA_DIR',
      'HOST',
      'HTTP_PORT',
      'GRPC_PORT',
      'METRICS_PORT',
      'CLIENT_SECRET_KEYS',
      'CONSOLE_PORT',
      'CONSOLE_HOST',
      'CONSOLE_ORIGIN',
      'API_KEY_PEPPERS',
      'WEBHOOK_SECRET_KEYS',
      'WEBHOOK_ALLOW',
      'EVENT_RETENTION_DAYS',
      'ROLES',
      'RPC_URL_BASE',
      'RPC_URL_POLYGON',
      'RPC_URL_BASE_SEPOLIA',
      'RPC_URL_POLYGON_AMOY',
      ...['BASE', 'POLYGON', 'BASE_SEPOLIA', 'POLYGON_AMOY'].flatMap((chain) =>
        ['', '_TOKEN'].map((end) => `X402_FACILITATOR_URL_${chain}${end}`),
      ),
      ...'PUBLIC_URL ALLOW_UNWATCHED UNATTRIBUTED_MIN_UNITS DATABASE_POOL'.split(' '),
      ...'DATABASE_CONNECT_TIMEOUT DATABASE_TIMEOUT QUEUE_SIZE QUEUE_TIMEOUT MAX_CONNECTIONS'.split(' '),
      ...'MAX_CONCURRENT_STREAMS MAX_HEADER_BYTES HEADERS_TIMEOUT REQUEST_TIMEOUT IDLE_TIMEOUT'.split(' '),
      ...'RATE_LIMIT RATE_LIMIT_READS RATE_LIMIT_CHANGES RATE_LIMIT_CHECKOUT TRUSTED_PROXIES'.split(' '),
      ...'DRAIN_DELAY DRAIN_TIMEOUT TLS_CERT_FILE TLS_KEY_FILE LOG_LEVEL'.split(' '),
    ].sort(),
  );
  const given = Object.fromEntries(
    Object.entries(defaults).filter(([, value]) => value !== undefined),
  ) as Record<string, string>;
  expect(loadConfig(given)).toEqual(loadConfig({}));
});

test('the first 40 lines lead to a created intent', () => {
  const lines = readme.split('\n').slice(0, 40).join('\n');
  expect(lines).toMatch(/npm ci && npm start[\s\S]*\ncurl [\s\S]*201 Created/);
});

test('every link of the documents leads to a file', async () => {
  const documents = ['README.md', 'bench/README.md'];
  for await (const name of glob('docs/*.md')) documents.push(name);
  for (const document of documents) {
    const text = await readFile(document, 'utf8');
    for (const [, target = ''] of text.matchAll(/\]\((?!https?:|#)([^)#]+)/g)) {
      await expect(
        access(join(dirname(document), target)),
        `${document}: ${target}`,
      ).resolves.toBeUndefined();
    }
  }
});

test.each([
  'docs/integrate.md',
  'client/README.md',
  'src/contract/gen/openapi.json',
  'examples/checkout-server.ts',
  'examples/create-payment-intent.sh',
])('%s says how long an idempotency key is valid, and what to do afterwards', async (file) => {
  const text = (await readFile(file, 'utf8')).replaceAll(/\s+(?:[#*] )?/g, ' ');
  expect(text).toMatch(/key lives as long as (?:its|the) intent/);
  expect(text).toMatch(/expired/);
  expect(text).toContain('order-1001/2');
});
