// SIGHUP from an operator, with or without TLS files to reload, and from a terminal that is closed.

import { once } from 'node:events';
import { chmod, stat } from 'node:fs/promises';
import { connect } from 'node:net';
import { join } from 'node:path';
import { beforeEach, expect, onTestFinished, test } from 'vitest';
import { useFolder } from './support/folder.ts';
import { startProgram } from './support/program.ts';
import { anyPorts, bareEnvironment } from './support/test-environment.ts';

let folder: string;
let env: NodeJS.ProcessEnv;

beforeEach(async () => {
  folder = await useFolder(onTestFinished);
  await chmod(folder, 0o755);
  env = { ...bareEnvironment(), ...anyPorts, DATA_DIR: join(folder, 'data'), TERM: 'dumb' };
});

// Other systems have another `script`.
test.skipIf(process.platform !== 'linux')(
  'closing a terminal stops the service that was started in it',
  async () => {
    const command = `echo "pid $$"; exec ${process.execPath} src/main.ts`;
    const terminal = startProgram(['script', '-qec', command, '/dev/null'], {
      env,
      stdio: ['pipe', 'pipe', 'inherit'],
    });
    const [, pid, host, port] = await terminal.until(/pid (\d+)[\s\S]*http:\/\/([\d.]+):(\d+)\/readyz/);
    const connection = connect(Number(port), host);
    await once(connection, 'connect');
    const closed = once(connection, 'close');

    // The terminal is still open: this signal is from an operator.
    process.kill(Number(pid), 'SIGHUP');
    await terminal.until(/SIGHUP ignored: no TLS files/);
    expect((await fetch(`http://${host}:${port}/healthz`)).status).toBe(200);

    // Closes the terminal.
    terminal.child.kill('SIGKILL');
    await once(terminal.child, 'exit');
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
