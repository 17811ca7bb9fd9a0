// Runs anvil, the development node of `@foundry-rs/anvil`. The package is a development dependency: a
// production installation does not have it.

import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { type FileHandle, mkdtemp, open, rm } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';

interface Anvil {
  pid: number;
  port: number;
  process: ChildProcess;
}

/** Why there is no program, for a person to read. */
interface Missing {
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

/** Other programs may take a free port before anvil does. */
const portAttempts = 5;

/**
 * Starts anvil on `port` or any free one of 127.0.0.1. Resolves once it answers. It writes nothing to its
 * standard output, so that it outlives this process, and the terminal's Ctrl-C does not reach it. If it ends
 * before it answers, throws an error with anvil's message.
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
  // Not a pipe: anvil would not survive an error message after the end of this process.
  const folder = await mkdtemp(join(tmpdir(), 'anvil-'));
  const errors = await open(join(folder, 'errors'), 'w+');
  try {
    const child = spawn(program, ['--quiet', '--host', '127.0.0.1', '--port', String(port), ...flags], {
      detached: true,
      stdio: ['ignore', 'ignore', errors.fd],
    });
    let end: Error | undefined;
    child.once('error', (error) => (end = error));
    child.once('exit', (code, signal) => (end = new Error(`anvil ended with ${code ?? signal}`)));
    for (const deadlineMs = Date.now() + startTimeoutMs; Date.now() < deadlineMs; await sleep(5)) {
      // If the port was taken, another program may answer on it.
      if ((await answers(port)) && end === undefined) {
        child.unref();
        return { pid: child.pid as number, port, process: child };
      }
      if (end !== undefined) throw new Error((await errorIn(errors)) ?? end.message, { cause: end });
    }
    child.kill('SIGKILL');
    throw new Error(`anvil did not answer within ${startTimeoutMs / 1000} s`);
  } finally {
    await errors.close();
    await rm(folder, { recursive: true });
  }
}

async function errorIn(errors: FileHandle): Promise<string | undefined> {
  const { buffer, bytesRead } = await errors.read(Buffer.alloc(4_096), 0, 4_096, 0);
  const lines = buffer.toString('utf8', 0, bytesRead).trim().split('\n');
  return lines.find((line) => /^error: /i.test(line)) ?? (lines.at(-1) || undefined);
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
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as { port: number };
  await once(server.close(), 'close');
  return port;
}
