// The example shop as a process, and its orders as a browser asks for them.

import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { expect, vi } from 'vitest';
import { bareEnvironment, scriptOf } from './test-environment.ts';

export interface Program {
  /** The address that it has printed. */
  url: string;
  /** Standard output so far, and errors. */
  output(): string;
  /** Resolves when it has ended. */
  ended: Promise<unknown>;
  stop(): Promise<void>;
}

/** Runs a program until it prints what is looked for. */
async function start(command: string[], env: NodeJS.ProcessEnv, ready: RegExp): Promise<Program> {
  const [program = '', ...args] = command;
  const child: ChildProcess = spawn(program, args, {
    env: { ...bareEnvironment(), ...env },
    stdio: ['ignore', 'pipe', 'pipe'],
    detached: true,
  });
  let output = '';
  for (const stream of [child.stdout, child.stderr]) {
    stream?.on('data', (chunk) => {
      output += chunk;
    });
  }
  const exited = once(child, 'exit');
  const found = await Promise.race([
    vi.waitFor(() => ready.exec(output) ?? expect.fail(`not there yet: ${output}`), { timeout: 60_000 }),
    exited.then(([code]) => {
      throw new Error(`exited with ${code}: ${output}`);
    }),
  ]);
  return {
    url: found[1] ?? '',
    output: () => output,
    ended: exited,
    async stop() {
      if (child.exitCode === null && child.signalCode === null)
        process.kill(-(child.pid as number), 'SIGINT');
      await exited;
    },
  };
}

/** The script of `npm run shop`, or npm itself. */
export const startShop = (env: NodeJS.ProcessEnv, command = scriptOf('shop')): Promise<Program> =>
  start(command, { PORT: '0', ...env }, /^the shop is open: (\S+)$/m);

/** `npm start` */
export const startWholeService = (env: NodeJS.ProcessEnv): Promise<Program> =>
  start(
    ['npm', 'start'],
    { HTTP_PORT: '0', GRPC_PORT: '0', METRICS_PORT: '0', CONSOLE_PORT: '0', ...env },
    /^ {2}Reference +(http:\S+)\/docs$[\s\S]*"ready"/m,
  );

interface Answer {
  status: number;
  // biome-ignore lint/suspicious/noExplicitAny: a test reads what it expects to be there.
  body: any;
}

/** Resolves once the shop has shipped the order that many times. */
export const hasShipped = (shop: Program, order: string, times: number): Promise<void> =>
  vi.waitFor(() => expect(shop.output().split(`ship ${order}\n`)).toHaveLength(times + 1), {
    timeout: 40_000,
  });

export async function ask(url: string, init: RequestInit = {}): Promise<Answer> {
  const answer = await fetch(url, { redirect: 'manual', ...init });
  const text = await answer.text();
  const isJson = answer.headers.get('content-type') === 'application/json';
  return {
    status: answer.status,
    body: isJson ? JSON.parse(text) : (answer.headers.get('location') ?? text),
  };
}

export const post = (url: string, body: unknown = {}) =>
  ask(url, { method: 'POST', headers: { 'content-type': 'application/json' }, body: JSON.stringify(body) });

export const placeOrder = async (shop: Program) => {
  const { status, body } = await post(`${shop.url}/orders`, { product: 'harbour' });
  expect(status).toBe(201);
  return body as { order_id: string; client_secret: string };
};

export const stateOf = async (shop: Program, order: string) =>
  (await ask(`${shop.url}/orders/${order}/state`)).body.state;

export const intentOf = (clientSecret: string) => clientSecret.split('_secret_')[0] as string;
