// The entry point of the service: the only place that reads the environment, handles signals and exits.

import { join, resolve } from 'node:path';
import { isatty } from 'node:tty';
import { inspect } from 'node:util';
import type { Logger } from 'pino';
import manifest from '../package.json' with { type: 'json' };
import { type Config, consoleAddress, loadConfig, misspeltVariables, reachable } from './config/config.ts';
import { StartupError } from './config/startup-error.ts';
import { visibleLines } from './contract/visible-text.ts';
import { startEmbeddedPostgres } from './embedded/postgres.ts';
import type { LocalChainPlan } from './embedded/run-local-chains.ts';
import type { RunningServer } from './processes/serve.ts';
import { logToStandardOutput } from './telemetry/logging.ts';

const usage = `Usage: npm start

Starts the payment intent service. Without a DATABASE_URL it runs a PostgreSQL of its own, for trying out.

Its settings are environment variables, as in: HTTP_PORT=8081 npm start
docs/configuration.md lists them.

  npm run -s admin -- doctor    checks the settings, the database and the chains
  npm run -s admin -- --help    merchants, keys, payments and the database schema
`;

/** Prints the help or the version. Throws StartupError for other arguments. */
function answerArguments(args: readonly string[]): void {
  const [first] = args;
  if (args.length === 1 && (first === '--help' || first === '-h')) process.stdout.write(usage);
  else if (args.length === 1 && (first === '--version' || first === '-V')) console.log(manifest.version);
  // The arguments are not printed: one may be a secret.
  else {
    throw new StartupError(
      `it takes no arguments but --help and --version, and was given ${args.length}: set environment variables instead, as --help says`,
    );
  }
}

async function main(): Promise<void> {
  const args = process.argv.slice(2);
  if (args.length > 0) return answerArguments(args);
  const config = loadConfig(process.env);
  const { logger, droppedLines } = await logToStandardOutput(config.logLevel, process.stdout.isTTY === true);
  for (const { problem, ...misspelt } of misspeltVariables(process.env)) logger.warn(misspelt, problem);
  let isOutdated = false;
  let onHangup = () => {
    isOutdated = config.tls !== undefined;
    if (!isOutdated) logger.info('SIGHUP ignored: no TLS files are configured');
  };
  const stop = listenForSignals(logger, () => onHangup());
  // Also if the signal comes during the start, which may hang as well.
  void stop.then(() => endAfter(config.drainTimeoutMs, logger));

  // Everything else is loaded while PostgreSQL starts. Loading keeps this process busy, so PostgreSQL is first.
  const spawned = Promise.withResolvers<void>();
  const starting =
    config.databaseUrl === undefined ? startEmbeddedPostgres(config.dataDir, spawned.resolve) : undefined;
  await Promise.race([starting, spawned.promise]);
  const [
    postgres,
    { openDatabase },
    { ensureDemo, demoClientSecret, demoConsoleCode },
    { startServer },
    { planLocalChains, runLocalChains },
  ] = await Promise.all([
    starting,
    import('./processes/open-database.ts'),
    import('./embedded/demo.ts'),
    import('./processes/serve.ts'),
    import('./embedded/run-local-chains.ts'),
  ]);
  const database = await openDatabase(config, postgres);
  let stopLocalChains = async () => {};
  try {
    if (database.pending.length > 0) {
      throw new StartupError(
        `the database lacks ${database.pending.length} migration(s), the first being ${database.pending[0]}: run "npm run -s admin -- migrate" and start again`,
      );
    }
    const demo = database.embedded ? await ensureDemo(database, config.dataDir) : undefined;
    const localChains = planLocalChains(config);
    const server = await startServer(config, database, logger, {
      droppedLines,
      localChains: localChains.chains,
    });
    logger.info({ host: config.host, ...server.ports }, 'ready');
    stopLocalChains = runLocalChains(localChains, config, database.orm.em, server, logger);
    if (config.tls !== undefined) onHangup = () => void reloadTls(server, logger);
    // The files were replaced during the start.
    if (isOutdated) await reloadTls(server, logger);
    if (demo !== undefined) {
      const secrets = process.stdout.isTTY
        ? {
            testnetKey: demo.testnet_key,
            clientSecret: await demoClientSecret(database, config, demo).catch(
              withoutLink(logger, 'the demo checkout'),
            ),
            consoleCode: await demoConsoleCode(database).catch(withoutLink(logger, 'the console')),
          }
        : undefined;
      console.log(welcome(config, server.ports, localChains, secrets));
    }

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
    await stopLocalChains().finally(() => database.close());
  }
  logger.info('stopped');
  await new Promise<void>((resolve) => logger.flush(() => resolve()));
}

/** The service runs without a link that could not be made. */
const withoutLink = (logger: Logger, to: string) => (error: unknown) => {
  logger.warn({ err: error }, `could not make a link to ${to}`);
  return undefined;
};

/** Time for the last log lines once everything else was given up. */
const lastLinesMs = 250;

/** Ends the process at once. The last log lines are written if standard output is being read. */
function endNow(logger: Logger): void {
  logger.flush(() => process.exit(1));
  // On exit a process waits for standard output, even if it hangs. Only SIGKILL does not wait.
  setTimeout(() => process.kill(process.pid, 'SIGKILL'), lastLinesMs);
}

/** The minimum time to close the database if there is no time to drain. */
const minStopMs = 1_000;

/** Ends the process if stopping takes this long, such as if the database or the log's reader hangs. */
function endAfter(drainTimeoutMs: number, logger: Logger): void {
  const timeoutMs = Math.max(drainTimeoutMs, minStopMs);
  setTimeout(() => {
    logger.fatal({ timeout_ms: timeoutMs }, 'not stopped in time; ending with work unfinished');
    endNow(logger);
  }, timeoutMs).unref();
}

/**
 * Resolves with the first signal to stop. One that comes more than a second later ends the process at once.
 * An earlier one counts as the same signal: the terminal sends it to all its processes and npm then forwards
 * it. SIGHUP makes the service read its files again. It stops the service only if the terminal that started it
 * is gone.
 */
function listenForSignals(logger: Logger, onHangup: () => void): Promise<NodeJS.Signals> {
  const startedInTerminal = isatty(0);
  let firstAtMs: number | undefined;
  return new Promise((resolve) => {
    for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) {
      process.on(signal, () => {
        if (signal === 'SIGHUP' && !(startedInTerminal && !isatty(0))) return onHangup();
        firstAtMs ??= performance.now();
        if (performance.now() - firstAtMs > 1_000) endNow(logger);
        resolve(signal);
      });
    }
  });
}

async function reloadTls(server: RunningServer, logger: Logger): Promise<void> {
  try {
    await server.reloadTls();
    logger.info('TLS files reloaded; new connections use the new certificate');
  } catch (error) {
    logger.error({ err: error }, 'TLS files are not usable; keeping the old certificate');
  }
}

/** The first commands to try. Without a terminal, as for a log, shows where the key is, but no secrets. */
function welcome(
  config: Config,
  ports: RunningServer['ports'],
  { chains, missing }: LocalChainPlan,
  secrets:
    | { testnetKey: string; clientSecret: string | undefined; consoleCode: string | undefined }
    | undefined,
): string {
  const { host, dataDir, tls } = config;
  const address = reachable(host);
  const baseUrl = `${tls ? 'https' : 'http'}://${address}:${ports.http}`;
  const url = `${baseUrl}/v1/payment_intents`;
  const demoFile = join(dataDir, 'demo.json');
  const key = secrets?.testnetKey ?? `$(grep -o 'sk_testnet_[0-9A-Za-z]*' ${inShell(resolve(demoFile))})`;
  // Without double quotes, the shell would not read the file.
  const quote = secrets === undefined ? '"' : "'";
  const authorization = `${quote}Authorization: Bearer ${key}${quote}`;
  const chainsLine =
    chains.length > 0
      ? `\n  Chains            ${chains.join(', ')}: local chains in place of the test networks, on this machine`
      : missing === undefined
        ? ''
        : `\n  Chains            none, so nothing can be paid: ${missing}`;
  const toDo = chains.includes('base') ? 'open it and pay with test money' : 'a payment to look at';
  const checkout =
    secrets?.clientSecret === undefined
      ? ''
      : `\n  Checkout          ${baseUrl}/checkout#${secrets.clientSecret}\n                    (${toDo})`;
  const consoleUrl = consoleAddress(config, ports.console);
  const consoleLine =
    secrets?.consoleCode === undefined
      ? `${consoleUrl}\n                    (npm run -s admin -- console link --for "Your name" prints a link that opens it)`
      : `${consoleUrl}/#${secrets.consoleCode}\n                    (this link opens it once, within ten minutes)`;
  const testPay = `${dataDir === '.data' ? '' : `DATA_DIR=${inShell(dataDir)} `}npm run -s admin -- test-pay --intent pi_…\n`;
  const [next, payment] =
    chains.length > 0
      ? [
          'Receive its events in another terminal, pay it with test money, and retrieve it; or cancel it instead:',
          testPay,
        ]
      : ['Receive its events in another terminal, then retrieve it and cancel it:', ''];
  const curl = `curl -i ${tls ? '-k ' : ''}`;
  return `
  Payment intents   ${url}
  Reference         ${baseUrl}/docs
  gRPC              ${address}:${ports.grpc}
  Operations        http://${address}:${ports.metrics}/readyz and /metrics
  Console           ${consoleLine}
  Demo merchant     ${demoFile} (test money only)${chainsLine}${checkout}

  Create a payment intent of 12.50 USDC:

${curl}${url} -H ${authorization} -H 'Content-Type: application/json' -d '{"amount_units":12500000,"chain":"base","metadata":{"order_id":"order-1001"}}'

  Open its checkout: ${baseUrl}/checkout#<client_secret>

  ${next}

PAYMENTS_URL=${baseUrl} PAYMENTS_API_KEY=${key} npm run -s webhook-receiver
${payment}${curl}${url}/pi_… -H ${authorization}
${curl}-X POST ${url}/pi_…/cancel -H ${authorization}
`;
}

/** Quotes a string as one shell word. */
const inShell = (text: string): string => `'${text.replaceAll("'", "'\\''")}'`;

// Open handles, such as an export of the last spans, must not keep the process alive after the service stops.
main().then(
  () => process.exit(),
  (error: unknown) => {
    const text = error instanceof StartupError ? `payment-intent-service: ${error.message}` : inspect(error);
    console.error(visibleLines(text));
    process.exit(1);
  },
);
