// Builds the image of ops/Containerfile with buildah, without an image registry: both base images have only
// what Node.js and npm need, from this machine. The image uses nothing else. Then runs it as its account.

import { execFile } from 'node:child_process';
import { existsSync } from 'node:fs';
import { mkdir, mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { homedir } from 'node:os';
import { dirname, join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, expect, onTestFinished, test } from 'vitest';
import { useCluster } from '../faults/support/process.ts';
import { doors, openCalls } from '../support/call.ts';
import { choosePorts } from '../support/listen.ts';
import { startPostgresProxy } from '../support/postgres-proxy.ts';
import { startProgram } from '../support/program.ts';
import { succeeds } from '../support/succeeds.ts';

const run = promisify(execFile);
/** The test creates a root file system, enters it and mounts file systems in it. */
const canBuild =
  process.getuid?.() === 0 && succeeds('buildah', '--version') && succeeds('unshare', '--mount', 'true');

if (!canBuild) console.log('skipped: images are built as root (apt-get install buildah)');

const node = 'docker.io/library/node:24-bookworm-slim';
const debian = 'docker.io/library/debian:bookworm-slim';
const image = 'localhost/payment-intent-service:test';

let folder: string;
let environment: NodeJS.ProcessEnv;

const cluster = useCluster();

beforeAll(async () => {
  // On disk, because it needs more than a gigabyte.
  folder = await mkdtemp('/var/tmp/pi-image-');
  const storage = join(folder, 'storage.conf');
  const paths = `runroot = "${folder}/run"\ngraphroot = "${folder}/graph"\n`;
  environment = { ...process.env, CONTAINERS_STORAGE_CONF: storage, BUILDAH_ISOLATION: 'chroot' };
  const use = (driver: string) => writeFile(storage, `[storage]\ndriver = "${driver}"\n${paths}`);
  await use('overlay');
  // Overlays cannot be nested, for example if this runs in a container. vfs copies, which is slower.
  if (canBuild) await buildah('info').catch(() => use('vfs'));
});

afterAll(() => rm(folder, { recursive: true, force: true }));

const buildah = async (...args: string[]): Promise<string> => {
  const { stdout } = await run('buildah', args, { env: environment, maxBuffer: 16 * 1024 * 1024 });
  return stdout.trim();
};

/** Fills a folder. `ldd` names several programs and their libraries, but of Node.js alone only libraries. */
const fillRoot = `
mkdir -p usr/bin usr/lib usr/lib64 usr/local/bin etc root tmp
ln -s usr/bin usr/lib usr/lib64 .
ln -s ../lib/node_modules/npm/bin/npm-cli.js usr/local/bin/npm
chmod 1777 tmp
echo root:x:0:0:root:/root:/bin/sh >etc/passwd
{ ldd "$0" && ldd /bin/sh /usr/bin/env /usr/bin/rm; } | grep -o '/[^ :]*' | sort -u | xargs cp --parents -L -t .
`;

/** Returns what the first stage needs beside its base image. */
async function makeBaseImages(): Promise<string[]> {
  const root = join(folder, 'root');
  await mkdir(root);
  await run('sh', ['-ec', fillRoot, process.execPath], { cwd: root });
  const base = await buildah('from', 'scratch');
  await buildah('add', '--quiet', base, root, '/');
  await buildah('commit', '--quiet', base, debian);
  const npm = dirname(dirname(process.env.npm_execpath ?? (await npmOnPath())));
  const { npm_config_cache: cache = join(homedir(), '.npm'), NODE_EXTRA_CA_CERTS: certificates } =
    process.env;
  await mkdir(cache, { recursive: true });
  await buildah('config', '--env', 'npm_config_prefer_offline=true', base);
  if (certificates !== undefined)
    await buildah('config', '--env', 'NODE_EXTRA_CA_CERTS=/usr/local/share/ca.crt', base);
  await buildah('commit', '--quiet', base, node);
  return [
    `${process.execPath}:/usr/local/bin/node:ro`,
    `${npm}:/usr/local/lib/node_modules/npm:ro`,
    `${cache}:/root/.npm`,
    ...(certificates === undefined ? [] : [`${certificates}:/usr/local/share/ca.crt:ro`]),
  ].flatMap((volume) => ['--volume', volume]);
}

const npmOnPath = async () => (await run('sh', ['-c', 'realpath "$(command -v npm)"'])).stdout.trim();

/** Returns the descendant of a process that runs our program. */
async function findService(ancestor: number): Promise<number> {
  const parents = new Map<number, number>();
  const candidates: number[] = [];
  for (const name of await readdir('/proc')) {
    const pid = Number(name);
    if (!Number.isInteger(pid)) continue;
    try {
      const stat = await readFile(`/proc/${pid}/stat`, 'utf8');
      parents.set(pid, Number(stat.replace(/^.*\) /s, '').split(' ')[1]));
      const command = await readFile(`/proc/${pid}/cmdline`, 'utf8');
      if (/^[^\0]*\bnode\0.*\0src\/main\.ts\0$/s.test(command)) candidates.push(pid);
    } catch {
      // The process has ended.
    }
  }
  const descends = (pid: number | undefined): boolean =>
    pid !== undefined && (pid === ancestor || descends(parents.get(pid)));
  const [found, ...others] = candidates.filter(descends);
  if (found === undefined || others.length > 0) throw new Error(`not one service below ${ancestor}`);
  return found;
}

test.runIf(canBuild)('builds, migrates, serves both doors and stops', { timeout: 600_000 }, async () => {
  const volumes = await makeBaseImages();
  const npmrc = join(homedir(), '.npmrc');
  await buildah(
    ...['build', '--pull-never', '--network', 'host', '--file', 'ops/Containerfile', '--tag', image],
    ...(existsSync(npmrc) ? ['--secret', `id=npmrc,src=${npmrc}`] : []),
    ...volumes,
    '.',
  );

  const location = { ...cluster.location, database: 'in_container' };
  await cluster.query(`create database ${location.database}`);
  const proxy = await startPostgresProxy(cluster.socket, location.user, () => () => 'forward');
  onTestFinished(() => proxy.close());
  const ports = await choosePorts();
  const env = {
    ...cluster.secrets,
    ...ports,
    DATABASE_URL: Object.assign(new URL(proxy.url), { pathname: `/${location.database}` }).href,
  };
  const container = await buildah('from', image);
  const inContainer = (...command: string[]) => [
    'run',
    ...Object.entries(env).flatMap(([name, value]) => ['--env', `${name}=${value}`]),
    container,
    '--',
    ...command,
  ];
  // The init container of ops/kubernetes.yaml.
  await buildah(...inContainer('node', 'src/admin.ts', 'migrate'));
  const apiKey = await cluster.newKeyIn(location);

  const { config } = JSON.parse(await buildah('inspect', '--type', 'image', image)).OCIv1;
  expect(config).toMatchObject({ User: '10001:10001', WorkingDir: '/app' });
  const { child, printed, ended, until } = startProgram(['buildah', ...inContainer(...config.Cmd)], {
    env: environment,
  });
  onTestFinished(() => void child.kill('SIGKILL'));
  await until(/"ready"/);
  const pid = await findService(child.pid as number);
  onTestFinished(() => {
    if (child.exitCode === null) process.kill(pid, 'SIGKILL');
  });
  expect(await readFile(`/proc/${pid}/status`, 'utf8')).toMatch(/^Uid:\t10001\t10001\t10001\t10001$/m);

  const { call, close } = openCalls({
    publicUrl: `http://127.0.0.1:${ports.HTTP_PORT}`,
    internalUrl: `http://127.0.0.1:${ports.GRPC_PORT}`,
  });
  for (const door of doors) {
    expect(await call('createPaymentIntent', { amount_units: 1 }, { door, apiKey })).toMatchObject({
      code: 'ok',
    });
  }
  close();
  expect((await fetch(`http://127.0.0.1:${ports.METRICS_PORT}/readyz`)).status).toBe(200);

  process.kill(pid, 'SIGTERM');
  const [code] = await ended;
  expect(printed.output).toMatch(/"stopped".*\n$/);
  expect(code).toBe(0);
});
