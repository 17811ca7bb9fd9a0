import { createHmac } from 'node:crypto';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { consoleAddress, loadConfig, misspeltVariables, reachable } from '../src/config/config.ts';
import { databaseTargetOf } from '../src/config/database-location.ts';
import { parseKeyRing } from '../src/config/key-ring.ts';
import { serversOf } from '../src/database/client.ts';
import { formatIdentifier, newUuid, parseIdentifier } from '../src/database/identifiers.ts';
import { parseIdempotencyKey } from '../src/requests/idempotency-key.ts';

const ring = `1:${Buffer.alloc(32, 1).toString('base64')}`;
const url = 'postgresql://user:hunter2@db.example:5432/payments';

describe('the configuration', () => {
  test('the console listens only on this machine, unless CONSOLE_HOST is set with TLS', () => {
    const { console: local } = loadConfig({ CONSOLE_PORT: '9465' });
    expect(local).toEqual({ port: 9465, host: '127.0.0.1', origin: undefined });
    const CONSOLE_ORIGIN = 'https://console.example';
    const tls = { TLS_CERT_FILE: 'cert.pem', TLS_KEY_FILE: 'key.pem' };
    const far = { CONSOLE_PORT: '9465', CONSOLE_HOST: '0.0.0.0' };
    expect(loadConfig({ ...far, ...tls, CONSOLE_ORIGIN }).console).toEqual({
      port: 9465,
      host: '0.0.0.0',
      origin: CONSOLE_ORIGIN,
    });
    expect(() => loadConfig(far)).toThrow('CONSOLE_HOST 0.0.0.0 needs TLS_CERT_FILE');
    const withPath = { CONSOLE_PORT: '9465', CONSOLE_ORIGIN: `${CONSOLE_ORIGIN}/console` };
    expect(() => loadConfig(withPath)).toThrow('CONSOLE_ORIGIN must be a scheme, a host and a port');
  });

  test.each([
    [{}, 'http://127.0.0.1:9465'],
    [{ CONSOLE_HOST: '::1' }, 'http://[::1]:9465'],
    [{ CONSOLE_HOST: 'localhost' }, 'http://localhost:9465'],
    [{ CONSOLE_HOST: '::', TLS_CERT_FILE: 'cert.pem', TLS_KEY_FILE: 'key.pem' }, 'https://127.0.0.1:9465'],
    [{ CONSOLE_HOST: '::1', CONSOLE_ORIGIN: 'https://console.example' }, 'https://console.example'],
  ])('a link to the console leads to where it listens: %j', (env, address) => {
    expect(consoleAddress(loadConfig(env as Record<string, string>))).toBe(address);
  });

  test('has the documented defaults', () => {
    expect(loadConfig({})).toEqual({
      databaseUrl: undefined,
      dataDir: '.data',
      console: { port: 9465, host: '127.0.0.1', origin: undefined },
      databasePool: 16,
      host: '127.0.0.1',
      httpPort: 8080,
      grpcPort: 50051,
      metricsPort: 9464,
      secrets: {},
      rateLimits: { creates: 500, reads: 500, changes: 500, checkout: 5 },
      trustedProxies: [],
      roles: new Set(['api', 'watcher', 'deliveries', 'expiry']),
      chainNodes: [],
      publicUrl: undefined,
      unattributedMinUnits: 10_000n,
      eventRetentionDays: 30,
      // Without a DATABASE_URL, a developer's own machine.
      allowUnwatched: new Set(['testnet', 'mainnet']),
      webhookAllow: { hosts: ['localhost'], networks: ['127.0.0.0/8', '::1/128'] },
      drainDelayMs: 0,
      drainTimeoutMs: 10_000,
      databaseTimeouts: { connectTimeoutMs: 5_000, statementTimeoutMs: 10_000 },
      queue: { maxWaiting: 4_096, maxWaitMs: 10_000 },
      limits: {
        maxConnections: 1_024,
        maxConcurrentStreams: 256,
        maxHeaderBytes: 16_384,
        headersTimeoutMs: 10_000,
        requestTimeoutMs: 30_000,
        idleTimeoutMs: 65_000,
      },
      tls: undefined,
      logLevel: 'info',
      tracing: false,
    });
  });

  test('reads every limit from its variable, times in seconds', () => {
    const limits = {
      MAX_CONNECTIONS: '1',
      MAX_CONCURRENT_STREAMS: '2',
      MAX_HEADER_BYTES: '1024',
      HEADERS_TIMEOUT: '4',
      REQUEST_TIMEOUT: '5',
      IDLE_TIMEOUT: '6',
      QUEUE_SIZE: '7',
      QUEUE_TIMEOUT: '8',
      DATABASE_CONNECT_TIMEOUT: '9',
      DATABASE_TIMEOUT: '10',
    };
    expect(loadConfig(limits)).toMatchObject({
      limits: {
        maxConnections: 1,
        maxConcurrentStreams: 2,
        maxHeaderBytes: 1024,
        headersTimeoutMs: 4_000,
        requestTimeoutMs: 5_000,
        idleTimeoutMs: 6_000,
      },
      queue: { maxWaiting: 7, maxWaitMs: 8_000 },
      databaseTimeouts: { connectTimeoutMs: 9_000, statementTimeoutMs: 10_000 },
    });
    for (const name of Object.keys(limits)) {
      expect(() => loadConfig({ [name]: '0' })).toThrow(`${name} must be an integer from`);
    }
  });

  test('events are kept for at least 7 days', () => {
    expect(loadConfig({ EVENT_RETENTION_DAYS: '7' }).eventRetentionDays).toBe(7);
    expect(() => loadConfig({ EVENT_RETENTION_DAYS: '6' })).toThrow(
      'EVENT_RETENTION_DAYS must be an integer from 7',
    );
  });

  test('an empty variable counts as not set', () => {
    expect(loadConfig({ DATABASE_URL: '', HTTP_PORT: '', LOG_LEVEL: '' })).toEqual(loadConfig({}));
  });

  test.each([
    [{ OTEL_EXPORTER_OTLP_ENDPOINT: 'http://collector:4318' }, true],
    [{ OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: 'http://collector:4318/v1/traces' }, true],
    [{ OTEL_TRACES_EXPORTER: 'console' }, true],
    [{ OTEL_TRACES_EXPORTER: 'none', OTEL_EXPORTER_OTLP_ENDPOINT: 'http://collector:4318' }, false],
    [{ OTEL_SDK_DISABLED: 'true', OTEL_EXPORTER_OTLP_ENDPOINT: 'http://collector:4318' }, false],
    [{ OTEL_SDK_DISABLED: 'TRUE', OTEL_EXPORTER_OTLP_ENDPOINT: 'http://collector:4318' }, false],
    [{ OTEL_SERVICE_NAME: 'payments' }, false],
  ])('%o: traces %s', (env, tracing) => {
    expect(loadConfig(env as Record<string, string>).tracing).toBe(tracing);
  });

  test.each<[string, string | undefined]>([
    ['RPC_URL_BSE', 'RPC_URL_BASE'],
    ['RPC_URL_BASE_SEPOLA', 'RPC_URL_BASE_SEPOLIA'],
    ['DATABASE_ULR', 'DATABASE_URL'],
    ['API_KEY_PEPPER', 'API_KEY_PEPPERS'],
    ['http_port', 'HTTP_PORT'],
    ['ROLE', 'ROLES'],
    ['HTTP_PORT', undefined],
    // Read by other programs.
    ['HOSTNAME', undefined],
    ['HOME', undefined],
    ['HTTP_PROXY', undefined],
    ['SSL_CERT_FILE', undefined],
    ['OTEL_TRACES_SAMPLER', undefined],
    ['OTEL_METRICS_EXPORTER', undefined],
    ['XDG_DATA_DIRS', undefined],
    ['PATH', undefined],
    ['PORT', undefined],
    ['NODE_ENV', undefined],
  ])('%s: did you mean %s?', (name, meant) => {
    expect(misspeltVariables({ [name]: 'x' })).toMatchObject(meant === undefined ? [] : [{ name, meant }]);
    expect(misspeltVariables({ [name]: '' })).toEqual([]);
  });

  test('a problem caused by a misspelt variable names that variable', () => {
    const env = {
      DATABASE_URL: url,
      CLIENT_SECRET_KEYS: ring,
      WEBHOOK_SECRET_KEYS: ring,
      API_KEY_PEPPER: ring,
    };
    expect(() => loadConfig(env)).toThrow(
      /API_KEY_PEPPERS is missing and required .*; API_KEY_PEPPER is set and not read: did you mean API_KEY_PEPPERS\?$/,
    );
  });

  test.each<[Record<string, string>, RegExp]>([
    [
      { DATABASE_URI: url },
      /: DATABASE_URI is set and not read: did you mean DATABASE_URL\? Otherwise unset it/,
    ],
    [
      { PUBLIC_URL: 'https://user@pay.example' },
      /PUBLIC_URL must be .* without user, password, query or fragment$/,
    ],
    [{ PUBLIC_URL: 'https:pay.example' }, /PUBLIC_URL must be an http/],
    [{ HEADERS_TIMEOUT: '31' }, /HEADERS_TIMEOUT must not be above REQUEST_TIMEOUT/],
    [{ RPC_URL_BASE: 'https://node,HTTPS://Node:443/' }, /RPC_URL_BASE .*listed twice/],
    [{ RPC_URL_BASE: 'https://node/key,https://node/key/' }, /RPC_URL_BASE .*listed twice/],
    [{ TRUSTED_PROXIES: 'fe80::1%eth0' }, /TRUSTED_PROXIES must be/],
    [{ TRUSTED_PROXIES: '10.0.0.1,proxy' }, /TRUSTED_PROXIES must be .*"proxy" is no address or network$/],
    [{ WEBHOOK_ALLOW: '127.1' }, /WEBHOOK_ALLOW must be .*"127.1" is no host name, address or network$/],
    [{ X402_FACILITATOR_URL_BASE_TOKEN: 'a\nb' }, /_TOKEN has a character that no HTTP header can carry/],
  ])('a setting that would not do what was meant is refused: %j', (env, why) => {
    const base = { RPC_URL_BASE: 'http://node', X402_FACILITATOR_URL_BASE: 'http://facilitator' };
    expect(() => loadConfig({ ...base, ...env }, [])).toThrow(why);
    // As from a file.
    const X402_FACILITATOR_URL_BASE_TOKEN = 'token\n';
    const PUBLIC_URL = 'https://pay.example/\n';
    const read = loadConfig({ ...base, X402_FACILITATOR_URL_BASE_TOKEN, PUBLIC_URL }, []);
    expect([read.chainNodes[0]?.facilitator?.token, read.publicUrl]).toEqual([
      'token',
      'https://pay.example',
    ]);
  });

  test('lists all problems at once, without secrets', () => {
    const env = {
      DATABASE_URL: url.replace('postgresql', 'mysql'),
      HTTP_PORT: '80a',
      GRPC_PORT: '65536',
      DATABASE_POOL: '0',
      DRAIN_TIMEOUT: '-1',
      LOG_LEVEL: 'loud',
      TLS_CERT_FILE: 'cert.pem',
      CLIENT_SECRET_KEYS: '1:c2hvcnQ=',
      RPC_URL_BASE: 'https://node.example,wss://node.example/v2/nodekey',
    };
    expect(() => loadConfig(env)).toThrow(
      new RegExp(
        [
          'DATABASE_URL must',
          'CLIENT_SECRET_KEYS must',
          'API_KEY_PEPPERS is missing',
          'TLS_CERT_FILE and TLS_KEY_FILE',
          'LOG_LEVEL must',
          'DATABASE_POOL must',
          'HTTP_PORT must',
          'GRPC_PORT must',
          'RPC_URL_BASE must .* entry 2',
          'DRAIN_TIMEOUT must',
        ].join('.*'),
      ),
    );
    expect(() => loadConfig(env)).not.toThrow(/hunter2|c2hvcnQ|nodekey/);
  });

  test.each(['postgresql://127.0.0.1', 'postgresql://127.0.0.1/', 'postgresql://h/%zz', 'db', 'http://h/db'])(
    'a DATABASE_URL of %s is refused',
    (DATABASE_URL) => {
      expect(() => loadConfig({ DATABASE_URL }, [])).toThrow(/DATABASE_URL must be an address like/);
    },
  );

  test.each([
    ['h1:5432,h2/db', ['postgresql://h1:5432/db', 'postgresql://h2/db'], 'read-write'],
    ['h1,h2/db?target_session_attrs=primary', ['postgresql://h1/db', 'postgresql://h2/db'], 'primary'],
    ['h1/db', ['postgresql://h1/db'], 'any'],
    ['u:p,w@h1/db?target_session_attrs=read-write', ['postgresql://u:p,w@h1/db'], 'read-write'],
  ])('a DATABASE_URL of %s names %j, of which %s is wanted', (rest, names, sessions) => {
    const target = databaseTargetOf({ url: `postgresql://${rest}` });
    const hosts = target.hosts.map(({ connectionString = '' }) => connectionString);
    expect([hosts, target.sessions]).toEqual([names, sessions]);
    const { connectTimeoutMs } = serversOf({ url: `postgresql://${rest}` });
    expect(connectTimeoutMs).toBe(names.length > 1 ? 1_000 : 5_000);
  });

  test.each([
    ['h1,,h2/db', /empty host/],
    ['h1,h2/db?target_session_attrs=standby', /target_session_attrs=standby .*read-write, primary/],
    ['/db?host=h1,h2', /before its first slash/],
  ])('a DATABASE_URL of %s is refused with the problem', (rest, problem) => {
    expect(() => loadConfig({ DATABASE_URL: `postgresql://${rest}` }, [])).toThrow(problem);
  });

  test('with a DATABASE_URL there is no default secret', () => {
    expect(() => loadConfig({ DATABASE_URL: url })).toThrow(
      /CLIENT_SECRET_KEYS is missing.*API_KEY_PEPPERS is missing/,
    );
    const config = loadConfig({
      DATABASE_URL: url,
      CLIENT_SECRET_KEYS: ring,
      API_KEY_PEPPERS: ring,
      WEBHOOK_SECRET_KEYS: ring,
    });
    expect(config.secrets.CLIENT_SECRET_KEYS?.newestVersion).toBe(1);
  });

  test('with a DATABASE_URL webhooks reach this machine only if that is allowed', () => {
    const allowed = (WEBHOOK_ALLOW?: string) =>
      loadConfig({ DATABASE_URL: url, WEBHOOK_ALLOW }, []).webhookAllow;
    expect(allowed()).toEqual({ hosts: [], networks: [] });
    expect(allowed('Receiver.Internal, FD00::/8,10.1.2.3')).toEqual({
      hosts: ['receiver.internal'],
      networks: ['fd00::/8', '10.1.2.3/32'],
    });
  });

  test.each([
    ['0.0.0.0', '127.0.0.1'],
    ['::', '[::1]'],
    ['fd00::1', '[fd00::1]'],
    ['pay.internal', 'pay.internal'],
  ])('a service that listens on %s is reached at %s', (host, address) => {
    expect(reachable(host)).toBe(address);
  });

  test.each([
    [undefined, ['testnet']],
    ['all', ['testnet', 'mainnet']],
    ['testnet', ['testnet']],
    ['none', []],
  ])('with a DATABASE_URL and ALLOW_UNWATCHED of %s, %j needs no watched chain', (value, modes) => {
    const { allowUnwatched } = loadConfig({ DATABASE_URL: url, ALLOW_UNWATCHED: value }, []);
    expect([...allowUnwatched]).toEqual(modes);
  });

  test.each(['mainnet', 'All', 'toString', 'true'])('ALLOW_UNWATCHED of %s is refused', (ALLOW_UNWATCHED) => {
    expect(() => loadConfig({ ALLOW_UNWATCHED })).toThrow(
      `ALLOW_UNWATCHED must be one of all, testnet, none, not "${ALLOW_UNWATCHED}"`,
    );
  });
});

describe('a key ring', () => {
  test('signs with the newest version and verifies older ones', () => {
    const [two, one] = [Buffer.alloc(32, 2), Buffer.alloc(40, 1)].map((key) => key.toString('base64'));
    const keys = parseKeyRing(`2:${two}, 1:${one}`);
    expect([keys.newestVersion, keys.versions]).toEqual([2, [2, 1]]);
    expect(keys.hmac(2, 'abc', 'hex')).not.toBe(keys.hmac(1, 'abc', 'hex'));
    expect(() => keys.hmac(3, 'abc', 'hex')).toThrow('no version 3');
  });

  test('is HMAC-SHA256 (RFC 4231, test case 1, with its key padded with zeros)', () => {
    // HMAC pads a short key with zeros, so the vector of the 20-byte key is valid for 32 bytes too.
    const key = Buffer.concat([Buffer.alloc(20, 0x0b), Buffer.alloc(12)]).toString('base64');
    expect(parseKeyRing(`1:${key}`).hmac(1, 'Hi There', 'hex')).toBe(
      'b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7',
    );
  });

  test("is Node's own HMAC-SHA256, for keys and texts of any length, in any order", () => {
    const key = fc.uint8Array({ minLength: 32, maxLength: 200 });
    const texts = fc.array(fc.string({ unit: 'grapheme', maxLength: 400 }), { minLength: 1, maxLength: 5 });
    fc.assert(
      fc.property(key, texts, (bytes, list) => {
        const keys = parseKeyRing(`1:${Buffer.from(bytes).toString('base64')}`);
        for (const text of list) {
          for (const encoding of ['hex', 'base64url'] as const) {
            expect(keys.hmac(1, text, encoding)).toBe(
              createHmac('sha256', bytes).update(text).digest(encoding),
            );
          }
        }
      }),
    );
  });

  test.each([
    ['', 'entry 1 is not version:base64'],
    ['abc', 'entry 1 is not version:base64'],
    [`${ring},`, 'entry 2 is not version:base64'],
    [ring.replace('1:', '0:'), 'outside 1 to 32767'],
    [ring.replace('1:', '32768:'), 'outside 1 to 32767'],
    [`${ring},${ring}`, 'version 1 is listed twice'],
    [`1:${Buffer.alloc(31).toString('base64')}`, 'shorter than 32 bytes'],
    [ring.replace(/=$/, '!'), 'entry 1 is not version:base64'],
    [ring.replace(/=$/, 'AA'), 'entry 1 is not base64'],
  ])('%j is refused', (text, why) => {
    expect(() => parseKeyRing(text)).toThrow(why);
  });
});

describe('an idempotency key', () => {
  test.each([
    [undefined, undefined],
    [null, undefined],
    ['abc', 'abc'],
    ['"abc"', 'abc'],
    ['"a\\"b\\\\c"', 'a"b\\c'],
    ['a"b', 'a"b'],
    ['~!#%', '~!#%'],
  ])('%j reads as %j', (header, key) => {
    expect(parseIdempotencyKey(header)).toBe(key);
  });

  test.each([
    '',
    ' ',
    'a b',
    '"',
    '""',
    '"a',
    '"a\\x"',
    '"a"b',
    '"a b"',
    'é',
    '\x7f',
    'k'.repeat(256),
    `"${'k'.repeat(256)}"`,
  ])('%j is refused', (header) => {
    expect(() => parseIdempotencyKey(header)).toThrow(/1 to 255 visible ASCII/);
  });
});

describe('an identifier', () => {
  test('converts to the TypeID of its UUID and back', () => {
    // From the TypeID specification's list of valid identifiers.
    expect(formatIdentifier('pi', '0188bac7-4afa-78aa-bc3b-bd1eef28d881')).toBe(
      'pi_01h2xcejqtf2nbrexx3vqjhp41',
    );
    expect(parseIdentifier('pi', 'pi_01h2xcejqtf2nbrexx3vqjhp41')).toBe(
      '0188bac7-4afa-78aa-bc3b-bd1eef28d881',
    );
    const uuid = newUuid();
    expect(parseIdentifier('mer', formatIdentifier('mer', uuid))).toBe(uuid);
  });

  test('sorts by time of creation', () => {
    const ids = Array.from({ length: 1000 }, (_, i) =>
      formatIdentifier('pi', newUuid(1_700_000_000_000 + i)),
    );
    expect([...ids].sort()).toEqual(ids);
    expect(new Set(Array.from({ length: 1000 }, () => newUuid(1)))).toHaveProperty('size', 1000);
  });

  test('of one millisecond sorts by its place, up to 4,095, and stays a UUIDv7 beyond', () => {
    const ids = [0, 1, 4_094, 4_095].map((place) => newUuid(1_700_000_000_000, place));
    expect([...ids].sort()).toEqual(ids);
    const beyond = newUuid(1_700_000_000_000, 5_000);
    expect(beyond).toMatch(/^018bcfe5-6800-7fff-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/);
    expect(beyond > (ids[2] as string)).toBe(true);
  });

  test.each([
    '',
    'pi_',
    'pi_01h2xcejqtf2nbrexx3vqjhp4',
    'mer_01h2xcejqtf2nbrexx3vqjhp41',
    'pi_81h2xcejqtf2nbrexx3vqjhp41',
    'pi_01H2XCEJQTF2NBREXX3VQJHP41',
    "pi_'; drop table",
  ])('%j is refused', (text) => {
    expect(parseIdentifier('pi', text)).toBeUndefined();
  });
});
