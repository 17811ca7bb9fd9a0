// The service in its own process, which can be killed.

import { spawn } from 'node:child_process';
import { readFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { createInterface } from 'node:readline';
import { type Call, type Endpoints, openCalls } from '../../support/call.ts';
import type { Cluster } from './cluster.ts';

export interface ServiceProcess extends Endpoints {
  /** With the cluster's key unless another is given. */
  call: Call;
  pid: number;
  operationsUrl: string;
  /** Lines of the log so far, parsed. */
  log: Record<string, unknown>[];
  /** Sends a signal and resolves with the exit status of the process. */
  end(signal: NodeJS.Signals): Promise<{ code: number | null; signal: NodeJS.Signals | null }>;
  kill(signal: NodeJS.Signals): void;
  residentMb(): Promise<number>;
  /** The peak resident memory since the start. */
  peakResidentMb(): Promise<number>;
  /** Stops reading its standard output, like a stuck journal, or continues. */
  readLog(isRead: boolean): void;
}

export interface Ports {
  HTTP_PORT: string;
  GRPC_PORT: string;
  METRICS_PORT: string;
}

/** Each worker has its own, below those that systems give to connections. */
let nextPort = 12_000 + 2_000 * Number(process.env.VITEST_POOL_ID ?? 0);

/** Ports that a service can use, and use again after it was killed. */
export async function choosePorts(): Promise<Ports> {
  const [HTTP_PORT = '', GRPC_PORT = '', METRICS_PORT = ''] = [0, 1, 2].map(() => String(nextPort++));
  return { HTTP_PORT, GRPC_PORT, METRICS_PORT };
}

const running = new Set<ServiceProcess>();
const allLines: Record<string, unknown>[] = [];

/** The log of all processes of this test file. */
export function logLines(): readonly Record<string, unknown>[] {
  return allLines;
}

/** Kills processes that a test has left running. */
export async function endAll(): Promise<void> {
  await Promise.all([...running].map((service) => service.end('SIGKILL')));
}

/**
 * Starts the service as `npm start` does, and resolves when it is ready. `folder` has the code of another release, if it
 * is not this one.
 */
export async function startProcess(
  cluster: Pick<Cluster, 'url' | 'secrets' | 'apiKey'>,
  ports: Ports,
  env: Record<string, string> = {},
  { openFiles = 'unlimited', folder = '.' }: { openFiles?: string; folder?: string } = {},
): Promise<ServiceProcess> {
  const manifest = await readFile(join(folder, 'package.json'), 'utf8');
  const { scripts } = JSON.parse(manifest) as { scripts: { start: string } };
  // It ends in "exec": the process is the service itself.
  const command = openFiles === 'unlimited' ? scripts.start : `ulimit -n ${openFiles} && ${scripts.start}`;
  const child = spawn('sh', ['-c', command], {
    cwd: folder,
    env: {
      PATH: `${dirname(process.execPath)}:${process.env.PATH}`,
      DATABASE_URL: cluster.url,
      ...cluster.secrets,
      RATE_LIMIT: '0',
      DRAIN_DELAY: '0',
      ...ports,
      ...env,
    },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  const urls = {
    publicUrl: `http://127.0.0.1:${ports.HTTP_PORT}`,
    internalUrl: `http://127.0.0.1:${ports.GRPC_PORT}`,
  };
  const { call, close } = openCalls(urls, cluster.apiKey);
  const exited = new Promise<{ code: number | null; signal: NodeJS.Signals | null }>((resolve) => {
    child.once('exit', (code, signal) => {
      running.delete(service);
      close();
      resolve({ code, signal });
    });
  });
  const log: Record<string, unknown>[] = [];
  const lines = createInterface({ input: child.stdout });
  const memoryMb = async (name: 'VmRSS' | 'VmHWM') => {
    const status = await readFile(`/proc/${child.pid}/status`, 'utf8');
    return (Number(new RegExp(`${name}:\\s+(\\d+) kB`).exec(status)?.[1]) * 1024) / 1e6;
  };
  const service: ServiceProcess = {
    ...urls,
    call,
    pid: child.pid ?? 0,
    operationsUrl: `http://127.0.0.1:${ports.METRICS_PORT}`,
    log,
    end(signal) {
      child.kill(signal);
      return exited;
    },
    kill: (signal) => void child.kill(signal),
    residentMb: () => memoryMb('VmRSS'),
    peakResidentMb: () => memoryMb('VmHWM'),
    readLog(isRead) {
      if (isRead) lines.resume();
      else lines.pause();
    },
  };
  running.add(service);
  let complaints = '';
  child.stderr.on('data', (chunk) => {
    complaints += chunk;
  });
  await new Promise<void>((resolve, reject) => {
    void exited.then(({ code }) => reject(new Error(`the service ended with ${code}: ${complaints}`)));
    lines.on('line', (line) => {
      // A kill can leave an incomplete line.
      if (!line.startsWith('{') || !line.endsWith('}')) return;
      const entry = JSON.parse(line);
      log.push(entry);
      allLines.push(entry);
      if (entry.message === 'ready') resolve();
    });
  });
  return service;
}

/** Waits until `GET /readyz` returns the status. Resolves with the time that took; throws after a timeout. */
export async function untilReadyz(
  service: Pick<ServiceProcess, 'operationsUrl'>,
  status: 200 | 503,
  timeoutMs: number,
): Promise<number> {
  const startedAtMs = performance.now();
  for (;;) {
    const answer = await fetch(`${service.operationsUrl}/readyz`).catch(() => undefined);
    await answer?.text();
    const tookMs = performance.now() - startedAtMs;
    if (answer?.status === status) return tookMs;
    if (tookMs > timeoutMs)
      throw new Error(`/readyz is ${answer?.status} after ${timeoutMs} ms, not ${status}`);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}
