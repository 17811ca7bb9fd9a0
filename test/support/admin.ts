// Runs admin commands in the test's own process. In its own process, each command takes a second of CPU time.

import { format } from 'node:util';
import { runCommand } from '../../src/admin.ts';

export interface AdminRun {
  code: number;
  stdout: string;
  stderr: string;
}

let last: Promise<unknown> = Promise.resolve();

/** Runs `admin` with that environment, after the previous command has ended. */
export function runAdmin(args: readonly string[], env: NodeJS.ProcessEnv): Promise<AdminRun> {
  const run = last.then(() => runNow(args, env));
  last = run.catch(() => {});
  return run;
}

async function runNow(args: readonly string[], env: NodeJS.ProcessEnv): Promise<AdminRun> {
  const run: AdminRun = { code: 0, stdout: '', stderr: '' };
  const before = { argv: process.argv, env: process.env, log: console.log, error: console.error };
  const writes = [process.stdout.write, process.stderr.write] as const;
  const take = (name: 'stdout' | 'stderr') => (text: unknown) => {
    run[name] += String(text);
    return true;
  };
  process.argv = [process.execPath, 'src/admin.ts', ...args];
  process.env = { ...env };
  console.log = (...all) => void take('stdout')(`${format(...all)}\n`);
  console.error = (...all) => void take('stderr')(`${format(...all)}\n`);
  process.stdout.write = take('stdout');
  process.stderr.write = take('stderr');
  try {
    await runCommand();
    run.code = Number(process.exitCode ?? 0);
  } finally {
    [process.stdout.write, process.stderr.write] = writes;
    Object.assign(console, { log: before.log, error: before.error });
    Object.assign(process, { argv: before.argv, env: before.env, exitCode: undefined });
  }
  return run;
}
