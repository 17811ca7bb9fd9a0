// The example shop as a process, and its orders as a browser requests them.

import { expect, vi } from 'vitest';
import { startProgram } from './program.ts';
import { anyPorts, bareEnvironment, scriptOf } from './test-environment.ts';

export interface Program {
  /** The printed address. */
  url: string;
  /** Standard output and errors so far. */
  output(): string;
  /** Resolves when it has ended. */
  ended: Promise<unknown>;
  stop(): Promise<void>;
}

/** Runs a program until its output matches. */
async function start(command: string[], env: NodeJS.ProcessEnv, ready: RegExp): Promise<Program> {
  const program = startProgram(command, { env: { ...bareEnvironment(), ...env }, detached: true });
  const { child, printed, ended } = program;
  const [, url = ''] = await program.until(ready);
  return {
    url,
    output: () => printed.output + printed.errors,
    ended,
    async stop() {
      if (child.exitCode === null && child.signalCode === null)
        process.kill(-(child.pid as number), 'SIGINT');
      await ended;
    },
  };
}

/** The script of `npm run shop`, or npm itself. */
export const startShop = (env: NodeJS.ProcessEnv, command = scriptOf('shop')): Promise<Program> =>
  start(command, { PORT: '0', ...env }, /^the shop is open: (\S+)$/m);

/** `npm start` */
export const startWholeService = (env: NodeJS.ProcessEnv): Promise<Program> =>
  start(['npm', 'start'], { ...anyPorts, ...env }, /^ {2}Reference +(http:\S+)\/docs$[\s\S]*"ready"/m);

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
