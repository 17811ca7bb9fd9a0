// The service's own process: the one place that reads its environment, handles signals and exits.

import { join, resolve } from 'node:path';
import { isatty } from 'node:tty';
import type { Logger } from 'pino';
import { type Config, loadConfig, reachable } from './config/config.ts';
import { StartupError } from './config/startup-error.ts';
import { startEmbeddedPostgres } from './database/embedded-postgres.ts';
import type { RunningServer } from './processes/serve.ts';
import { createLogger, standardOutput } from './telemetry/logging.ts';

async function main(): Promise<void> {
  const config = loadConfig(process.env);
  const output = await standardOutput(process.stdout.isTTY === true);
  const logger = createLogger(config.logLevel, output.destination);
  output.onRecovery((lines) => {
    logger.warn({ dropped: lines }, 'log lines were dropped: standard output was not read in time');
  });
  const { stop, onHangup } = listenForSignals(logger, () => {
    if (config.tls === undefined) logger.info('SIGHUP: there are no TLS files to read again');
  });
  // Also where the signal comes while the service starts, which may hang as well.
  void stop.then(() => endAfter(config.drainTimeoutMs, logger));

  // Everything else is loaded while PostgreSQL starts: together they take as long as the slower of the two.
  const [postgres, { openDatabase }, { ensureDemo }, { startServer }] = await Promise.all([
    config.databaseUrl === undefined ? startEmbeddedPostgres(config.dataDir) : undefined,
    import('./processes/open-database.ts'),
    import('./processes/demo.ts'),
    import('./processes/serve.ts'),
  ]);
  const database = await openDatabase(config, postgres);
  try {
    if (database.pending.length > 0) {
      throw new StartupError(
        `the database lacks ${database.pending.length} migration(s), the first being ${database.pending[0]}: run "npm run -s admin -- migrate" and start again`,
      );
    }
    const demo = database.embedded ? await ensureDemo(database, config.dataDir) : undefined;
    const server = await startServer(config, database, logger, output);
    logger.info({ host: config.host, ...server.ports }, 'ready');
    if (config.tls !== undefined) onHangup(() => void reloadTls(server, logger));
    if (demo !== undefined)
      console.log(welcome(config, server.ports, process.stdout.isTTY ? demo.testnet_key : undefined));

    const signal = await Promise.race([stop, postgres?.ended ?? stop]);
    if (signal === undefined) {
      endAfter(config.drainTimeoutMs, logger);
      logger.fatal('the embedded PostgreSQL has ended unexpectedly; stopping');
      process.exitCode = 1;
    } else {
      logger.info({ signal }, 'stopping');
    }
    await server.close();
  } finally {
    await database.close();
  }
  logger.info('stopped');
  await new Promise<void>((resolve) => logger.flush(() => resolve()));
}

/** What is left for the last lines of the log when everything else was given up. */
const lastLinesMs = 250;

/** Ends the process at once, with the last lines of the log if somebody takes them. */
function endNow(logger: Logger): void {
  logger.flush(() => process.exit(1));
  // At its end a process waits for standard output, however long that hangs. Only this does not wait.
  setTimeout(() => process.kill(process.pid, 'SIGKILL'), lastLinesMs);
}

/** With no time to drain, what is left for closing the database. */
const minStopMs = 1_000;

/** Ends the process when stopping has taken that long, whatever it waits for: a database that hangs, a log nobody reads. */
function endAfter(drainTimeoutMs: number, logger: Logger): void {
  const timeoutMs = Math.max(drainTimeoutMs, minStopMs);
  setTimeout(() => {
    logger.fatal({ timeout_ms: timeoutMs }, 'not stopped in time; ending with work unfinished');
    endNow(logger);
  }, timeoutMs).unref();
}

interface Signals {
  /** The first SIGINT or SIGTERM. */
  stop: Promise<NodeJS.Signals>;
  onHangup(reload: () => void): void;
}

/**
 * A signal to stop that comes a second after the first, or later, ends the process at once, for whoever cannot wait;
 * sooner it is the same one, which the terminal sends to all its processes and npm then passes on. SIGHUP asks a
 * service to read its files again, and stops it only if it was started in a terminal that is gone by now.
 */
function listenForSignals(logger: Logger, onEarlyHangup: () => void): Signals {
  let reload = onEarlyHangup;
  const startedInTerminal = isatty(0);
  const stop = new Promise<NodeJS.Signals>((resolve) => {
    let firstAtMs: number | undefined;
    for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) {
      process.on(signal, () => {
        if (signal === 'SIGHUP' && !(startedInTerminal && !isatty(0))) return reload();
        firstAtMs ??= performance.now();
        if (performance.now() - firstAtMs > 1_000) endNow(logger);
        resolve(signal);
      });
    }
  });
  return {
    stop,
    onHangup(wanted) {
      reload = wanted;
    },
  };
}

async function reloadTls(server: RunningServer, logger: Logger): Promise<void> {
  try {
    await server.reloadTls();
    logger.info('the TLS files were read again; new connections get the new certificate');
  } catch (error) {
    logger.error({ err: error }, 'the TLS files are not usable; the old certificate stays');
  }
}

/** What to try first. Without a terminal, where it may end up in a log, it says where the key is instead of the key. */
function welcome(
  { host, dataDir, tls }: Config,
  ports: RunningServer['ports'],
  testnetKey: string | undefined,
): string {
  const address = reachable(host);
  const url = `${tls ? 'https' : 'http'}://${address}:${ports.http}/v1/payment_intents`;
  const demoFile = join(dataDir, 'demo.json');
  const fromFile = `"Authorization: Bearer $(grep -o 'sk_testnet_[0-9A-Za-z]*' ${inShell(resolve(demoFile))})"`;
  const authorization = testnetKey === undefined ? fromFile : `'Authorization: Bearer ${testnetKey}'`;
  return `
  Payment intents   ${url}
  Reference         ${new URL('/docs', url)}
  gRPC              ${address}:${ports.grpc}
  Operations        http://${address}:${ports.metrics}/readyz and /metrics
  Demo merchant     ${demoFile} (test money only)

  Create a payment intent of 12.50 USDC:

curl -i ${tls ? '-k ' : ''}${url} -H ${authorization} -H 'Content-Type: application/json' -d '{"amount_units":12500000,"chain":"base","metadata":{"order_id":"order-1001"}}'
`;
}

/** A text as one word for a shell. */
function inShell(text: string): string {
  return `'${text.replaceAll("'", "'\\''")}'`;
}

// Whatever is still open, such as the last spans on their way to a collector, must not keep a process alive that
// serves nobody.
main().then(
  () => process.exit(),
  (error: unknown) => {
    if (error instanceof StartupError) console.error(`payment-intent-service: ${error.message}`);
    else console.error(error);
    process.exit(1);
  },
);
