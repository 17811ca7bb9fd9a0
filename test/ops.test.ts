// Checks of ops/ that need no cluster and no running systemd. test/interop builds the image and has Kubernetes' schemas.

import { execFile } from 'node:child_process';
import { copyFile, mkdir, mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import { dirname, join, relative } from 'node:path';
import { promisify } from 'node:util';
import { describe, expect, test } from 'vitest';
import { parse, parseAllDocuments } from 'yaml';
import manifest from '../package.json' with { type: 'json' };
import { loadConfig } from '../src/config/config.ts';
import { PaymentIntentService } from '../src/contract/gen/payments/v1/payment_intent_service_pb.ts';
import { useFolder } from './support/folder.ts';
import { listenInTest } from './support/listen.ts';
import { succeeds } from './support/succeeds.ts';

const run = promisify(execFile);
const hasSystemd = succeeds('systemd-analyze', '--version');
if (!hasSystemd) console.log('skipped: no systemd is installed (apt-get install systemd)');
const hasHaproxy = succeeds('/usr/sbin/haproxy', '-v');
if (!hasHaproxy) console.log('skipped: no HAProxy is installed (apt-get install haproxy)');
const flags = manifest.scripts.start.replace(/^.*exec node /, '');
/** How glibc treats freed buffers. test/faults/hostile-clients.test.ts measures the effect. */
const allocator = manifest.scripts.start.split(' ').find((word) => word.startsWith('MALLOC_')) ?? '';
const config = loadConfig({});
/** The longest shutdown: the drain, the last spans, a statement that hangs. */
const stopMs = config.drainTimeoutMs + 2_000 + config.databaseTimeouts.statementTimeoutMs;

describe('the systemd unit', async () => {
  const unit = join(await useFolder(), 'payment-intent-service.service');
  const text = await readFile('ops/payment-intent-service.service', 'utf8');
  // Uses this folder, so that systemd finds the files.
  await writeFile(unit, text.replaceAll('/opt/payment-intent-service', process.cwd()));

  test.runIf(hasSystemd)('passes systemd-analyze verify without warnings', async () => {
    expect(await run('systemd-analyze', ['verify', unit])).toEqual({ stdout: '', stderr: '' });
  });

  test.runIf(hasSystemd)('restricts the service to what it needs', async () => {
    // An exposure of at most 2.0 out of 10; an ordinary unit has 9.6.
    await run('systemd-analyze', ['security', '--offline=true', '--threshold=20', unit]);
  });

  test('runs the command of npm start, and waits until it has ended', () => {
    expect(text).toContain(`node_modules/.bin/node ${flags}\n`);
    expect(text).toContain(`Environment=${allocator}\n`);
    // The documented limit: hostile clients may cost 400 MB, and the heap has 512.
    expect(text).toContain('\nMemoryMax=768M\n');
    const seconds = Number(/^TimeoutStopSec=(\d+)$/m.exec(text)?.[1]);
    expect(seconds * 1000).toBeGreaterThan(stopMs);
    const files = Number(/^LimitNOFILE=(\d+)$/m.exec(text)?.[1]);
    expect(files).toBeGreaterThan(2 * config.limits.maxConnections);
  });
});

interface Port {
  name: string;
  containerPort: number;
}

interface Container {
  name: string;
  command?: string[];
  ports: Port[];
  startupProbe: { httpGet: { path: string; port: string } };
  livenessProbe: { httpGet: { path: string; port: string } };
  readinessProbe: { grpc: { port: number; service: string } };
  lifecycle: { preStop: { sleep: { seconds: number } } };
}

interface Deployment {
  spec: {
    replicas: number;
    selector: { matchLabels: Record<string, string> };
    template: {
      metadata: { labels: Record<string, string>; annotations: Record<string, string> };
      spec: {
        terminationGracePeriodSeconds: number;
        containers: [Container];
        initContainers: { command: string[] }[];
      };
    };
  };
}

describe('the Kubernetes manifest', async () => {
  const documents = parseAllDocuments(await readFile('ops/kubernetes.yaml', 'utf8')).map(
    (document) => document.toJS({ maxAliasCount: 100 }) as { kind: string; spec: object },
  );
  const deployment = documents.find(({ kind }) => kind === 'Deployment') as unknown as Deployment;
  const pod = deployment.spec.template;
  const [container] = pod.spec.containers;

  test('uses the ports, paths and service name of the service', () => {
    expect(container.ports).toEqual([
      { name: 'http', containerPort: config.httpPort },
      { name: 'grpc', containerPort: config.grpcPort },
      { name: 'metrics', containerPort: config.metricsPort },
    ]);
    expect(pod.metadata.annotations['prometheus.io/port']).toBe(String(config.metricsPort));
    expect(container.startupProbe.httpGet).toEqual({ path: '/healthz', port: 'metrics' });
    expect(container.livenessProbe.httpGet).toEqual({ path: '/healthz', port: 'metrics' });
    expect(container.readinessProbe.grpc).toEqual({
      port: config.grpcPort,
      service: PaymentIntentService.typeName,
    });
    for (const { kind, spec } of documents) {
      const { selector } = spec as { selector: { matchLabels?: object } };
      expect([kind, selector.matchLabels ?? selector]).toEqual([kind, pod.metadata.labels]);
    }
  });

  test('gives a pod enough time to drain', () => {
    const { seconds } = container.lifecycle.preStop.sleep;
    expect(pod.spec.terminationGracePeriodSeconds * 1000).toBeGreaterThan(seconds * 1000 + stopMs);
    expect(deployment.spec.replicas).toBeGreaterThan(1);
  });

  test('runs the migrations before a pod starts', () => {
    expect(pod.spec.initContainers.map(({ command }) => command)).toEqual([
      ['node', 'src/admin.ts', 'migrate'],
    ]);
  });
});

interface ComposeService {
  image: string;
  build?: { context: string; dockerfile: string };
  command?: string[];
  environment: Record<string, string>;
  env_file?: object[];
  depends_on?: Record<string, { condition: string }>;
  healthcheck?: { test: string[] };
  ports?: string[];
  volumes?: string[];
  stop_grace_period?: string;
  ulimits?: { nofile: number };
}

// Nothing here can run it, and no package has its schema, so it is compared with the rest of the folder.
describe('the Compose file', async () => {
  const text = await readFile('ops/compose.yaml', 'utf8');
  const { services, volumes, ...rest } = parse(text) as {
    services: Record<'postgres' | 'migrate' | 'service', ComposeService>;
    volumes: Record<string, unknown>;
  };
  const { postgres, migrate, service } = services;
  const secrets = ['POSTGRES_PASSWORD', 'CLIENT_SECRET_KEYS', 'API_KEY_PEPPERS', 'WEBHOOK_SECRET_KEYS'];

  test('uses only known keys of the Compose specification, and every argument is a string', () => {
    expect(Object.keys(rest)).toEqual(['name']);
    const known =
      'build cap_drop command depends_on env_file environment healthcheck image mem_limit ports read_only restart security_opt shm_size stop_grace_period ulimits volumes';
    const used = Object.values(services).flatMap((one) => Object.keys(one));
    expect([...new Set(used)].sort().join(' ')).toBe(known);
    const checks = Object.values(services).flatMap(({ healthcheck }) => healthcheck ?? []);
    expect([...new Set(checks.flatMap(Object.keys))].sort()).toEqual(
      ['interval', 'retries', 'start_period', 'test', 'timeout'].sort(),
    );
    for (const { command = [], healthcheck } of Object.values(services)) {
      for (const argument of [...command, ...(healthcheck?.test ?? [])])
        expect(typeof argument).toBe('string');
    }
  });

  test('migrates before the service starts, with the same image and environment, when PostgreSQL answers', () => {
    const healthy = { postgres: { condition: 'service_healthy' } };
    expect(migrate.command).toEqual(['node', 'src/admin.ts', 'migrate']);
    expect(migrate.depends_on).toEqual(healthy);
    expect(service.depends_on).toEqual({
      migrate: { condition: 'service_completed_successfully' },
      ...healthy,
    });
    expect([migrate.image, migrate.build, migrate.environment, migrate.env_file]).toEqual([
      service.image,
      service.build,
      service.environment,
      [{ path: '.env', required: false }],
    ]);
    expect(service.env_file).toEqual(migrate.env_file);
    expect(postgres.healthcheck?.test).toContain('pg_isready');
    expect(Object.keys(volumes)).toEqual(postgres.volumes?.map((volume) => volume.split(':')[0]));
    // It runs the command of the image.
    expect([service.command, service.build]).toEqual([
      undefined,
      { context: '..', dockerfile: 'ops/Containerfile' },
    ]);
    expect(service.image).toBe(`payment-intent-service:${manifest.version}`);
  });

  test('has no default secret, and produces a valid configuration', () => {
    const given: Record<string, string> = {
      POSTGRES_PASSWORD: 'ab12',
      ...Object.fromEntries(
        secrets.slice(1).map((name) => [name, `1:${Buffer.alloc(32, 1).toString('base64')}`]),
      ),
    };
    const required = new Set<string>();
    const interpolated = (_: string, name: string) => {
      required.add(name);
      return given[name] ?? '';
    };
    const environmentOf = ({ environment }: ComposeService) =>
      Object.fromEntries(
        Object.entries(environment).map(([name, value]) => [
          name,
          value.replace(/\$\{(\w+):\?[^}]*\}/g, interpolated),
        ]),
      );
    const { databaseUrl, ...own } = loadConfig(environmentOf(service));
    expect([own.httpPort, own.grpcPort, own.metricsPort]).toEqual([
      config.httpPort,
      config.grpcPort,
      config.metricsPort,
    ]);
    const { POSTGRES_USER, POSTGRES_DB, POSTGRES_PASSWORD } = environmentOf(postgres);
    expect(databaseUrl).toBe(
      `postgresql://${POSTGRES_USER}:${POSTGRES_PASSWORD}@postgres:5432/${POSTGRES_DB}`,
    );
    expect([...required].sort()).toEqual([...secrets].sort());
  });

  test('opens the service only to this machine, and gives it enough time to drain and enough open files', () => {
    const ports = [config.httpPort, config.grpcPort, config.metricsPort];
    expect(service.ports).toEqual(ports.map((port) => `127.0.0.1:${port}:${port}`));
    expect([postgres.ports, migrate.ports]).toEqual([undefined, undefined]);
    expect(service.healthcheck?.test.at(-1)).toContain(`127.0.0.1:${config.metricsPort}/healthz`);
    expect(Number(/^(\d+)s$/.exec(service.stop_grace_period ?? '')?.[1]) * 1000).toBeGreaterThan(stopMs);
    expect(service.ulimits?.nofile).toBeGreaterThan(2 * config.limits.maxConnections);
  });

  test('has a health check that reports whether the service is alive', async () => {
    const statuses = [200, 503];
    for (const status of statuses) {
      const server = createServer((_, response) => response.writeHead(status).end());
      const { port } = new URL(await listenInTest(server));
      const [, , ...args] = service.healthcheck?.test ?? [];
      const script = args.map((argument) => argument.replace(`:${config.metricsPort}/`, `:${port}/`));
      const ran = run(process.execPath, script).then(
        () => 0,
        ({ code }) => code,
      );
      expect([status, await ran]).toEqual([status, status === 200 ? 0 : 1]);
    }
  });

  test('has a secrets file that git ignores', async () => {
    expect(text).toContain('cat > ops/.env');
    expect(await readFile('.gitignore', 'utf8')).toMatch(/^\.env$/m);
  });
});

describe('the cluster', () => {
  test('its scripts are valid, and run the command of npm start', async () => {
    for (const script of ['up', 'init', 'member', 'secrets'])
      await run('bash', ['-n', `ops/ha/${script}.sh`]);
    const up = await readFile('ops/ha/up.sh', 'utf8');
    expect(up).toContain(`service=(node ${flags})`);
    expect(up).toContain(allocator);
  });

  test.runIf(hasHaproxy)('HAProxy accepts its configuration without a warning', async () => {
    const names = ['PUBLIC', 'INTERNAL', ...['1', '2'].flatMap((n) => [`API${n}`, `API${n}_GRPC`])];
    const addresses = Object.fromEntries(names.map((name, i) => [name, `127.0.0.1:${i + 1}`]));
    const env = { ...addresses, API1_METRICS_PORT: '8', API2_METRICS_PORT: '9' };
    await run('/usr/sbin/haproxy', ['-c', '-dW', '-f', 'ops/ha/haproxy.cfg'], { env });
  });
});

test('the image runs the command of npm start', async () => {
  const text = await readFile('ops/Containerfile', 'utf8');
  expect(text).toContain(` ${allocator} \\\n`);
  expect(text).toContain(`CMD ${JSON.stringify(['node', ...flags.split(' ')]).replaceAll(',', ', ')}\n`);
  expect(text).toContain(`EXPOSE ${config.httpPort} ${config.grpcPort} ${config.metricsPort}\n`);
});

const hasBuildah = process.getuid?.() === 0 && succeeds('buildah', '--version');
if (!hasBuildah) console.log('skipped: images are built as root (apt-get install buildah)');

test.runIf(hasBuildah)(
  'the build context contains only the files that the image copies, and no secret',
  async () => {
    const folder = await mkdtemp('/var/tmp/pi-context-');
    try {
      const [context, output] = [join(folder, 'context'), join(folder, 'output')];
      const given = ['package.json', 'package-lock.json', 'src/main.ts'];
      const others = ['.data/secrets.json', '.env', '.git/config', 'node_modules/a/index.js', 'ops/key.pem'];
      for (const name of [...given, ...others]) {
        await mkdir(dirname(join(context, name)), { recursive: true });
        await writeFile(join(context, name), '');
      }
      await copyFile('.dockerignore', join(context, '.dockerignore'));
      await writeFile(join(folder, 'Containerfile'), 'FROM scratch\nCOPY . /\n');
      const storage = join(folder, 'storage.conf');
      const paths = `runroot = "${folder}/run"\ngraphroot = "${folder}/graph"`;
      await writeFile(storage, `[storage]\ndriver = "vfs"\n${paths}\n`);
      await run(
        'buildah',
        ['build', '--file', join(folder, 'Containerfile'), '--output', `type=local,dest=${output}`, context],
        { env: { ...process.env, CONTAINERS_STORAGE_CONF: storage, BUILDAH_ISOLATION: 'chroot' } },
      );
      const found = await readdir(output, { recursive: true, withFileTypes: true });
      const files = found.filter((entry) => entry.isFile());
      expect(files.map(({ parentPath, name }) => relative(output, join(parentPath, name))).sort()).toEqual(
        given.sort(),
      );
    } finally {
      await rm(folder, { recursive: true, force: true });
    }
  },
);

const hasPromtool = succeeds('promtool', '--version');
if (!hasPromtool) console.log('skipped: no promtool is installed (apt-get install prometheus)');

test.runIf(hasPromtool)('the alerts fire as expected, even if every process is gone', async () => {
  await run('promtool', ['check', 'rules', 'ops/prometheus-rules.yaml']);
  await run('promtool', ['test', 'rules', 'ops/prometheus-rules.test.yaml']);
});

test('every alert that an outage suppresses exists', async () => {
  const read = (file: string) => readFile(file, 'utf8');
  const given = new Set((await read('ops/prometheus-rules.yaml')).match(/(?<=alert: )\w+/g));
  const matched = (await read('ops/alertmanager.yaml')).matchAll(/alertname=~?"(\w+)(?:\(([\w|]+)\))?"/g);
  const names = [...matched].flatMap(([, begin, ends = '']) => ends.split('|').map((end) => begin + end));
  expect(names.length).toBeGreaterThan(25);
  expect(names.filter((name) => !given.has(name))).toEqual([]);
});

describe('the dashboard', async () => {
  const { panels } = JSON.parse(await readFile('ops/grafana-dashboard.json', 'utf8')) as {
    panels: {
      id: number;
      title: string;
      type: string;
      gridPos: { x: number; y: number; w: number; h: number };
    }[];
  };

  test('begins with a row of tiles for the main figures', () => {
    expect(panels.filter(({ gridPos }) => gridPos.y === 0).map(({ type, title }) => [type, title])).toEqual([
      ['stat', 'Received today'],
      ['stat', 'Oldest unattributed transfer'],
      ['stat', 'Oldest pending delivery'],
      ['stat', 'Chain lag'],
    ]);
  });

  test('every panel has an id and a place of its own', () => {
    expect(new Set(panels.map(({ id }) => id)).size).toBe(panels.length);
    const cells = panels.flatMap(({ gridPos: { x, y, w, h } }) =>
      Array.from({ length: w * h }, (_, i) => `${x + (i % w)} ${y + Math.floor(i / w)}`),
    );
    expect(new Set(cells).size).toBe(cells.length);
  });
});
