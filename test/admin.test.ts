import { execFile, spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { type AddressInfo, createServer } from 'node:net';
import { promisify } from 'node:util';
import pg from 'pg';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { pgConfigOf } from '../src/database/location.ts';
import { parseIdentifier } from '../src/identifiers.ts';
import { parseKeyRing } from '../src/key-ring.ts';
import { apiKeyFormatOf } from '../src/merchants/api-key-format.ts';
import { createTestDatabase } from './support/service.ts';

const run = promisify(execFile);
let database: Awaited<ReturnType<typeof createTestDatabase>>;
let env: NodeJS.ProcessEnv;

beforeAll(async () => {
  database = await createTestDatabase();
  env = {
    ...process.env,
    DATABASE_URL: `postgresql://payments@localhost/${database.database}?host=${encodeURIComponent(database.socketFolder)}`,
    API_KEY_PEPPERS: `1:${randomBytes(32).toString('base64')}`,
  };
});

afterAll(() => database.drop());

async function admin(...args: string[]): Promise<{ code: number; stdout: string; stderr: string }> {
  try {
    return { code: 0, ...(await run(process.execPath, ['src/admin.ts', ...args], { env })) };
  } catch (error) {
    const { code, stdout, stderr } = error as { code: number; stdout: string; stderr: string };
    return { code, stdout, stderr };
  }
}

async function json(...args: string[]) {
  const { stdout, stderr, code } = await admin(...args, '--json');
  expect([code, stderr]).toEqual([0, '']);
  return JSON.parse(stdout);
}

const wallet = '0xd8dA6BF26964aF9D7eEd9e03E53415D37aA96045';
const other = `0x${'1'.repeat(40)}`;

test("a merchant's whole life", async () => {
  expect(await json('migrate')).toEqual({ applied: [] });
  const created = await json(
    'merchant',
    'create',
    '--name',
    "Ada's Books",
    '--mode',
    'mainnet',
    '--wallet',
    wallet.toLowerCase(),
  );
  expect(created).toEqual({
    merchant_id: expect.stringMatching(/^mer_/),
    name: "Ada's Books",
    mode: 'mainnet',
    wallet_base: wallet,
    wallet_polygon: wallet,
  });
  const { merchant_id } = created;
  await json(
    'merchant',
    'set-wallet',
    '--merchant',
    merchant_id,
    '--mode',
    'mainnet',
    '--wallet-polygon',
    other,
  );
  expect(await json('merchant', 'list')).toEqual([
    {
      merchant_id,
      name: "Ada's Books",
      created_at: expect.any(String),
      wallets: [
        { mode: 'mainnet', chain: 'base', address: wallet },
        { mode: 'mainnet', chain: 'polygon', address: other },
      ],
    },
  ]);

  const key = await json(
    'key',
    'create',
    '--merchant',
    merchant_id,
    '--mode',
    'mainnet',
    '--expires-in',
    '90d',
  );
  expect(apiKeyFormatOf(key.api_key, parseKeyRing(env.API_KEY_PEPPERS as string))).toBe('keyed');
  expect(Date.parse(key.expires_at) - Date.now()).toBeGreaterThan(89.99 * 86_400_000);
  const successor = await json('key', 'rotate', '--key', key.key_id, '--overlap', '24h');
  expect(successor.api_key).not.toBe(key.api_key);
  await json('key', 'revoke', '--key', successor.key_id);
  const keys = await json('key', 'list', '--merchant', merchant_id);
  expect(keys).toMatchObject([
    { key_id: key.key_id, status: 'expiring', mode: 'mainnet', format: 'keyed' },
    { key_id: successor.key_id, status: 'revoked', mode: 'mainnet' },
  ]);
  expect(Date.parse(keys[0].expires_at) - Date.now()).toBeLessThan(86_400_001);
  expect(JSON.stringify(keys)).not.toContain(key.api_key.slice(11, -4));
  expect(keys[0].hint.endsWith(key.api_key.slice(-4))).toBe(true);

  const table = await admin('key', 'list', '--merchant', merchant_id);
  expect(table.stdout).toMatch(/│ key_id .*│ mode .*│ hint .*│ status/);
  const shown = await admin('key', 'create', '--merchant', merchant_id, '--mode', 'testnet');
  const shownKey = shown.stdout.split('\n')[0] as string;
  expect(apiKeyFormatOf(shownKey, parseKeyRing(env.API_KEY_PEPPERS as string))).toBe('keyed');
  expect(shown.stdout).toContain('cannot be shown again');
});

describe('says what is wrong, in one line, and exits with 1', () => {
  const unknown = 'mer_01h2xcejqtf2nbrexx3vqjhp41';
  test.each<[string, string[], RegExp]>([
    [
      'a merchant that is not there',
      ['key', 'list', '--merchant', unknown],
      /there is no merchant mer_.*"merchant list"/,
    ],
    [
      'an id of something else',
      ['key', 'list', '--merchant', 'key_01h2xcejqtf2nbrexx3vqjhp41'],
      /not a merchant's id/,
    ],
    [
      'a key that is not there',
      ['key', 'revoke', '--key', 'key_01h2xcejqtf2nbrexx3vqjhp41'],
      /there is no key/,
    ],
    [
      'a key where its id belongs',
      ['key', 'revoke', '--key', 'sk_testnet_abc'],
      /that is not the id of a key/,
    ],
    ['no wallet', ['merchant', 'create', '--name', 'x', '--mode', 'testnet'], /name a payout wallet/],
    [
      'a wrong checksum',
      ['merchant', 'create', '--name', 'x', '--mode', 'testnet', '--wallet', wallet.replace('d8dA', 'd8da')],
      /EIP-55/,
    ],
    [
      'a token contract',
      [
        'merchant',
        'create',
        '--name',
        'x',
        '--mode',
        'testnet',
        '--wallet',
        '0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913',
      ],
      /tokens sent to it are lost/,
    ],
    [
      'two ways to name a wallet',
      ['merchant', 'create', '--name', 'x', '--mode', 'testnet', '--wallet', wallet, '--wallet-base', wallet],
      /cannot be used with/,
    ],
    [
      'an empty name',
      ['merchant', 'create', '--name', '', '--mode', 'testnet', '--wallet', wallet],
      /1 to 200 characters/,
    ],
    ['no mode', ['key', 'create', '--merchant', unknown], /required option '--mode/],
    [
      'an unknown mode',
      ['key', 'create', '--merchant', unknown, '--mode', 'sandbox'],
      /Allowed choices are testnet, mainnet/,
    ],
    [
      'a duration in words',
      ['key', 'create', '--merchant', unknown, '--mode', 'testnet', '--expires-in', 'soon'],
      /such as 24h or 90d/,
    ],
    [
      'a duration of a century',
      ['key', 'create', '--merchant', unknown, '--mode', 'testnet', '--expires-in', '36500d'],
      /at most 3650d/,
    ],
    ['an unknown command', ['key', 'burn'], /unknown command 'burn'/],
  ])('%s', async (_, args, says) => {
    const { code, stderr, stdout } = await admin(...args);
    // What the command line itself finds is a wrong call, the rest could not be done.
    expect([code, stdout]).toEqual([stderr.startsWith('error:') ? 2 : 1, '']);
    expect(stderr).toMatch(says);
    expect(stderr.trim().split('\n').length).toBeLessThanOrEqual(2);
    expect(stderr).not.toMatch(/\bat .*\.ts|sk_testnet_/);
  });
});

test.each([[['--help']], [['key', '--help']], [['key', 'rotate', '--help']]])(
  '%o shows examples and exits with 0',
  async (args) => {
    const { code, stdout } = await admin(...args);
    expect(code).toBe(0);
    expect(stdout).toMatch(/Examples:[\s\S]*key rotate/);
  },
);

// Other systems have another `script`.
describe.skipIf(process.platform !== 'linux')('revoking asks whoever sits at a terminal', () => {
  /** The command in a terminal of its own, with what is typed there; without `script` there is none to be had. */
  const inTerminal = async (typed: string, ...args: string[]) => {
    const command = [process.execPath, 'src/admin.ts', ...args].join(' ');
    const terminal = spawn('script', ['-qec', command, '/dev/null'], { env });
    let screen = '';
    terminal.stdout.on('data', (chunk) => {
      screen += chunk;
      if (screen.includes('[y/N]') && terminal.stdin.writable) terminal.stdin.end(typed);
    });
    const [code] = await once(terminal, 'close');
    return { code, screen };
  };
  const newKey = async () => {
    const { merchant_id } = await json(
      'merchant',
      'create',
      '--name',
      'x',
      '--mode',
      'testnet',
      '--wallet',
      wallet,
    );
    const { key_id } = await json('key', 'create', '--merchant', merchant_id, '--mode', 'testnet');
    const status = async () => (await json('key', 'list', '--merchant', merchant_id))[0].status;
    return { key_id, status };
  };

  test('no is no', async () => {
    const { key_id, status } = await newKey();
    const { code, screen } = await inTerminal('n\n', 'key', 'revoke', '--key', key_id);
    expect(screen).toMatch(/Revoke key_\w+ \(.*testnet, of mer_\w+\)\?.*for good\. \[y\/N\]/s);
    expect([code, await status()]).toEqual([1, 'active']);
  });

  test('yes is yes', async () => {
    const { key_id, status } = await newKey();
    const { code } = await inTerminal('y\n', 'key', 'revoke', '--key', key_id);
    expect([code, await status()]).toEqual([0, 'revoked']);
  });

  test('--yes asks nothing', async () => {
    const { key_id, status } = await newKey();
    const { code, screen } = await inTerminal('', 'key', 'revoke', '--key', key_id, '--yes');
    expect(screen).not.toMatch(/y\/N/);
    expect([code, await status()]).toEqual([0, 'revoked']);
  });
});

describe('doctor', () => {
  const ring = (version: number) => `${version}:${Buffer.alloc(32, version).toString('base64')}`;
  const doctor = async (change: NodeJS.ProcessEnv, ...args: string[]) => {
    const before = env;
    env = {
      ...env,
      CLIENT_SECRET_KEYS: ring(1),
      HTTP_PORT: '0',
      GRPC_PORT: '0',
      METRICS_PORT: '0',
      ...change,
    };
    return admin('doctor', ...args).finally(() => {
      env = before;
    });
  };

  test('one line for each check, and 0 where all is well', async () => {
    const { code, stdout } = await doctor({});
    const lines = stdout.trim().split('\n');
    expect(lines.map((line) => line.split(/ +/).slice(0, 2))).toEqual(
      [
        'configuration',
        'database',
        'schema',
        'secrets',
        'keys',
        'clock',
        'HTTP_PORT',
        'GRPC_PORT',
        'METRICS_PORT',
      ].map((check) => ['ok', check]),
    );
    expect(code).toBe(0);
  });

  test('counts the keys of the first release', async () => {
    const { merchant_id } = await json(
      'merchant',
      'create',
      '--name',
      'Old',
      '--mode',
      'testnet',
      '--wallet',
      wallet,
    );
    const { key_id } = await json('key', 'create', '--merchant', merchant_id, '--mode', 'testnet');
    expect((await doctor({})).stdout).toMatch(/^ok +keys +all have keyed check characters$/m);
    const client = new pg.Client(pgConfigOf(database));
    await client.connect();
    // As the first release stores a key.
    await client.query('update api_keys set format = default where id = $1', [
      parseIdentifier('key', key_id),
    ]);
    await client.end();
    expect((await doctor({})).stdout).toMatch(/^ok +keys +1 of the first release .*rotate them/m);
    await json('key', 'revoke', '--key', key_id);
    expect((await doctor({})).stdout).toMatch(/^ok +keys +all have keyed check characters$/m);
  });

  test('JSON for scripts', async () => {
    const { code, stdout } = await doctor({}, '--json');
    expect(code).toBe(0);
    expect(JSON.parse(stdout)).toContainEqual({ check: 'schema', ok: true, message: 'up to date' });
  });

  test('what is wrong, what to do about it, and 1', async () => {
    const taken = createServer().listen(0, '127.0.0.1');
    await once(taken, 'listening');
    const port = String((taken.address() as AddressInfo).port);
    const { code, stdout } = await doctor({ HTTP_PORT: port, API_KEY_PEPPERS: ring(7) });
    taken.close();
    expect(code).toBe(1);
    expect(stdout).toMatch(/^FAILED +secrets +lack version 1 of API_KEY_PEPPERS: put it back/m);
    expect(stdout).toMatch(
      new RegExp(`^FAILED +HTTP_PORT +port ${port} .* set HTTP_PORT to another port`, 'm'),
    );
  });

  test.each<[string, NodeJS.ProcessEnv, RegExp]>([
    ['a variable', { DATABASE_POOL: 'x' }, /FAILED +configuration .*DATABASE_POOL must be/],
    [
      'no database',
      { DATABASE_URL: 'postgresql://nobody@127.0.0.1:1/none' },
      /FAILED +database .*check DATABASE_URL/,
    ],
    [
      'an empty database',
      { DATABASE_URL: 'schema' },
      /FAILED +schema +lacks 2026-11-21-create-payment-intents, .*: run "npm run -s admin -- migrate"/,
    ],
    [
      'no certificate',
      { TLS_CERT_FILE: '/none', TLS_KEY_FILE: '/none' },
      /FAILED +TLS +TLS_CERT_FILE cannot be read/,
    ],
  ])('%s', async (_, change, says) => {
    // The cluster's own database has no schema of ours.
    const empty = env.DATABASE_URL?.replace(database.database, 'postgres');
    const { code, stdout } = await doctor(
      change.DATABASE_URL === 'schema' ? { DATABASE_URL: empty } : change,
    );
    expect(stdout).toMatch(says);
    expect([code, stdout]).not.toContainEqual(expect.stringMatching(/\n +at /));
    expect(code).toBe(1);
  });
});
