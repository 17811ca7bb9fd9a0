// The process itself, started as in the README.

import { type ChildProcess, execFile } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { chmod, chown, mkdtemp, readFile, rm, stat, writeFile } from 'node:fs/promises';
import net from 'node:net';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { promisify } from 'node:util';
import { privateKeyToAccount } from 'viem/accounts';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { loadConfig } from '../src/config/config.ts';
import { StartupError } from '../src/config/startup-error.ts';
import { migrate } from '../src/database/orm.ts';
import { startEmbeddedPostgres } from '../src/embedded/postgres.ts';
import { openDatabase } from '../src/processes/open-database.ts';
import { listenInTest } from './support/listen.ts';
import { openClient } from './support/open-client.ts';
import { startProgram } from './support/program.ts';
import { createTestDatabase, postJson, startService } from './support/service.ts';
import { anyPorts, bareEnvironment, databaseUrl, newSecrets, scriptOf } from './support/test-environment.ts';

const run = promisify(execFile);
/** For tests that are not about chains: without it, each start runs two local chains. */
const api = { ROLES: 'api' };
const isRoot = process.getuid?.() === 0;
/** An unprivileged account to start the service with, if we are root. */
const nobody = 65534;

let folder: string;
/** The data of a service that was started once and stopped. */
let usedData: string;
/** The `postmaster.pid` of its PostgreSQL while it ran. */
let usedPidFile: string;

beforeAll(async () => {
  folder = await newFolder();
  usedData = join(folder, 'data');
  const service = await start({ DATA_DIR: usedData, ...api });
  usedPidFile = await readFile(join(usedData, 'postgres', 'postmaster.pid'), 'utf8');
  await service.exit('SIGINT');
});

afterAll(() => rm(dirname(usedData), { recursive: true, force: true }));

beforeEach(async () => {
  folder = await newFolder();
});

afterEach(() => rm(folder, { recursive: true, force: true }));

async function newFolder(): Promise<string> {
  const created = await mkdtemp(join(tmpdir(), 'pi-start-'));
  await chmod(created, 0o755);
  return created;
}

/** Copies the used data, for tests that need no first start: that takes longer than everything else. */
async function copyUsedData(name = 'data'): Promise<string> {
  const copy = join(folder, name);
  await run('cp', ['-Rp', usedData, copy]);
  return copy;
}

interface Started {
  child: ChildProcess;
  /** Standard output so far. */
  output(): string;
  curl: string;
  url: string;
  exit(signal: NodeJS.Signals): Promise<{ code: number | null; output: string }>;
}

/** Runs the script of `npm start`, or npm itself, in its own process group, as a terminal does. */
async function start(
  env: Record<string, string>,
  account: { uid?: number; gid?: number } = {},
  command = scriptOf('start'),
): Promise<Started> {
  const settings = { ...bareEnvironment(), HOME: folder, ...anyPorts, ...env };
  const { child, printed, ended, until } = startProgram(command, {
    env: settings,
    detached: true,
    ...account,
  });
  const [curl] = await until(env.DATABASE_URL ? /"message":"ready"/ : /^curl .*(?=\n)/m);
  return {
    child,
    output: () => printed.output,
    curl,
    url: /https?:\/\/[\d.:]+\/v1\/payment_intents/.exec(curl)?.[0] ?? '',
    async exit(signal) {
      // Signals the whole group, as Ctrl-C does.
      process.kill(-(child.pid as number), signal);
      const [code] = await ended;
      return { code, output: printed.output + printed.errors };
    },
  };
}

/** Creates the same intent every time. */
function create({ url }: Started, key: string) {
  return postJson(url, key, '{"amount_units":7}', { headers: { 'idempotency-key': 'k' } });
}

/** Runs a start that is expected to fail. */
async function fail(env: Record<string, string>, account: { uid?: number; gid?: number } = {}) {
  const { ended, printed } = startProgram([process.execPath, 'src/main.ts'], {
    env: { ...bareEnvironment(), HOME: folder, DATA_DIR: join(folder, 'data'), ...anyPorts, ...env },
    ...account,
  });
  const [code] = await ended;
  return { code, errors: printed.errors };
}

const accounts = [
  ['this user', {}],
  ...(isRoot ? [['an ordinary user', { uid: nobody, gid: nobody }] as const] : []),
] as const;

describe.each(accounts)('npm start as %s', (_, account) => {
  test('a first start prints a curl command that works, and the second start has the same data', async () => {
    const dataDir = join(folder, 'data');
    if ('uid' in account) await chown(folder, account.uid, account.gid);
    // PGPORT of the user's own PostgreSQL must not be used.
    const first = await start({ DATA_DIR: dataDir, PGPORT: '1' }, account, ['npm', 'start']);
    const { stdout } = await run('sh', ['-c', first.curl.replace('curl -i', 'curl -sS')]);
    expect(JSON.parse(stdout)).toMatchObject({
      status: 'requires_payment',
      mode: 'testnet',
      amount_units: 12_500_000,
    });

    for (const file of ['demo.json', 'secrets.json'])
      expect((await stat(join(dataDir, file))).mode & 0o777).toBe(0o600);
    const demo = JSON.parse(await readFile(join(dataDir, 'demo.json'), 'utf8'));
    expect(Object.keys(demo)).toEqual(['merchant_id', 'testnet_key', 'wallet_address', 'wallet_private_key']);
    expect(privateKeyToAccount(demo.wallet_private_key).address).toBe(demo.wallet_address);
    expect(JSON.parse(stdout).expected_wallet).toBe(demo.wallet_address);

    const original = await create(first, demo.testnet_key);
    expect(original.status).toBe(201);
    expect(await first.exit('SIGINT')).toMatchObject({
      code: 0,
      output: expect.stringContaining('"message":"stopped"'),
    });
    await expect(stat(join(dataDir, 'postgres', 'postmaster.pid'))).rejects.toThrow('ENOENT');

    const second = await start({ DATA_DIR: dataDir, ...api }, account, ['npm', 'start']);
    expect(second.curl.split("'")[1]).toBe(first.curl.split("'")[1]);
    const again = await create(second, demo.testnet_key);
    expect(again.body).toBe(original.body);
    expect(again.headers['idempotent-replayed']).toBe('true');
    expect(await second.exit('SIGTERM')).toMatchObject({ code: 0 });
    await expect(stat(join(dataDir, 'postgres', 'postmaster.pid'))).rejects.toThrow('ENOENT');
  });
});

test('without a terminal no key and no client secret are printed, and the printed command still works', async () => {
  // A folder name that must be quoted in a shell.
  const dataDir = await copyUsedData("Ada's data");
  const service = await start({ DATA_DIR: dataDir });
  const { testnet_key } = JSON.parse(await readFile(join(dataDir, 'demo.json'), 'utf8'));
  const { stdout } = await run('sh', ['-c', service.curl.replace('curl -i', 'curl -sS')], { cwd: '/' });
  expect(JSON.parse(stdout)).toMatchObject({ status: 'requires_payment' });
  const { origin } = new URL(service.url);
  const page = await (await fetch(`${origin}/checkout`)).text();
  expect(page).toContain('<meta name="test-wallet" content="base polygon">');
  const { output } = await service.exit('SIGINT');
  expect(output).toContain(join(dataDir, 'demo.json'));
  expect(output).toContain(`Open its checkout: ${origin}/checkout#<client_secret>\n`);
  expect(output).not.toContain(testnet_key);
  expect(output).not.toMatch(/_secret_[\w-]{10}|#cl_\w/);
});

// Other systems have another `script`.
test.skipIf(process.platform !== 'linux')(
  'on a terminal the printed command contains the key, and the link opens a checkout',
  async () => {
    const dataDir = await copyUsedData();
    const command = `echo "pid $$"; exec ${process.execPath} src/main.ts`;
    const { printed, ended, until } = startProgram(['script', '-qec', command, '/dev/null'], {
      env: { ...bareEnvironment(), ...anyPorts, ...api, DATA_DIR: dataDir, TERM: 'dumb' },
      stdio: ['pipe', 'pipe', 'inherit'],
    });
    await until(/^curl .*\r?\n/m);
    const screen = printed.output;
    expect(screen).toMatch(/http:\/\/127\.0\.0\.1:\d+\/#cl_\w{49}\r?\n/);
    const { testnet_key } = JSON.parse(await readFile(join(dataDir, 'demo.json'), 'utf8'));
    expect(screen).toContain(`-H 'Authorization: Bearer ${testnet_key}'`);
    const [, origin, secret] =
      /(http:\/\/[\d.:]+)\/checkout#(pi_\w+_secret_[\w-]{43})\r?\n/.exec(screen) ?? [];
    const checkout = await fetch(`${origin}/v1/checkout`, { headers: { authorization: `Bearer ${secret}` } });
    expect(await checkout.json()).toMatchObject({
      status: 'requires_payment',
      amount_units: 12_500_000,
      mode: 'testnet',
      chain: 'base',
      merchant_name: 'Demo merchant',
    });
    process.kill(Number(/pid (\d+)/.exec(screen)?.[1]), 'SIGINT');
    await ended;
  },
);

test('a service that joined a running database ends when the database ends, and logs the reason', async () => {
  const dataDir = await copyUsedData();
  const owner = await start({ DATA_DIR: dataDir, ...api });
  const joined = await start({ DATA_DIR: dataDir, ...api });
  const [pid] = (await readFile(join(dataDir, 'postgres', 'postmaster.pid'), 'utf8')).split('\n');
  const exits = [owner, joined].map(async ({ child, output }) => {
    const [code] = await once(child, 'exit');
    return [code, /the embedded PostgreSQL has ended unexpectedly/.test(output())];
  });
  process.kill(Number(pid), 'SIGQUIT');
  expect(await Promise.all(exits)).toEqual([
    [1, true],
    [1, true],
  ]);
});

test('a stale pid file whose number now belongs to another process does not prevent a start', async () => {
  const dataDir = await copyUsedData();
  const pidFile = join(dataDir, 'postgres', 'postmaster.pid');
  const left = usedPidFile.replaceAll(usedData, dataDir);
  await writeFile(pidFile, left.replace(/^\d+/, String(process.pid)));
  if (isRoot) await chown(pidFile, (await stat(join(dataDir, 'postgres'))).uid, 0);
  // PostgreSQL itself refuses to start if its own account owns the process, and otherwise ignores the file.
  if (!isRoot) return;
  const service = await start({ DATA_DIR: dataDir, ...api });
  expect(await service.exit('SIGINT')).toMatchObject({ code: 0 });
});

test('the embedded database can be reached only through its socket, by its owner, and others cannot list its folder', async () => {
  // The address for TCP.
  expect(usedPidFile.split('\n')[5]).toBe('');
  const modeOf = async (path: string) => (await stat(path)).mode & 0o777;
  if (isRoot) expect(await modeOf(usedData)).toBe(0o711);
  const dataDir = await copyUsedData();
  const service = await start({ DATA_DIR: dataDir, ...api });
  expect(await modeOf(join(dataDir, 'postgres'))).toBe(0o700);
  expect(await modeOf(join(dataDir, 'postgres', '.s.PGSQL.5432'))).toBe(0o700);
  await service.exit('SIGINT');
});

test('two services share one embedded database; the last one to stop stops it', async () => {
  const dataDir = join(folder, 'data');
  const begin = () => start({ DATA_DIR: dataDir, ...api });
  const [one, two] = await Promise.all([begin(), begin()]);
  const { testnet_key } = JSON.parse(await readFile(join(dataDir, 'demo.json'), 'utf8'));
  const original = await create(one, testnet_key);
  expect(await one.exit('SIGINT')).toMatchObject({ code: 0 });
  expect((await create(two, testnet_key)).body).toBe(original.body);
  expect(await two.exit('SIGINT')).toMatchObject({ code: 0 });
  await expect(stat(join(dataDir, 'postgres', 'postmaster.pid'))).rejects.toThrow('ENOENT');
});

test('after kill -9 the next start joins the database that is still running', async () => {
  const dataDir = await copyUsedData();
  const killed = await start({ DATA_DIR: dataDir, ...api });
  await killed.exit('SIGKILL');
  const next = await start({ DATA_DIR: dataDir, ...api });
  const { stdout } = await run('sh', ['-c', next.curl.replace('curl -i', 'curl -sS')]);
  expect(JSON.parse(stdout)).toMatchObject({ status: 'requires_payment' });
  expect(await next.exit('SIGINT')).toMatchObject({ code: 0 });
  await expect(stat(join(dataDir, 'postgres', 'postmaster.pid'))).rejects.toThrow('ENOENT');
});

describe('with a DATABASE_URL', () => {
  let database: Awaited<ReturnType<typeof createTestDatabase>>;
  let env: Record<string, string>;

  beforeAll(async () => {
    database = await createTestDatabase();
    env = { DATABASE_URL: databaseUrl(database), ...newSecrets() };
  });

  afterAll(() => database.drop());

  test('refuses an older schema until it is migrated, then starts without a demo merchant', async () => {
    const name = `older_${randomUUID().replaceAll('-', '')}`;
    const admin = await openClient(database);
    await admin.query(`create database ${name}`);
    const older = { ...env, DATABASE_URL: env.DATABASE_URL?.replace(database.database, name) as string };
    const { code, errors } = await fail(older);
    expect([code, errors]).toEqual([
      1,
      expect.stringMatching(
        /^payment-intent-service: the database lacks \d+ migration.*"npm run -s admin -- migrate".*\n$/,
      ),
    ]);

    await run('npm', ['run', '-s', 'admin', '--', 'migrate'], {
      env: { ...process.env, DATABASE_URL: older.DATABASE_URL },
    });
    expect(await migrate({ ...database, database: name })).toEqual([]);
    const started = await start(older);
    expect(started.output()).not.toMatch(/curl|sk_testnet_/);
    expect(await started.exit('SIGTERM')).toMatchObject({ code: 0 });
    await admin.query(`drop database ${name} with (force)`);
    await admin.end();
  });

  test('an unreachable server: one line, exit 1, no stack trace', async () => {
    expectOneLine(
      await fail({ ...env, DATABASE_URL: 'postgresql://u:hunter2@127.0.0.1:1/payments' }),
      /the database "payments" at 127\.0\.0\.1:1 cannot be used \(connect ECONNREFUSED 127\.0\.0\.1:1\): check DATABASE_URL/,
    );
  });

  test('a missing database', async () => {
    const nowhere = { ...env, DATABASE_URL: env.DATABASE_URL?.replace(database.database, 'nowhere') };
    expectOneLine(await refused(openDatabase(loadConfig(nowhere))), /database "nowhere" does not exist/);
  });

  test('no secrets', async () => {
    const opening = async () => openDatabase(loadConfig({ DATABASE_URL: env.DATABASE_URL as string }));
    expectOneLine(await refused(opening()), /CLIENT_SECRET_KEYS is missing.*API_KEY_PEPPERS is missing/);
  });
});

/** What a process would print for this startup error, and its exit code, without starting one. */
async function refused(starting: Promise<unknown>): ReturnType<typeof fail> {
  const error = await starting.catch((reason: unknown) => reason);
  if (!(error instanceof StartupError)) return expect.fail(String(error));
  return { code: 1, errors: `payment-intent-service: ${error.message}\n` };
}

function expectOneLine({ code, errors }: Awaited<ReturnType<typeof fail>>, says: RegExp): void {
  expect(code).toBe(1);
  expect(errors).toMatch(says);
  expect(errors).toMatch(/^payment-intent-service: [^\n]*\n$/);
  expect(errors).not.toMatch(/hunter2|\bat .*\.ts|node:internal/);
}

describe('operator errors: one line, exit 1, no stack trace', () => {
  const isTaken = (variable: string, port: string) =>
    new RegExp(`port ${port} of 127\\.0\\.0\\.1 is taken: .* set ${variable}`);

  test('METRICS_PORT is in use, and the database is stopped again', async () => {
    await copyUsedData();
    const { port } = new URL(await listenInTest(net.createServer()));
    expectOneLine(await fail({ METRICS_PORT: port }), isTaken('METRICS_PORT', port));
    await expect(stat(join(folder, 'data', 'postgres', 'postmaster.pid'))).rejects.toThrow('ENOENT');
  });

  test.each(['HTTP_PORT', 'GRPC_PORT', 'CONSOLE_PORT'])('%s is in use', async (variable) => {
    const { port } = new URL(await listenInTest(net.createServer()));
    expectOneLine(await refused(startService({ [variable]: port })), isTaken(variable, port));
  });

  test.each<[string, Record<string, string>, RegExp]>([
    ['HOST', { HOST: '192.0.2.1' }, /HOST 192\.0\.2\.1 is not an address of this machine/],
    [
      'a TLS file that is missing',
      { TLS_CERT_FILE: 'no-cert.pem', TLS_KEY_FILE: 'no-key.pem' },
      /TLS_CERT_FILE cannot be read \(ENOENT/,
    ],
    [
      'a TLS file that is not a certificate',
      { TLS_CERT_FILE: 'package.json', TLS_KEY_FILE: 'package.json' },
      /TLS_CERT_FILE and TLS_KEY_FILE are not a usable pair/,
    ],
  ])('%s', async (_, env, says) => {
    expectOneLine(await refused(startService(env)), says);
  });

  test('the folder is a file', async () => {
    await writeFile(join(folder, 'file'), '');
    const starting = startEmbeddedPostgres(join(folder, 'file'));
    expectOneLine(await refused(starting), /cannot use .*file.*: .*set DATA_DIR/);
  });

  test('the folder holds something else, or the data of another version', async () => {
    const copy = await copyUsedData();
    await writeFile(join(copy, 'postgres', 'PG_VERSION'), '14\n');
    const old = await refused(startEmbeddedPostgres(copy));
    expectOneLine(old, /incompatible with server \(.* version 14.*remove this one, with all its data/);
    await rm(join(copy, 'postgres', 'PG_VERSION'));
    expectOneLine(await refused(startEmbeddedPostgres(copy)), /ENOTEMPTY.*no complete database/);
  });

  test('the folder is not writable', async () => {
    await chmod(folder, 0o555);
    const account = isRoot ? { uid: nobody, gid: nobody } : {};
    expectOneLine(await fail({}, account), /cannot use .*EACCES.*writable or set DATA_DIR/);
  });

  test.runIf(isRoot)("as root, in a folder that PostgreSQL's account cannot access", async () => {
    await chmod(folder, 0o700);
    const starting = startEmbeddedPostgres(join(folder, 'data'));
    expectOneLine(await refused(starting), /runs as "postgres", who may not enter .*chmod o\+x/);
  });

  test('the path is too long for a socket', async () => {
    const starting = startEmbeddedPostgres(join(folder, 'x'.repeat(100)));
    expectOneLine(await refused(starting), /too long a path for a Unix socket.*DATA_DIR/);
  });

  test('the secrets are damaged', async () => {
    await writeFile(join(await copyUsedData(), 'secrets.json'), '{');
    expectOneLine(await fail({}), /secrets\.json cannot be used/);
  });
});

describe('traces', () => {
  test('a collector that never answers delays neither requests nor shutdown', async () => {
    const silent = net.createServer((socket) => socket.resume()).listen(0, '127.0.0.1');
    await once(silent, 'listening');
    const { port } = silent.address() as net.AddressInfo;
    const service = await start({
      DATA_DIR: await copyUsedData(),
      ...api,
      OTEL_EXPORTER_OTLP_ENDPOINT: `http://127.0.0.1:${port}`,
      OTEL_BSP_SCHEDULE_DELAY: '10',
      RPC_URL_BSE: 'http://127.0.0.1:1',
    });
    const asked = once(silent, 'connection');
    const { stdout } = await run('sh', ['-c', service.curl]);
    expect(stdout).toMatch(/^HTTP\/1.1 201 /);
    await asked;
    const { code, output } = await service.exit('SIGTERM');
    expect(output).toContain('"message":"stopped"');
    // The shutdown did not wait for OpenTelemetry's timeout.
    expect(output).not.toContain('OpenTelemetry');
    expect(code).toBe(0);
    // RPC_URL_BSE above is misspelt.
    expect(output).toMatch(
      /"level":"warn",.*"name":"RPC_URL_BSE","meant":"RPC_URL_BASE",.*did you mean RPC_URL_BASE\?/,
    );
    silent.close();
  });

  test('--help and --version print and do not start; another argument is refused', async () => {
    const env = { ...bareEnvironment(), HOME: folder, DATA_DIR: join(folder, 'data'), ...anyPorts };
    const help = await run('npm', ['start', '--silent', '--', '--help'], { env });
    expect(help.stdout).toMatch(/^Usage: npm start\n[\s\S]*environment variables[\s\S]*admin -- --help/);
    const startWith = (...args: string[]) =>
      run(process.execPath, ['src/main.ts', ...args], { env }).catch((error) => error);
    expect((await startWith('-h')).stdout).toBe(help.stdout);
    const { version } = JSON.parse(await readFile('package.json', 'utf8'));
    expect((await startWith('--version')).stdout).toBe(`${version}\n`);
    const refused = await startWith('--port', '8081');
    expect([refused.code, refused.stdout, refused.stderr]).toEqual([
      1,
      '',
      'payment-intent-service: it takes no arguments but --help and --version, and was given 2: set environment variables instead, as --help says\n',
    ]);
    await expect(stat(join(folder, 'data'))).rejects.toThrow('ENOENT');
  });

  test('terminal control characters are escaped in a startup error', async () => {
    const { code, errors } = await fail({ LOG_LEVEL: 'in\u001b[31mfo\u202e' });
    expect(code).toBe(1);
    expect(errors).toContain('in\\u001b[31mfo\\u202e');
    // biome-ignore lint/suspicious/noControlCharactersInRegex: that is what is tested.
    expect(errors).not.toMatch(/[\u001b\u202e]/);
  });

  test('OpenTelemetry’s SDK is not loaded if tracing is off', async () => {
    const watcher = join(folder, 'watcher.mjs');
    await writeFile(
      watcher,
      `import { registerHooks } from 'node:module';
       registerHooks?.({
         load(url, context, next) {
           if (url.includes('@opentelemetry/sdk')) console.log('LOADED', url);
           return next(url, context);
         },
       });`,
    );
    const env = { DATA_DIR: await copyUsedData(), NODE_OPTIONS: `--import=${watcher}` };
    const outputWith = async (more: Record<string, string>) => {
      const service = await start({ ...env, ...more });
      await run('sh', ['-c', service.curl]);
      return (await service.exit('SIGTERM')).output;
    };
    expect(await outputWith({})).not.toContain('LOADED');
    expect(await outputWith({ ...api, OTEL_TRACES_EXPORTER: 'console' })).toContain('LOADED');
  });
});
