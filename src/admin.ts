// The operator's command line: `npm run -s admin -- --help`.

import { createInterface } from 'node:readline/promises';
import Table from 'cli-table3';
import { Command, CommanderError, InvalidArgumentError, Option } from 'commander';
import { type ChainName, chainNames, type ModeName, modeNames } from './chains.ts';
import { loadConfig } from './config.ts';
import { type Database, openDatabase } from './database/open-database.ts';
import { migrate } from './database/orm.ts';
import { diagnose, type Finding } from './doctor.ts';
import {
  AdministrationError,
  type ApiKeySummary,
  createApiKey,
  createMerchant,
  findApiKey,
  keyUuidOf,
  listApiKeys,
  listMerchants,
  merchantUuidOf,
  type NewApiKey,
  revokeApiKey,
  rotateApiKey,
  setWallets,
  type Wallets,
} from './merchants/administration.ts';
import { StartupError } from './startup-error.ts';
import { parseWalletAddress, type WalletAddress } from './wallet-address.ts';

type Row = Record<string, string | number | undefined>;

const program = new Command('admin')
  .description('Merchants, their payout wallets and API keys, and the database schema.')
  .option('--json', 'print JSON for scripts instead of a table')
  .exitOverride()
  .addHelpText(
    'afterAll',
    `
Examples:
  $ npm run -s admin -- merchant create --name "Ada's Books" --mode mainnet --wallet 0x…
  $ npm run -s admin -- key create --merchant mer_… --mode mainnet
  $ npm run -s admin -- key rotate --key key_… --overlap 24h
  $ npm run -s admin -- --json key list --merchant mer_…
  $ npm run -s admin -- doctor

Exit codes: 0 done, 1 could not be done, 2 called wrongly.`,
  );

program
  .command('migrate')
  .description('bring the database schema up to date')
  .action(() =>
    withDatabase({ allowPending: true }, async (database) => {
      const applied = database.embedded ? [] : await migrate(database.location);
      print(
        { applied },
        applied.map((migration) => ({ applied: migration })),
        'The schema is up to date.',
      );
    }),
  );

program
  .command('doctor')
  .description('check configuration, database, schema, secrets, clock and ports, one line each')
  .action(async () => {
    const findings: Finding[] = [];
    for await (const finding of diagnose(process.env)) {
      findings.push(finding);
      if (!program.opts().json) {
        console.log(`${finding.ok ? 'ok    ' : 'FAILED'}  ${finding.check.padEnd(13)}  ${finding.message}`);
      }
    }
    if (program.opts().json) console.log(JSON.stringify(findings, null, 2));
    if (findings.some(({ ok }) => !ok)) process.exitCode = 1;
  });

const merchant = program.command('merchant').description('who is paid, and to which wallets');

walletOptions(
  merchant
    .command('create')
    .description('create a merchant')
    .requiredOption('--name <name>', 'name of the merchant'),
).action((options) => {
  const wallets = walletsOf(options);
  return withDatabase({}, async ({ orm }) => {
    const merchantId = await createMerchant(orm.em, options.name, options.mode, wallets);
    const created = {
      merchant_id: merchantId,
      name: options.name,
      mode: options.mode,
      ...walletFields(wallets),
    };
    print(created, [created]);
  });
});

merchant
  .command('list')
  .description('list all merchants')
  .action(() =>
    withDatabase({}, async ({ orm }) => {
      const merchants = (await listMerchants(orm.em)).map(({ merchantId, name, createdAt, wallets }) => ({
        merchant_id: merchantId,
        name,
        created_at: createdAt.toISOString(),
        wallets,
      }));
      print(
        merchants,
        merchants.map(({ wallets, ...fields }) => ({
          ...fields,
          wallets: wallets.map(({ mode, chain, address }) => `${mode} ${chain} ${address}`).join('\n'),
        })),
        'There are no merchants yet: "merchant create" makes one.',
      );
    }),
  );

walletOptions(
  merchant
    .command('set-wallet')
    .description('change where a merchant is paid from now on')
    .addOption(merchantOption()),
).action((options) => {
  const wallets = walletsOf(options);
  return withDatabase({}, async ({ orm }) => {
    await setWallets(orm.em, options.merchant, options.mode, wallets);
    const changed = { merchant_id: options.merchant, mode: options.mode, ...walletFields(wallets) };
    print(changed, [changed]);
  });
});

const key = program.command('key').description('API keys');

key
  .command('create')
  .description('issue a key; it is shown this once')
  .addOption(merchantOption())
  .addOption(modeOption())
  .addOption(expiresInOption())
  .action((options) =>
    withDatabase({}, async ({ orm, keyRing }) => {
      const expiresAt = momentAfter(options.expiresIn);
      printNewKey(
        await createApiKey(orm.em, keyRing('API_KEY_PEPPERS'), options.merchant, options.mode, expiresAt),
      );
    }),
  );

key
  .command('list')
  .description("list a merchant's keys")
  .addOption(merchantOption())
  .action((options) =>
    withDatabase({}, async ({ orm }) => {
      const rows = (await listApiKeys(orm.em, options.merchant)).map(keyFields);
      print(
        rows,
        rows.map(({ merchant_id, ...fields }) => fields),
        'This merchant has no keys: "key create" issues one.',
      );
    }),
  );

key
  .command('revoke')
  .description('refuse a key from now on, on every running process')
  .addOption(keyOption())
  .option('--yes', 'do not ask; without a terminal nothing is asked anyway')
  .action((options) =>
    withDatabase({}, async ({ orm }) => {
      if (options.yes !== true) {
        const { mode, hint, merchantId } = await findApiKey(orm.em, options.key);
        await confirm(
          `Revoke ${options.key} (${hint}, ${mode}, of ${merchantId})? Every request with it is refused from now on, for good.`,
        );
      }
      const revoked = keyFields(await revokeApiKey(orm.em, options.key));
      print(revoked, [revoked]);
    }),
  );

key
  .command('rotate')
  .description('issue a successor; the old key works on for the overlap')
  .addOption(keyOption())
  .requiredOption('--overlap <duration>', 'how long the old key works on, such as 24h', parseDuration)
  .addOption(expiresInOption())
  .action((options) =>
    withDatabase({}, async ({ orm, keyRing }) => {
      const expiresAt = momentAfter(options.expiresIn);
      printNewKey(
        await rotateApiKey(orm.em, keyRing('API_KEY_PEPPERS'), options.key, options.overlap, expiresAt),
      );
    }),
  );

/** Asks whoever sits at the terminal, and throws unless they agree. A script has decided already. */
async function confirm(question: string): Promise<void> {
  if (!process.stdin.isTTY || !process.stderr.isTTY) return;
  const terminal = createInterface({ input: process.stdin, output: process.stderr });
  const answer = await terminal.question(`${question} [y/N] `).finally(() => terminal.close());
  if (!/^y(?:es)?$/i.test(answer.trim())) throw new AdministrationError('nothing was done');
}

async function withDatabase(
  { allowPending = false }: { allowPending?: boolean },
  use: (database: Database) => Promise<void>,
): Promise<void> {
  // One connection is enough here, and leaves the server's alone.
  const database = await openDatabase({ ...loadConfig(process.env, []), databasePool: 1 });
  try {
    if (database.pending.length > 0 && !allowPending) {
      throw new StartupError(
        'the database schema is older than this program: run "npm run -s admin -- migrate" first',
      );
    }
    await use(database);
  } finally {
    await database.close();
  }
}

function expiresInOption(): Option {
  return new Option(
    '--expires-in <duration>',
    'such as 90d; without it the new key does not expire',
  ).argParser(parseDuration);
}

/** The moment that is so many milliseconds away. */
function momentAfter(durationMs: number | undefined): Date | undefined {
  return durationMs === undefined ? undefined : new Date(Date.now() + durationMs);
}

function merchantOption(): Option {
  return idOption('--merchant <id>', 'id of the merchant, mer_…', merchantUuidOf);
}

function keyOption(): Option {
  return idOption('--key <id>', 'id of the key, key_…', keyUuidOf);
}

/** An id that has to be given; one of the wrong form is a wrong call. */
function idOption(flags: string, description: string, uuidOf: (id: string) => string): Option {
  return new Option(flags, description).makeOptionMandatory().argParser((id) => {
    try {
      uuidOf(id);
      return id;
    } catch (error) {
      if (error instanceof AdministrationError) program.error(`error: ${error.message}`);
      throw error;
    }
  });
}

function modeOption(): Option {
  return new Option('--mode <mode>', 'test money or real money')
    .choices([...modeNames])
    .makeOptionMandatory();
}

interface WalletOptions {
  mode: ModeName;
  wallet?: WalletAddress;
  walletBase?: WalletAddress;
  walletPolygon?: WalletAddress;
}

function walletOptions(command: Command): Command {
  return command
    .addOption(modeOption())
    .addOption(
      new Option('--wallet <address>', 'payout wallet on every chain')
        .argParser(parseWallet)
        .conflicts(['walletBase', 'walletPolygon']),
    )
    .addOption(new Option('--wallet-base <address>', 'payout wallet on Base').argParser(parseWallet))
    .addOption(new Option('--wallet-polygon <address>', 'payout wallet on Polygon').argParser(parseWallet));
}

function walletsOf({ wallet, walletBase, walletPolygon }: WalletOptions): Wallets {
  const wallets: Wallets = {};
  const byChain: Record<ChainName, WalletAddress | undefined> = {
    base: walletBase ?? wallet,
    polygon: walletPolygon ?? wallet,
  };
  for (const chain of chainNames) if (byChain[chain] !== undefined) wallets[chain] = byChain[chain];
  if (Object.keys(wallets).length === 0) {
    program.error('error: name a payout wallet: --wallet 0x…, or --wallet-base and --wallet-polygon');
  }
  return wallets;
}

function walletFields(wallets: Wallets): Row {
  return { wallet_base: wallets.base, wallet_polygon: wallets.polygon };
}

function parseWallet(text: string): WalletAddress {
  const parsed = parseWalletAddress(text);
  if ('problem' in parsed) throw new InvalidArgumentError(`It ${parsed.problem}.`);
  return parsed.address;
}

const durationUnitsMs: Record<string, number> = { s: 1_000, m: 60_000, h: 3_600_000, d: 86_400_000 };
/** Ten years: anything longer is a slip of the finger. */
const maxDurationMs = 3_650 * 86_400_000;

/** Milliseconds. */
function parseDuration(text: string): number {
  const [, amount, unit = ''] = /^(\d{1,9})([smhd])$/.exec(text) ?? [];
  const durationMs = Number(amount) * (durationUnitsMs[unit] ?? Number.NaN);
  if (!(durationMs <= maxDurationMs)) {
    throw new InvalidArgumentError(
      'It must be a number with s, m, h or d, such as 24h or 90d, of at most 3650d.',
    );
  }
  return durationMs;
}

function keyFields(summary: ApiKeySummary) {
  return {
    key_id: summary.keyId,
    merchant_id: summary.merchantId,
    mode: summary.mode,
    hint: summary.hint,
    format: summary.format,
    status: summary.status,
    created_at: summary.createdAt.toISOString(),
    expires_at: summary.expiresAt?.toISOString(),
    revoked_at: summary.revokedAt?.toISOString(),
  };
}

function printNewKey(created: NewApiKey): void {
  const { key_id, merchant_id, mode, expires_at } = keyFields(created);
  if (program.opts().json) {
    print({ key_id, api_key: created.apiKey, merchant_id, mode, expires_at }, []);
    return;
  }
  // On a line of its own: a table would break it, and it is copied once.
  console.log(`${created.apiKey}\n`);
  print({}, [{ key_id, merchant_id, mode, expires_at }]);
  console.log('\nKeep the key now: it is not stored and cannot be shown again.');
}

function print(json: unknown, rows: Row[], whenEmpty = 'Nothing.'): void {
  if (program.opts().json) {
    console.log(JSON.stringify(json, null, 2));
    return;
  }
  const [first] = rows;
  if (first === undefined) {
    console.log(whenEmpty);
    return;
  }
  const columns = Object.keys(first).filter((column) => rows.some((row) => row[column] !== undefined));
  const table = new Table({ head: columns, style: { head: [], border: [] } });
  for (const row of rows) table.push(columns.map((column) => String(row[column] ?? '')));
  console.log(table.toString());
}

program.parseAsync().catch((error: unknown) => {
  process.exitCode = 1;
  // Commander has printed what is wrong, or the help that was asked for. What was called wrongly ends with 2.
  if (error instanceof CommanderError) process.exitCode = error.exitCode === 0 ? 0 : 2;
  else if (error instanceof StartupError || error instanceof AdministrationError)
    console.error(`admin: ${error.message}`);
  else console.error(error);
});
