// Runs anvil, the development node of `@foundry-rs/anvil`. The package is a development dependency: a production
// installation does not have it.

import { type ChildProcess, spawn } from 'node:child_process';
import { createRequire } from 'node:module';
import { createServer } from 'node:net';
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

/**
 * Starts anvil on a free port of 127.0.0.1, or on `port`. Resolves once it answers. It writes nothing to its standard
 * output, so that it outlives this process, and is not ended by the terminal's Ctrl-C. Throws an error with its last
 * words if it ends before it answers.
 */
export async function startAnvil(program: string, flags: readonly string[], port?: number): Promise<Anvil> {
  const chosenPort = port ?? (await freePort());
  const child = spawn(program, ['--quiet', '--host', '127.0.0.1', '--port', String(chosenPort), ...flags], {
    detached: true,
    stdio: ['ignore', 'ignore', 'pipe'],
  });
  let lastWords = '';
  child.stderr.on('data', (chunk: Buffer) => {
    lastWords = (lastWords + chunk).slice(-2_000);
  });
  let end: Error | undefined;
  child.once('error', (error) => {
    end = error;
  });
  child.once('exit', (code, signal) => {
    end ??= new Error(lastWords.trim().split('\n').at(-1) || `anvil ended with ${code ?? signal}`);
  });
  for (const deadlineMs = Date.now() + startTimeoutMs; Date.now() < deadlineMs; await sleep(5)) {
    if (end !== undefined) throw end;
    if (!(await answers(chosenPort))) continue;
    child.unref();
    child.stderr.destroy();
    return { pid: child.pid as number, port: chosenPort, process: child };
  }
  child.kill('SIGKILL');
  throw new Error(`anvil did not answer within ${startTimeoutMs / 1000} s`);
}

/** True if a JSON-RPC node answers on that port of 127.0.0.1. */
async function answers(port: number): Promise<boolean> {
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
