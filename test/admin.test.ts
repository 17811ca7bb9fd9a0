import { execFile } from 'node:child_process';
import { readFile } from 'node:fs/promises';
import { createServer } from 'node:net';
import { promisify } from 'node:util';
import type { MikroORM } from '@mikro-orm/postgresql';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { parseKeyRing } from '../src/config/key-ring.ts';
import type { ModeName } from '../src/contract/words.ts';
import { parseIdentifier } from '../src/database/identifiers.ts';
import { createOrm } from '../src/database/orm.ts';
import {
  createApiKey,
  createMerchant,
  findApiKey,
  findWallets,
  revokeApiKey,
} from '../src/merchants/administration.ts';
import { apiKeyFormatOf } from '../src/merchants/api-keys.ts';
import { runAdmin } from './support/admin.ts';
import { insertOf } from './support/intent-rows.ts';
import { listenInTest } from './support/listen.ts';
import { openClient } from './support/open-client.ts';
import { type OwnPostgres, startOwnPostgres } from './support/own-postgres.ts';
import { startPostgresProxy } from './support/postgres-proxy.ts';
import { startProgram } from './support/program.ts';
import { createTestDatabase } from './support/service.ts';
import { anyPorts, databaseUrl, newKeyRing } from './support/test-environment.ts';

const run = promisify(execFile);
let database: Awaited<ReturnType<typeof createTestDatabase>>;
/** For setup in this process: every run of the command line starts another one. */
let orm: MikroORM;
let env: NodeJS.ProcessEnv;

beforeAll(async () => {
  database = await createTestDatabase();
  orm = createOrm(database, 1);
  env = {
    ...process.env,
    DATABASE_URL: databaseUrl(database),
    API_KEY_PEPPERS: newKeyRing(),
    WEBHOOK_SECRET_KEYS: newKeyRing(),
  };
});

afterAll(async () => {
  await orm.close();
  await database.drop();
});

const admin = (...args: string[]) => runAdmin(args, env);

async function json(...args: string[]) {
  const { stdout, stderr, code } = await admin(...args, '--json');
  expect([code, stderr]).toEqual([0, '']);
  return JSON.parse(stdout);
}

/** Creates a merchant with a wallet in that mode. Returns it and the options for both. */
async function newMerchant(mode: ModeName): Promise<{ merchant_id: string; args: string[] }> {
  const merchant_id = await createMerchant(orm.em, 'x', mode, { base: wallet, polygon: wallet });
  return { merchant_id, args: ['--merchant', merchant_id, '--mode', mode] };
}

/** Creates a testnet key. */
async function newKey(merchantId: string, expiresAt?: Date): Promise<string> {
  const peppers = parseKeyRing(env.API_KEY_PEPPERS as string);
  return (await createApiKey(orm.em, peppers, merchantId, 'testnet', expiresAt)).keyId;
}

/** `doctor` reports mainnet keys if no process watches a mainnet chain. */
async function revokeMainnetKeys(): Promise<void> {
  await orm.em.execute("update api_keys set revoked_at = now() where mode = 'mainnet'");
}

const wallet = '0xd8dA6BF26964aF9D7eEd9e03E53415D37aA96045';
const other = `0x${'1'.repeat(40)}`;
const mainnet = ['--mode', 'mainnet'];

// Ten processes, one after the other.
test('a merchant from creation to the last revoked key', { timeout: 60_000 }, async () => {
  expect(await json('migrate')).toEqual({ applied: [] });
  const args = ['--name', "Ada's Books", ...mainnet, '--wallet', wallet.toLowerCase()];
  const created = await json('merchant', 'create', ...args);
  expect(created).toEqual({
    merchant_id: expect.stringMatching(/^mer_/),
    name: "Ada's Books",
    mode: 'mainnet',
    wallet_base: wallet,
    wallet_polygon: wallet,
  });
  const { merchant_id } = created;
  await json('merchant', 'set-wallet', '--merchant', merchant_id, ...mainnet, '--wallet-polygon', other);
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

  const key = await json('key', 'create', '--merchant', merchant_id, ...mainnet, '--expires-in', '90d');
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

  const changes = await orm.em.execute(
    'select actor, method, target, outcome, fields from audit_log order by id',
  );
  expect(changes.map(({ method, target }) => [method, target])).toEqual([
    ['admin merchant create', merchant_id],
    ['admin merchant set-wallet', merchant_id],
    ['admin key create', key.key_id],
    ['admin key rotate', key.key_id],
    ['admin key revoke', successor.key_id],
  ]);
  expect(changes[4]).toMatchObject({
    actor: 'cli',
    outcome: 'ok',
    fields: { arguments: `key revoke --key ${successor.key_id} --json` },
  });

  const table = await admin('key', 'list', '--merchant', merchant_id);
  expect(table.stdout).toMatch(/│ key_id .*│ mode .*│ hint .*│ status/);
  const shown = await admin('key', 'create', '--merchant', merchant_id, '--mode', 'testnet');
  const shownKey = shown.stdout.split('\n')[0] as string;
  expect(apiKeyFormatOf(shownKey, parseKeyRing(env.API_KEY_PEPPERS as string))).toBe('keyed');
  expect(shown.stdout).toContain('cannot be shown again');
});

test('a command whose answer is lost is not said to have failed', async () => {
  const { socketFolder, user, database: name } = database;
  const proxy = await startPostgresProxy(`${socketFolder}/.s.PGSQL.5432`, user, () => ({ type, body }) => {
    return type === 'C' && /^COMMIT/.test(body.toString()) ? 'cut' : 'forward';
  });
  const through = { ...env, DATABASE_URL: proxy.url.replace(/[^/]*$/, name) };
  const { code, stderr } = await runAdmin(
    ['merchant', 'create', '--name', 'Lost', '--mode', 'testnet', '--wallet', wallet],
    through,
  );
  expect([code, stderr]).toEqual([
    1,
    expect.stringMatching(
      /^admin: .*: the command may have been carried out nevertheless: look before you repeat it\n$/,
    ),
  ]);
  await proxy.close();
});

describe('prints the problem in at most two lines, exits 1, or 2 for a usage error', () => {
  const unknown = 'mer_01h2xcejqtf2nbrexx3vqjhp41';
  const create = 'merchant create --name x --mode testnet';
  const createKey = `key create --merchant ${unknown} --mode testnet`;
  test.each<[string, string, RegExp]>([
    ['an unknown merchant', `key list --merchant ${unknown}`, /there is no merchant mer_.*"merchant list"/],
    [
      'an id of another type',
      'key list --merchant key_01h2xcejqtf2nbrexx3vqjhp41',
      /"key_01h2xcejqtf2nbrexx3vqjhp41" is not a merchant's id: it does not begin with mer_;/,
    ],
    [
      'an id that is cut short',
      'key list --merchant mer_x',
      /"mer_x" is not a merchant's id: it needs 26 characters after mer_, not 1; "merchant list"/,
    ],
    [
      'an id with a letter that ids do not have',
      'key list --merchant mer_01h2xcejqtf2nbrexx3vqjhp4l',
      /it has a "l", which no id has/,
    ],
    [
      'an id in capital letters',
      'key list --merchant mer_01H2XCEJQTF2NBREXX3VQJHP41',
      /it has capital letters, and an id has none/,
    ],
    [
      'an id beyond the largest UUID',
      'key list --merchant mer_81h2xcejqtf2nbrexx3vqjhp41',
      /it has a "8" after mer_, where an id has 0 to 7/,
    ],
    ['an unknown key', 'key revoke --key key_01h2xcejqtf2nbrexx3vqjhp41', /there is no key/],
    [
      'a key instead of its id',
      'key revoke --key sk_testnet_abc',
      /that is not the id of a key: it is a secret key itself;/,
    ],
    [
      'a secret instead of an id',
      'key list --merchant sk_testnet_abc',
      /that is not the id of a merchant: it is a secret key itself;/,
    ],
    [
      'an option twice',
      'key revoke --key key_01h2xcejqtf2nbrexx3vqjhp41 --key key_01h2xcejqtf2nbrexx3vqjhp42',
      /--key is given twice: give it once/,
    ],
    ['no wallet', create, /name a payout wallet/],
    ['a wrong checksum', `${create} --wallet ${wallet.replace('d8dA', 'd8da')}`, /EIP-55/],
    [
      'a token contract',
      `${create} --wallet 0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913`,
      /tokens sent to it are lost/,
    ],
    [
      'both --wallet and --wallet-base',
      `${create} --wallet ${wallet} --wallet-base ${wallet}`,
      /cannot be used with/,
    ],
    ['an empty name', `merchant create --name  --mode testnet --wallet ${wallet}`, /1 to 200 characters/],
    [
      'a blank name',
      `merchant create --name \u3000 --mode testnet --wallet ${wallet}`,
      /1 to 200 characters/,
    ],
    [
      'a name with a control character',
      `merchant create --name a\x1b[2J --mode testnet --wallet ${wallet}`,
      /a merchant's name must be one line without control, bidirectional or invisible characters, but contains U\+001B/,
    ],
    [
      'a name with an invisible character',
      `merchant create --name a\u{e0041}b --mode testnet --wallet ${wallet}`,
      /a merchant's name must be one line .* invisible characters, but contains U\+E0041/,
    ],
    ['no mode', `key create --merchant ${unknown}`, /required option '--mode/],
    [
      'a misspelt option in place of a required one',
      `merchant create --nam x --mode testnet --wallet ${wallet}`,
      /^error: unknown option '--nam'\n\(Did you mean --name\?\)/,
    ],
    [
      'an unknown mode',
      `key create --merchant ${unknown} --mode sandbox`,
      /Allowed choices are testnet, mainnet/,
    ],
    ['a duration in words', `${createKey} --expires-in soon`, /such as 24h or 90d/],
    ['a duration of a century', `${createKey} --expires-in 36500d`, /at most 3650d/],
    [
      'a key that would expire at once',
      `${createKey} --expires-in 0s`,
      /'0s' is invalid. The key would be refused from the start/,
    ],
    [
      'a successor that would expire at once',
      'key rotate --key key_01h2xcejqtf2nbrexx3vqjhp41 --overlap 1h --expires-in 0d',
      /'0d' is invalid/,
    ],
    ['an unknown command', 'key burn', /unknown command 'burn'/],
  ])('%s', async (_, line, says) => {
    const { code, stderr, stdout } = await admin(...line.split(' '));
    // Usage errors are found by the command line parser, the rest by the command.
    expect([code, stdout]).toEqual([stderr.startsWith('error:') ? 2 : 1, '']);
    expect(stderr).toMatch(says);
    expect(stderr.trim().split('\n').length).toBeLessThanOrEqual(2);
    expect(stderr).not.toMatch(/\bat .*\.ts|sk_testnet_/);
  });
});

describe('--help', () => {
  const examplesIn = async (...args: string[]) => {
    const { code, stdout } = await admin(...args, '--help');
    expect(code).toBe(0);
    return [...stdout.matchAll(/^ {2}\$ npm run -s admin -- (.*)$/gm)].map(([, line = '']) => line);
  };

  test('a command shows its own example and no other', async () => {
    expect(await examplesIn('key', 'create')).toEqual([
      'key create --merchant mer_… --mode mainnet --expires-in 90d',
    ]);
    expect(await examplesIn('doctor')).toEqual(['doctor']);
  });

  test('a group shows the examples of its commands, and the program shows all', async () => {
    const ofKey = await examplesIn('key');
    expect(ofKey.map((line) => line.split(' ')[1])).toEqual(['create', 'list', 'revoke', 'rotate']);
    const all = await examplesIn();
    expect(all).toEqual(expect.arrayContaining(ofKey));
    expect(all).toContain('merchant list');
  });

  test('marks required options', async () => {
    const { stdout } = await admin('key', 'rotate', '--help');
    const required = [...stdout.replace(/\n {10,}/g, ' ').matchAll(/^ {2}(--\S+).*\(required\)$/gm)];
    expect(required.map(([, flag]) => flag)).toEqual(['--key', '--overlap']);
  });
});

test('--version', async () => {
  const { version } = JSON.parse(await readFile('package.json', 'utf8'));
  expect(await admin('--version')).toEqual({ code: 0, stdout: `${version}\n`, stderr: '' });
});

test('a list of keys in every state fits 120 columns', async () => {
  const { merchant_id } = await newMerchant('testnet');
  const in90Days = new Date(Date.now() + 90 * 86_400_000);
  await newKey(merchant_id);
  await newKey(merchant_id, in90Days);
  await revokeApiKey(orm.em, await newKey(merchant_id, in90Days));
  const { stdout } = await admin('key', 'list', '--merchant', merchant_id);
  expect(Math.max(...stdout.split('\n').map((line) => line.length))).toBeLessThanOrEqual(120);
  expect(stdout).toMatch(/│ active +│/);
  expect(stdout).toMatch(/│ expiring \d{4}-\d\d-\d\d \d\d:\d\d +│/);
  expect(stdout).toMatch(/│ revoked \d{4}-\d\d-\d\d \d\d:\d\d +│/);
});

test('no table is wider than 120 columns: wider rows are printed as blocks', async () => {
  const { merchant_id } = await newMerchant('testnet');
  const args = ['--merchant', merchant_id, '--mode', 'testnet', '--wallet', wallet];
  const { stdout } = await admin('merchant', 'set-wallet', ...args);
  expect(Math.max(...stdout.split('\n').map((line) => line.length))).toBeLessThanOrEqual(120);
  expect(stdout).toMatch(new RegExp(`│ wallet_polygon +│ ${wallet} +│`));
});

describe("the origins of a merchant's pages", () => {
  const setOrigins = async (args: string[], origins: string) =>
    admin('merchant', 'set-origins', ...args, '--origins', origins, '--json');

  test('are stored as browsers write them, without duplicates, and can be replaced', async () => {
    const { merchant_id, args } = await newMerchant('testnet');
    const given = ' https://Shop.example:443/,https://shop.example, http://localhost:3000';
    const { stdout } = await setOrigins(args, given);
    const origins = ['https://shop.example', 'http://localhost:3000'];
    expect(JSON.parse(stdout)).toEqual({ merchant_id, mode: 'testnet', origins });
    expect(JSON.parse((await setOrigins(args, '')).stdout).origins).toEqual([]);
  });

  test.each([
    'http://shop.example',
    'https://shop.example/cart',
    'https://shop.example?x',
    'https://user@shop.example',
    'shop.example',
    'javascript:alert(1)',
    'null',
    'https://*.example',
  ])('are never %s', async (origin) => {
    const { args } = await newMerchant('testnet');
    const { code, stdout, stderr } = await setOrigins(args, origin);
    expect([code, stdout]).toEqual([1, '']);
    expect(stderr).toContain(`"${origin}" is not an origin: it is https:// and a host`);
  });
});

describe('a key for a mode without a wallet', () => {
  test('is issued with a warning on standard error', async () => {
    const { merchant_id } = await newMerchant('testnet');
    const args = ['--merchant', merchant_id, '--mode', 'mainnet', '--json'];
    const { code, stdout, stderr } = await admin('key', 'create', ...args);
    const peppers = parseKeyRing(env.API_KEY_PEPPERS as string);
    expect([code, apiKeyFormatOf(JSON.parse(stdout).api_key, peppers)]).toEqual([0, 'keyed']);
    expect(stderr).toMatch(
      new RegExp(`^admin: warning: ${merchant_id} has no mainnet wallet.*"merchant set-wallet" sets it\n$`),
    );
  });

  test('there is no warning if the mode has a wallet', async () => {
    const { args } = await newMerchant('testnet');
    expect((await admin('key', 'create', ...args)).stderr).toBe('');
  });
});

describe('output errors', () => {
  const through = (pipe: string) =>
    run('bash', ['-c', `set -o pipefail; "$0" src/admin.ts merchant list ${pipe}`, process.execPath], {
      env,
    }).catch((error) => error);

  test('a reader that closes the pipe early is not an error', async () => {
    const { stdout, stderr, code } = await through('| true');
    expect([stdout, stderr, code]).toEqual(['', '', undefined]);
  });

  test('a full disk is an error', async () => {
    const { stderr, code } = await through('> /dev/full');
    expect(code).toBe(1);
    expect(stderr).toMatch(/^admin: the output could not be written \(ENOSPC/);
    expect(stderr).not.toMatch(/\bat .*\.ts/);
  });
});

describe('a role without the rights: prints the grant to run in one line, exits 1', () => {
  let postgres: OwnPostgres;

  beforeAll(async () => {
    postgres = await startOwnPostgres({ isMigrated: true });
    await postgres.query('create role "we-ak" login');
    await postgres.query('grant select on all tables in schema public to "we-ak"');
  });

  afterAll(() => postgres.stop());

  const asWeak = async (name: string, ...args: string[]) => {
    const before = env;
    env = { ...env, DATABASE_URL: postgres.url('we-ak', name) };
    return admin(...args).finally(() => {
      env = before;
    });
  };

  test('migrate', async () => {
    expect(await asWeak('empty', 'migrate')).toEqual({
      code: 1,
      stdout: '',
      stderr:
        'admin: the role we-ak may not change the schema of the database empty (permission denied for schema public): its owner has to run "grant usage, create on schema public to "we-ak"", or make we-ak the owner of the database\n',
    });
    // The grant is sufficient.
    await postgres.query('grant usage, create on schema public to "we-ak"', 'empty');
    expect(await asWeak('empty', 'migrate')).toMatchObject({ code: 0 });
  });

  test('merchant create', async () => {
    const args = ['--name', 'x', '--mode', 'testnet', '--wallet', wallet];
    expect(await asWeak('postgres', 'merchant', 'create', ...args)).toEqual({
      code: 1,
      stdout: '',
      stderr: expect.stringMatching(
        /^admin: the database refused \(permission denied for table audit_log\): grant .*"Rights" in docs\/operations\.md.*\n$/,
      ),
    });
    await postgres.query('alter role "we-ak" set default_transaction_read_only = on');
    expect((await asWeak('postgres', 'merchant', 'create', ...args)).stderr).toMatch(
      /^admin: the database refused \(cannot execute INSERT in a read-only transaction\): .*has to name the primary/,
    );
  });
});

// Other systems have another `script`.
describe.skipIf(process.platform !== 'linux')(
  'irreversible commands ask for confirmation in a terminal',
  () => {
    /** Runs the command in a terminal with that input. The terminal comes from `script`. */
    const inTerminal = async (typed: string, ...args: string[]) => {
      const command = [process.execPath, 'src/admin.ts', ...args].join(' ');
      const terminal = startProgram(['script', '-qec', command, '/dev/null'], { env, stdio: 'pipe' });
      const answer = () => void terminal.child.stdin?.end(typed);
      terminal.until(/\[y\/N\]/).then(answer, () => {});
      const [code] = await terminal.ended;
      return { code, screen: terminal.printed.output };
    };
    const newTestnetKey = async () => newKey((await newMerchant('testnet')).merchant_id);
    const statusOf = async (keyId: string) => (await findApiKey(orm.em, keyId)).status;

    test('"no" cancels', async () => {
      const key_id = await newTestnetKey();
      const { code, screen } = await inTerminal('n\n', 'key', 'revoke', '--key', key_id);
      expect(screen).toMatch(/Revoke key_\w+ \(.*testnet, of mer_\w+\)\?.*for good\. \[y\/N\]/s);
      expect([code, await statusOf(key_id)]).toEqual([1, 'active']);
    });

    test('"yes" confirms', async () => {
      const key_id = await newTestnetKey();
      const { code } = await inTerminal('y\n', 'key', 'revoke', '--key', key_id);
      expect([code, await statusOf(key_id)]).toEqual([0, 'revoked']);
    });

    test('--yes asks nothing', async () => {
      const key_id = await newTestnetKey();
      const { code, screen } = await inTerminal('', 'key', 'revoke', '--key', key_id, '--yes');
      expect(screen).not.toMatch(/y\/N/);
      expect([code, await statusOf(key_id)]).toEqual([0, 'revoked']);
    });

    describe('changing a mainnet wallet', () => {
      const walletsOf = async (merchantId: string) => {
        const { base, polygon } = await findWallets(orm.em, merchantId, 'mainnet');
        return [base, polygon];
      };
      const setWallet = (args: string[], ...more: string[]) => ['merchant', 'set-wallet', ...args, ...more];

      test('shows both wallets; "no" cancels, "yes" confirms', async () => {
        const { merchant_id, args } = await newMerchant('mainnet');
        const change = setWallet(args, '--wallet-polygon', other);
        const refused = await inTerminal('n\n', ...change);
        expect(refused.screen).toMatch(
          new RegExp(`polygon +${wallet} -> ${other}\\s+Change it\\? \\[y/N\\]`),
        );
        expect(refused.screen).not.toMatch(/base +0x/);
        expect([refused.code, await walletsOf(merchant_id)]).toEqual([1, [wallet, wallet]]);
        const agreed = await inTerminal('y\n', ...change);
        expect([agreed.code, await walletsOf(merchant_id)]).toEqual([0, [wallet, other]]);
      });

      test('--yes asks nothing; neither does setting the same wallet again', async () => {
        const { merchant_id, args } = await newMerchant('mainnet');
        const same = await inTerminal('', ...setWallet(args, '--wallet', wallet));
        expect([same.code, same.screen.includes('y/N')]).toEqual([0, false]);
        const changed = await inTerminal('', ...setWallet(args, '--wallet', other, '--yes'));
        expect([changed.code, changed.screen.includes('y/N')]).toEqual([0, false]);
        expect(await walletsOf(merchant_id)).toEqual([other, other]);
      });

      test('a testnet wallet changes without a question', async () => {
        const { args } = await newMerchant('testnet');
        const { code, screen } = await inTerminal('', ...setWallet(args, '--wallet', other));
        expect([code, screen.includes('y/N')]).toEqual([0, false]);
      });
    });
  },
);

describe('doctor', () => {
  const ring = (version: number) => `${version}:${Buffer.alloc(32, version).toString('base64')}`;
  const doctor = async (change: NodeJS.ProcessEnv, ...args: string[]) => {
    const before = env;
    env = { ...env, CLIENT_SECRET_KEYS: ring(1), ...anyPorts, ...change };
    return admin('doctor', ...args).finally(() => {
      env = before;
    });
  };

  beforeAll(revokeMainnetKeys);

  test('prints one line for each check, exits 0 if all pass', async () => {
    const { code, stdout } = await doctor({});
    const lines = stdout.trim().split('\n');
    expect(lines.map((line) => line.split(/ +/).slice(0, 2))).toEqual(
      [
        ...'configuration database schema rights disk secrets keys replication intents chains'.split(' '),
        ...'clock HTTP_PORT GRPC_PORT METRICS_PORT CONSOLE_PORT'.split(' '),
      ].map((check) => ['ok', check]),
    );
    expect(code).toBe(0);
  });

  test('verifies the newest intents, or all of them', async () => {
    expect((await doctor({})).stdout).toMatch(/^ok +intents +all 0 satisfy every rule$/m);
    const client = await openClient(database);
    await client.query(
      `insert into payment_intents (id, merchant_id, mode, status, network, amount_units, expected_wallet, lane, metadata,
         created_at, expires_at, client_secret_version)
       values (gen_random_uuid(), gen_random_uuid(), 'testnet', 'requires_payment', 3, 1, sha256('')::bytea, 'sdk', '{}',
         now(), now(), 1)`,
    );
    const { code, stdout } = await doctor({}, '--all-intents');
    expect(code).toBe(1);
    for (const rule of ['its merchant is there', 'its wallet has 20 bytes']) {
      expect(stdout).toMatch(
        new RegExp(`^FAILED +intents +all 1 were read: .*"${rule}" is broken by 1, such as pi_`, 'm'),
      );
    }
    await client.query('delete from payment_intents');
    await client.end();
  });

  test('verifies a hundred thousand intents unless all are asked for', async () => {
    const { merchant_id } = await newMerchant('testnet');
    const merchantId = parseIdentifier('mer', merchant_id) as string;
    const client = await openClient(database);
    await client.query(...insertOf({ merchantId, count: 100_001, firstAtMs: Date.now() - 200_000 }));
    expect((await doctor({})).stdout).toMatch(/^\w+ +intents +the newest 100000 (?:satisfy|were read)/m);
    expect((await doctor({}, '--all-intents')).stdout).toMatch(/^\w+ +intents +all 100001 /m);
    await client.query('truncate payment_intents');
    await client.end();
  });

  test('counts the keys of the first release', async () => {
    const key_id = await newKey((await newMerchant('testnet')).merchant_id);
    expect((await doctor({})).stdout).toMatch(/^ok +keys +all have keyed check characters$/m);
    const client = await openClient(database);
    // Stored in the format of the first release.
    await client.query('update api_keys set format = default where id = $1', [
      parseIdentifier('key', key_id),
    ]);
    await client.end();
    expect((await doctor({})).stdout).toMatch(/^ok +keys +1 of the first release .*rotate them/m);
    await revokeApiKey(orm.em, key_id);
    expect((await doctor({})).stdout).toMatch(/^ok +keys +all have keyed check characters$/m);
  });

  test('--json prints JSON for scripts', async () => {
    const { code, stdout } = await doctor({}, '--json');
    expect(code).toBe(0);
    expect(JSON.parse(stdout)).toContainEqual({ check: 'schema', ok: true, message: 'up to date' });
  });

  test('prints the problem and the remedy, exits 1', async () => {
    const { port } = new URL(await listenInTest(createServer()));
    const { code, stdout } = await doctor({ HTTP_PORT: port, API_KEY_PEPPERS: ring(7) });
    expect(code).toBe(1);
    expect(stdout).toMatch(/^FAILED +secrets +the secrets lack version 1 of API_KEY_PEPPERS: add it again/m);
    expect(stdout).toMatch(
      new RegExp(`^FAILED +HTTP_PORT +port ${port} .* set HTTP_PORT to another port`, 'm'),
    );
  });

  test.each<[string, NodeJS.ProcessEnv, RegExp]>([
    ['an invalid variable', { DATABASE_POOL: 'x' }, /FAILED +configuration .*DATABASE_POOL must be/],
    [
      'a misspelt variable',
      { RPC_URL_BSE: 'http://127.0.0.1:1' },
      /FAILED +configuration +RPC_URL_BSE is set and not read: did you mean RPC_URL_BASE\?\nok /,
    ],
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
    const empty = env.DATABASE_URL?.replace(database.database, 'empty');
    const { code, stdout } = await doctor(
      change.DATABASE_URL === 'schema' ? { DATABASE_URL: empty } : change,
    );
    expect(stdout).toMatch(says);
    expect([code, stdout]).not.toContainEqual(expect.stringMatching(/\n +at /));
    expect(code).toBe(1);
  });
});

test('an unexpected error is printed without control characters', async () => {
  await orm.em.execute(`
    create function refuse() returns trigger language plpgsql as
      $$ begin raise exception E'a\\x1b[2Jb\\u009bc\\u202ed\\U000E0041'; end $$;
    create trigger refuse before insert on merchants execute function refuse()`);
  const args = ['merchant', 'create', '--name', 'x', '--mode', 'testnet', '--wallet', wallet];
  const { code, stderr } = await admin(...args);
  await orm.em.execute('drop function refuse cascade');
  expect(code).toBe(1);
  expect(stderr).toContain(String.raw`a\u001b[2Jb\u009bc\u202ed\udb40\udc41`);
  expect(stderr.replaceAll('\n', '')).not.toMatch(
    /[\p{Cc}\p{Bidi_Control}\p{Default_Ignorable_Code_Point}]/u,
  );
});
