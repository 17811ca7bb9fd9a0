// The operator's command line: `npm run -s admin -- --help`.

import { inspect } from 'node:util';
import completions from '@bomb.sh/tab/commander';
import type { EntityManager } from '@mikro-orm/postgresql';
import { type Command, CommanderError, InvalidArgumentError, Option } from 'commander';
import { StartupError } from './config/startup-error.ts';
import { visible, visibleLines } from './contract/visible-text.ts';
import { parseWalletAddress, type WalletAddress } from './contract/wallet-address.ts';
import { type ChainName, chainNames } from './contract/words.ts';
import { faultOf, remedyFor } from './database/remedies.ts';
import type { ApiKeySummary, NewApiKey, Wallets } from './merchants/administration.ts';
import { AdministrationError } from './merchants/operator-ids.ts';
import { addConsoleCommands } from './processes/admin-console.ts';
import { addListCommands } from './processes/admin-lists.ts';
import { idOption, modeOption, parseDuration, yesOption } from './processes/admin-options.ts';
import {
  changing,
  command,
  confirm,
  formatMinute,
  group,
  inSnakeCase,
  peppersOf,
  print,
  program,
  type Row,
  shows,
  withDatabase,
  withExample,
} from './processes/admin-program.ts';

// Loading what needs the database takes longer than everything else. Only the commands that use it import it,
// so help, completion and usage errors are quick.

command(program, 'migrate')
  .description('bring the database schema up to date')
  .action(() =>
    withDatabase(async (database) => {
      const { migrate } = await import('./database/orm.ts');
      const applied = database.embedded ? [] : await migrate(database.location);
      const rows = applied.map((migration) => ({ applied: migration }));
      const done = database.embedded
        ? 'The embedded database migrates itself at every start. To migrate another database, set DATABASE_URL.'
        : 'The schema is up to date.';
      print({ json: { applied }, rows }, done);
    }, true),
  );

command(program, 'doctor')
  .description('check everything from the configuration to the ports, one line each')
  .option('--all-intents', 'verify every intent, not only the newest: reads the whole table')
  .action(async (options: { allIntents?: boolean }) => {
    const { diagnose } = await import('./processes/doctor.ts');
    const findings = [];
    for await (const finding of diagnose(process.env, options)) {
      findings.push(finding);
      if (!program.opts().json) {
        const state = finding.ok ? 'ok    ' : 'FAILED';
        console.log(`${state}  ${finding.check.padEnd(13)}  ${visibleLines(finding.message)}`);
      }
    }
    if (program.opts().json) print({ json: findings });
    if (findings.some(({ ok }) => !ok)) process.exitCode = 1;
  });

const ownWallet = (chain: ChainName) =>
  new Option(`--wallet-${chain} <address>`, `payout wallet on ${chain}`);
const walletFlags = chainNames.map((chain) => `--wallet-${chain}`).join(' and ');

const merchant = group('merchant', 'merchants and their payout wallets');

walletOptions(
  command(merchant, `create --name "Ada's Books" --mode mainnet --wallet 0x…`)
    .description('create a merchant')
    .requiredOption('--name <name>', 'name of the merchant'),
).action((options) => {
  const wallets = walletsOf(options);
  return changing(async ({ orm }) => {
    const { createMerchant } = await import('./merchants/administration.ts');
    const merchantId = await createMerchant(orm.em, options.name, options.mode, wallets);
    const { name, mode } = options;
    print({ json: { merchant_id: merchantId, name, mode, ...walletFields(wallets) } });
    return { id: merchantId };
  });
});

command(merchant, 'list')
  .description('list all merchants')
  .action(() =>
    withDatabase(async ({ orm }) => {
      const { listMerchants } = await import('./merchants/administration.ts');
      const merchants = await listMerchants(orm.em);
      const rows = merchants.map(({ merchantId: merchant_id, name, createdAt, wallets }) => ({
        merchant_id,
        name,
        'created (UTC)': formatMinute(createdAt),
        wallets: wallets.map(({ mode, chain, address }) => `${mode} ${chain} ${address}`),
      }));
      print(
        { json: merchants.map(inSnakeCase), rows },
        'There are no merchants yet: "merchant create" makes one.',
      );
    }),
  );

walletOptions(
  command(merchant, 'set-wallet --merchant mer_… --mode mainnet --wallet 0x…')
    .description(
      'change where a merchant is paid from now on; on mainnet asks for confirmation in a terminal',
    )
    .addOption(idOption('merchant', 'mer')),
)
  .addOption(yesOption())
  .action((options) => {
    const wallets = walletsOf(options);
    return changing(async ({ orm }) => {
      const { findWallets, setWallets } = await import('./merchants/administration.ts');
      const before = await findWallets(orm.em, options.merchant, options.mode);
      const changes = chainNames.filter((chain) => wallets[chain] && wallets[chain] !== before[chain]);
      if (options.mode === 'mainnet' && changes.length > 0) {
        const lines = changes.map(
          (c) => `  ${c.padEnd(7)}  ${before[c] ?? 'no wallet yet'} -> ${wallets[c]}`,
        );
        await confirm(
          options,
          `${options.merchant} will be paid real money to another wallet:\n${lines.join('\n')}\nChange it?`,
        );
      }
      await setWallets(orm.em, options.merchant, options.mode, wallets);
      print({ json: { merchant_id: options.merchant, mode: options.mode, ...walletFields(wallets) } });
      return { id: options.merchant };
    });
  });

command(merchant, 'set-origins --merchant mer_… --mode mainnet --origins https://shop.example')
  .description('set the origins of a merchant’s pages, to which the checkout returns and sends messages')
  .addOption(idOption('merchant', 'mer'))
  .addOption(modeOption())
  .requiredOption('--origins <list>', 'origins separated by commas; an empty text removes all')
  .action((options) =>
    changing(async ({ orm }) => {
      const { setOrigins } = await import('./merchants/administration.ts');
      const given = options.origins.split(',').map((origin: string) => origin.trim());
      const origins = await setOrigins(
        orm.em,
        options.merchant,
        options.mode,
        given.filter((origin: string) => origin !== ''),
      );
      const changed = { merchant_id: options.merchant, mode: options.mode, origins: origins.join(',') };
      print({ json: { ...changed, origins }, rows: [changed] });
      return { id: options.merchant };
    }),
  );

const key = group('key', 'API keys');

command(key, 'create --merchant mer_… --mode mainnet --expires-in 90d')
  .description('issue a key; it is shown only once')
  .addOption(idOption('merchant', 'mer'))
  .addOption(modeOption())
  .addOption(expiresInOption())
  .action((options) =>
    changing(async (database) => {
      const { orm } = database;
      const { createApiKey } = await import('./merchants/administration.ts');
      const expiresAt = options.expiresIn && new Date(Date.now() + options.expiresIn);
      const peppers = await peppersOf(database);
      const created = await createApiKey(orm.em, peppers, options.merchant, options.mode, expiresAt);
      return showNewKey(orm.em, created);
    }),
  );

command(key, 'list --merchant mer_…')
  .description("list a merchant's keys")
  .addOption(idOption('merchant', 'mer'))
  .action((options) =>
    withDatabase(async ({ orm }) => {
      const { listApiKeys } = await import('./merchants/administration.ts');
      const keys = await listApiKeys(orm.em, options.merchant);
      const output = { json: keys.map(inSnakeCase), rows: keys.map(keyRow) };
      print(output, 'This merchant has no keys: "key create" issues one.');
    }),
  );

command(key, 'revoke --key key_…')
  .description('refuse a key from now on, on every running process; asks for confirmation in a terminal')
  .addOption(idOption('key', 'key'))
  .addOption(yesOption())
  .action((options) =>
    changing(async ({ orm }) => {
      const { findApiKey, revokeApiKey } = await import('./merchants/administration.ts');
      const { mode, hint, merchantId } = await findApiKey(orm.em, options.key);
      await confirm(
        options,
        `Revoke ${options.key} (${hint}, ${mode}, of ${merchantId})? Every request with it is refused from now on, for good.`,
      );
      const revoked = await revokeApiKey(orm.em, options.key);
      print({ json: inSnakeCase(revoked), rows: [keyRow(revoked)] });
    }),
  );

command(key, 'rotate --key key_… --overlap 24h --expires-in 90d')
  .description('issue a successor; the old key works on for the overlap')
  .addOption(idOption('key', 'key'))
  .requiredOption('--overlap <duration>', 'how long the old key works on, such as 24h', parseDuration)
  .addOption(expiresInOption())
  .action((options) =>
    changing(async (database) => {
      const { orm } = database;
      const { rotateApiKey } = await import('./merchants/administration.ts');
      const expiresAt = options.expiresIn && new Date(Date.now() + options.expiresIn);
      const peppers = await peppersOf(database);
      const created = await rotateApiKey(orm.em, peppers, options.key, options.overlap, expiresAt);
      return showNewKey(orm.em, created);
    }),
  );

const loadChainTasks = () => import('./processes/chain-tasks.ts');
const chain = group('chain', 'the chains that are watched');

command(chain, 'status')
  .description('show the progress, the watcher and the nodes of each chain')
  .action(shows(async () => (await loadChainTasks()).chainStatus));

command(chain, 'unwatch --mode testnet --chain base')
  .description(
    "stop watching a chain: its open intents expire by the service's clock, and what is pending waits; asks for confirmation in a terminal",
  )
  .addOption(modeOption())
  .addOption(new Option('--chain <chain>', 'the chain').choices([...chainNames]).makeOptionMandatory())
  .addOption(yesOption())
  .action((options) =>
    changing(async (database) => {
      await confirm(
        options,
        `Stop watching ${options.mode} ${options.chain}? Payments and refund transfers on it will not be seen: cancel refunds that wait for a transfer first. A running watcher starts again at the newest final block and skips the unread blocks before it.`,
      );
      print(await (await loadChainTasks()).unwatchChain(database, options.mode, options.chain));
    }),
  );

command(program, 'test-pay --intent pi_…')
  .description('pay an intent with test money on the local chain')
  .addOption(idOption('intent', 'pi'))
  .addOption(
    new Option(
      '--amount-units <units>',
      'amount to pay, 1000000 is 1 USDC (default: the missing amount)',
    ).argParser((text) => {
      if (!/^[1-9]\d{0,15}$/.test(text)) throw new InvalidArgumentError('It must be a whole number above 0.');
      return BigInt(text);
    }),
  )
  .option('--without-id', "omit the intent's id, like a payer who only knows the address")
  .action(shows(async () => (await loadChainTasks()).testPay));

command(program, 'test-refund --refund rf_…')
  .description('send a refund with test money on the local chain')
  .addOption(idOption('refund', 'rf'))
  .action(shows(async () => (await loadChainTasks()).testRefund));

command(program, 'demo-month')
  .description('fill a trial with a month of business, to look at in the console')
  .addOption(
    new Option('--payments <count>', 'how many payments there are').default(20_000).argParser((text) => {
      if (!/^[1-9]\d{1,5}$/.test(text)) throw new InvalidArgumentError('It must be from 10 to 999999.');
      return Number(text);
    }),
  )
  .action(shows(async () => (await loadChainTasks()).demoMonth));

addListCommands();
addConsoleCommands();

/** The lifetime of the new key, in milliseconds. */
function expiresInOption(): Option {
  const description = 'such as 90d; without it the new key does not expire';
  return new Option('--expires-in <duration>', description).argParser((text) => {
    const durationMs = parseDuration(text);
    if (durationMs === 0) throw new InvalidArgumentError('The key would be refused from the start.');
    return durationMs;
  });
}

function walletOptions(command: Command): Command {
  const own = chainNames.map((chain) => ownWallet(chain).argParser(parseWallet));
  const forAll = new Option(
    '--wallet <address>',
    `payout wallet on every chain (required, or ${walletFlags})`,
  )
    .argParser(parseWallet)
    .conflicts(own.map((option) => option.attributeName()));
  for (const option of [modeOption(), forAll, ...own]) command.addOption(option);
  return command;
}

/** Returns the wallets in `wallet`, or in options such as `walletBase`. Ends with a usage error without any. */
function walletsOf(options: Readonly<Record<string, WalletAddress | undefined>>): Wallets {
  const wallets: Wallets = {};
  for (const chain of chainNames) {
    const wallet = options[ownWallet(chain).attributeName()] ?? options.wallet;
    if (wallet !== undefined) wallets[chain] = wallet;
  }
  if (Object.keys(wallets).length > 0) return wallets;
  return program.error(`error: name a payout wallet: --wallet 0x…, or ${walletFlags}`);
}

function parseWallet(text: string): WalletAddress {
  const parsed = parseWalletAddress(text);
  if ('problem' in parsed) throw new InvalidArgumentError(`It ${parsed.problem}.`);
  return parsed.address;
}

function walletFields(wallets: Wallets): Row {
  return Object.fromEntries(chainNames.map((chain) => [`wallet_${chain}`, wallets[chain]]));
}

/** A key as a table row of at most 120 columns, without the merchant and with one column for its end. */
function keyRow({ keyId: key_id, mode, hint, format, status, ...times }: ApiKeySummary): Row {
  const end = times.revokedAt ?? times.expiresAt;
  const until = end === undefined ? status : `${status} ${formatMinute(end)}`;
  return { key_id, mode, hint, format, status: until, 'created (UTC)': formatMinute(times.createdAt) };
}

/** Prints a key, and warns if it is not usable yet. Returns its id. */
async function showNewKey(em: EntityManager, created: NewApiKey): Promise<{ id: string }> {
  const { keyId: key_id, merchantId: merchant_id, mode, expiresAt: expires_at } = created;
  if (program.opts().json)
    print({ json: { key_id, api_key: created.apiKey, merchant_id, mode, expires_at } });
  else {
    // On a line of its own, because a table could break it and the user has to copy it.
    console.log(`${created.apiKey}\n`);
    print({ json: {}, rows: [{ key_id, merchant_id, mode, expires_at: expires_at?.toISOString() }] });
    console.log('\nSave the key now: it is not stored and cannot be shown again.');
  }
  const { findWallets } = await import('./merchants/administration.ts');
  // The key is made and shown, whatever happens now.
  const wallets = await findWallets(em, merchant_id, mode).catch(() => undefined);
  if (wallets !== undefined && Object.keys(wallets).length === 0) {
    console.error(
      `admin: warning: ${merchant_id} has no ${mode} wallet, so every request with this key has to name one in wallet_address; "merchant set-wallet" sets it`,
    );
  }
  return { id: key_id };
}

// Adds `complete SHELL`, which prints a completion script, and the command that this script runs on Tab.
completions(program);
const complete = program.commands.find((command) => command.name() === 'complete');
if (complete !== undefined) {
  withExample(complete, 'bash').description('print a script that completes commands and options on Tab');
}

/** Runs the command in `process.argv`. Sets the process's exit code if the command fails. */
export async function runCommand(): Promise<void> {
  try {
    await program.parseAsync();
  } catch (error) {
    process.exitCode = 1;
    // Commander has printed the error or the requested help. Wrong usage exits with 2.
    if (error instanceof CommanderError) process.exitCode = error.exitCode === 0 ? 0 : 2;
    else if (error instanceof StartupError || error instanceof AdministrationError) {
      console.error(`admin: ${visibleLines(error.message)}`);
    } else await printFailure(error);
  }
}

if (import.meta.main) {
  ignoreClosedPipe();
  await runCommand();
}

/**
 * Ignores a reader that closes the pipe early (`| head -1`): the command continues and further output is
 * dropped. Fails if the output cannot be written for another reason, such as a full disk.
 */
function ignoreClosedPipe(): void {
  process.stdout.on('error', (error: NodeJS.ErrnoException) => {
    if (error.code === 'EPIPE') return;
    process.exitCode = 1;
    console.error(`admin: the output could not be written (${error.message})`);
  });
}

/** Prints an error that no command has a message for, in one line if the database is at fault. */
async function printFailure(error: unknown): Promise<void> {
  const { isDatabaseUnavailable, mayHaveRun } = await import('./requests/unavailable.ts');
  const remedy = remedyFor(error);
  if (remedy === undefined && !isDatabaseUnavailable(error)) {
    return console.error(visibleLines(inspect(error)));
  }
  const reason = faultOf(error)?.message ?? (error as Error).message;
  const advice = mayHaveRun(error)
    ? 'the command may have been carried out nevertheless: look before you repeat it'
    : 'try again when it answers';
  console.error(`admin: the database refused (${visible(reason)}): ${remedy ?? advice}`);
}
