// Debian's nginx with ops/nginx.conf as shipped, except for its addresses, ports, paths and file names.

import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import net from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { promisify } from 'node:util';
import { expect, vi } from 'vitest';
import { makeCertificate } from './certificates.ts';
import { findLeaks } from './leaks.ts';
import { choosePorts } from './listen.ts';
import { succeeds } from './succeeds.ts';

const nginx = '/usr/sbin/nginx';
export const hasNginx = succeeds(nginx, '-v');

export interface Nginx {
  /** Ports of the doors behind it, on this machine. */
  publicPort: number;
  publicUrl: string;
  /** `localhost:port`. */
  internalAddress: string;
  /** The certificate of both doors, for `localhost`. */
  ca: string;
  /** Returns the output of `nginx -t` for the file that it runs. Throws if nginx does not accept the file. */
  check(): Promise<string>;
  /** Ends nginx. Returns the lines of its access log and its error log. Neither may have a secret. */
  stop(): Promise<{ access: Record<string, string>[]; errors: string }>;
}

/** Ports of processes of the service on this machine. */
export interface Upstream {
  http: number[];
  grpc: number[];
}

export const readConfiguration = () => readFile('ops/nginx.conf', 'utf8');

/** Replaces every occurrence. Throws if there is none: the file has changed, and would not run as shipped. */
export function replaceAll(configuration: string, changes: readonly (readonly [string, string])[]): string {
  return changes.reduce((changed, [from, to]) => {
    if (!changed.includes(from)) throw new Error(`ops/nginx.conf has no ${from}`);
    return changed.replaceAll(from, to);
  }, configuration);
}

/** Starts nginx. `edit` makes a change that the comments of the file suggest. */
export async function startNginx(
  upstream: Upstream,
  edit: (configuration: string) => string = (configuration) => configuration,
): Promise<Nginx> {
  const folder = await mkdtemp(join(tmpdir(), 'pi-nginx-'));
  const { cert, key } = await makeCertificate('localhost');
  await writeFile(join(folder, 'cert.pem'), cert);
  await writeFile(join(folder, 'key.pem'), key, { mode: 0o600 });
  const { HTTP_PORT: publicPort, GRPC_PORT: internalPort } = await choosePorts();
  const server = / +server 127\.0\.0\.1:(8080|50051)( .*\n)/g;
  const configuration = replaceAll(edit(await readConfiguration()), [
    ['listen 443 ', `listen 127.0.0.1:${publicPort} `],
    ['    listen [::]:443 ssl;\n', ''],
    ['listen 8443 ', `listen 127.0.0.1:${internalPort} `],
    ['    listen [::]:8443 ssl http2;\n', ''],
    ['/etc/nginx/tls/', `${folder}/`],
    ['/var/log/nginx/', `${folder}/`],
    ['/run/nginx.pid', `${folder}/nginx.pid`],
    ['server_name payments.example.com;', 'server_name localhost;'],
  ]).replace(server, (_, port, rest) =>
    (port === '8080' ? upstream.http : upstream.grpc).map((one) => `server 127.0.0.1:${one}${rest}`).join(''),
  );
  const file = join(folder, 'nginx.conf');
  await writeFile(file, configuration);

  const child = spawn(nginx, ['-c', file, '-e', 'stderr', '-g', 'daemon off;'], {
    stdio: ['ignore', 'ignore', 'pipe'],
  });
  const complaints = text(child.stderr);
  const exited = once(child, 'exit');
  await Promise.race([
    exited.then(async () => Promise.reject(new Error(`nginx has ended: ${await complaints}`))),
    vi.waitFor(() => canConnect(Number(publicPort)), { timeout: 10_000 }),
  ]);
  const end = async () => {
    // Gracefully: a request is logged when its connection is closed.
    child.kill('SIGQUIT');
    await exited;
    const access = await readFile(join(folder, 'payment-intents.log'), 'utf8');
    const errors = (await readFile(join(folder, 'error.log'), 'utf8')) + (await complaints);
    await rm(folder, { recursive: true });
    const lines = access.split('\n').filter((line) => line !== '');
    expect(
      await findLeaks(
        [...lines, errors].map((line) => ({ line })),
        async () => [],
      ),
    ).toEqual([]);
    return { access: lines.map((line) => JSON.parse(line)), errors };
  };
  let ended: ReturnType<typeof end> | undefined;
  return {
    publicPort: Number(publicPort),
    publicUrl: `https://localhost:${publicPort}`,
    internalAddress: `localhost:${internalPort}`,
    ca: cert,
    check: async () => (await promisify(execFile)(nginx, ['-t', '-c', file, '-e', 'stderr'])).stderr,
    stop() {
      ended ??= end();
      return ended;
    },
  };
}

async function canConnect(port: number): Promise<void> {
  const socket = net.connect(port, '127.0.0.1');
  try {
    await once(socket, 'connect');
  } finally {
    socket.destroy();
  }
}
