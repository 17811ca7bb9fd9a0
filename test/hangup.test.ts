// SIGHUP from an operator, with or without TLS files to reload, and from a terminal that is closed.

import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { chmod, stat } from 'node:fs/promises';
import { connect } from 'node:net';
import { join } from 'node:path';
import { beforeEach, expect, onTestFinished, test } from 'vitest';
import { useFolder } from './support/folder.ts';
import { bareEnvironment } from './support/test-environment.ts';

let folder: string;
let env: NodeJS.ProcessEnv;

beforeEach(async () => {
  folder = await useFolder(onTestFinished);
  await chmod(folder, 0o755);
  env = { ...bareEnvironment(), DATA_DIR: join(folder, 'data') };
  Object.assign(env, { HTTP_PORT: '0', GRPC_PORT: '0', METRICS_PORT: '0', CONSOLE_PORT: '0', TERM: 'dumb' });
});

/** Resolves with the match once the process has printed it. */
function printed(child: ChildProcess, what: RegExp): Promise<RegExpExecArray> {
  return new Promise((resolve, reject) => {
    let output = '';
    child.stdout?.on('data', (chunk) => {
      output += chunk;
      const match = what.exec(output);
      if (match) resolve(match);
    });
    child.once('exit', (code) => reject(new Error(`ended with ${code}: ${output}`)));
  });
}

// Other systems have another `script`.
test.skipIf(process.platform !== 'linux')(
  'closing a terminal stops the service that was started in it',
  async () => {
    const command = `echo "pid $$"; exec ${process.execPath} src/main.ts`;
    const terminal = spawn('script', ['-qec', command, '/dev/null'], {
      env,
      stdio: ['pipe', 'pipe', 'inherit'],
    });
    const started = printed(terminal, /pid (\d+)[\s\S]*http:\/\/([\d.]+):(\d+)\/readyz/);
    started.catch(() => {});
    const [, pid, host, port] = await started;
    const connection = connect(Number(port), host);
    await once(connection, 'connect');
    const closed = once(connection, 'close');

    // The terminal is still open: this signal is from an operator.
    const noted = printed(terminal, /SIGHUP ignored: no TLS files/);
    process.kill(Number(pid), 'SIGHUP');
    await noted;
    expect((await fetch(`http://${host}:${port}/healthz`)).status).toBe(200);

    // Closes the terminal.
    const gone = once(terminal, 'exit');
    terminal.kill('SIGKILL');
    await gone;
    await closed;
    await untilEnded(Number(pid));
    // An orderly shutdown: the database is stopped too.
    await expect(stat(join(folder, 'data', 'postgres', 'postmaster.pid'))).rejects.toThrow('ENOENT');
  },
);

/** Resolves when the process is gone. It is not our child, so there is no event. */
async function untilEnded(pid: number): Promise<void> {
  for (;;) {
    try {
      process.kill(pid, 0);
    } catch {
      return;
    }
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}
