// Runs anvil, the development node of `@foundry-rs/anvil`. The package is a development dependency: a production
// installation does not have it.

import { type ChildProcess, type ChildProcessByStdio, spawn } from 'node:child_process';
import { createRequire } from 'node:module';
import { createServer } from 'node:net';
import type { Readable } from 'node:stream';
import { setTimeout as sleep } from 'node:timers/promises';

export interface Anvil {
  pid: number;
  port: number;
  process: ChildProcess;
}

/** Why there is no program, for a person to read. */
export interface Missing {
  missing: string;
}

/** Returns the path of the program, or what is missing. */
export function findAnvil(): string | Missing {
  const platforms: Record<string, string> = { win32: 'win32', linux: 'linux', darwin: 'darwin' };
  const architectures: Record<string, string> = { x64: 'amd64', arm64: 'arm64' };
  const platform = platforms[process.platform];
  const architecture = architectures[process.arch];
  if (platform === undefined || architecture === undefined) {
    return { missing: `@foundry-rs/anvil has no program for ${process.platform} on ${process.arch}` };
  }
  const program = process.platform === 'win32' ? 'anvil.exe' : 'anvil';
  try {
    const fromAnvil = createRequire(createRequire(import.meta.url).resolve('@foundry-rs/anvil/package.json'));
    return fromAnvil.resolve(`@foundry-rs/anvil-${platform}-${architecture}/bin/${program}`);
  } catch {
    return {
      missing:
        'the development dependency @foundry-rs/anvil is not installed: run "npm ci", without --omit=dev and --omit=optional',
    };
  }
}

/** Longest wait until anvil answers. A state file of several hundred MB takes a few seconds to load. */
const startTimeoutMs = 30_000;

/** Others may take a free port before anvil does. */
const portAttempts = 5;

/**
 * Starts anvil on `port` or any free one of 127.0.0.1. Resolves once it answers. It writes nothing to its standard
 * output, so that it outlives this process, and the terminal's Ctrl-C does not reach it. Throws an error with its own
 * words if it ends before it answers.
 */
export async function startAnvil(program: string, flags: readonly string[], port?: number): Promise<Anvil> {
  for (let attempt = 1; ; attempt++) {
    try {
      return await startAt(port ?? (await freePort()), program, flags);
    } catch (error) {
      const isTaken = error instanceof Error && error.message.includes('already in use');
      if (!isTaken || port !== undefined || attempt === portAttempts) throw error;
    }
  }
}

async function startAt(port: number, program: string, flags: readonly string[]): Promise<Anvil> {
  const child = spawn(program, ['--quiet', '--host', '127.0.0.1', '--port', String(port), ...flags], {
    detached: true,
    stdio: ['ignore', 'ignore', 'pipe'],
  });
  const ended = untilItEnds(child);
  for (const deadlineMs = Date.now() + startTimeoutMs; Date.now() < deadlineMs; await sleep(5)) {
    if (ended.reason !== undefined) throw ended.reason;
    if (!(await answers(port))) continue;
    // Another program may answer on a port that anvil could not have.
    if (ended.reason !== undefined) throw ended.reason;
    child.unref();
    child.stderr.destroy();
    return { pid: child.pid as number, port, process: child };
  }
  child.kill('SIGKILL');
  throw new Error(`anvil did not answer within ${startTimeoutMs / 1000} s`);
}

/** Watches a process that starts. Its `reason` is set as soon as it ends. */
function untilItEnds(child: ChildProcessByStdio<null, null, Readable>): { reason?: Error } {
  const ended: { reason?: Error } = {};
  let lastWords = '';
  child.stderr.on('data', (chunk: Buffer) => {
    lastWords = (lastWords + chunk).slice(-2_000);
  });
  child.once('error', (error) => {
    ended.reason = error;
  });
  child.once('close', (code, signal) => {
    const lines = lastWords.trim().split('\n');
    const reason = lines.find((line) => /^error: /i.test(line)) ?? lines.at(-1);
    ended.reason ??= new Error(reason || `anvil ended with ${code ?? signal}`);
  });
  return ended;
}

/** True if a JSON-RPC node answers on that port of 127.0.0.1. */
export async function answers(port: number): Promise<boolean> {
  try {
    const response = await fetch(`http://127.0.0.1:${port}`, {
      method: 'POST',
      headers: { 'Content-Type': 'application/json' },
      body: '{"jsonrpc":"2.0","id":1,"method":"eth_chainId","params":[]}',
      signal: AbortSignal.timeout(1_000),
    });
    return response.ok && 'result' in ((await response.json()) as object);
  } catch {
    return false;
  }
}

async function freePort(): Promise<number> {
  const server = createServer();
  const listening = new Promise<void>((resolve, reject) =>
    server.once('error', reject).once('listening', resolve),
  );
  server.listen(0, '127.0.0.1');
  await listening;
  const { port } = server.address() as { port: number };
  await new Promise((resolve) => server.close(resolve));
  return port;
}
