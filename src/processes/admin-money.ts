// `admin transfer attribute` and `detach`, `export payments` and `test-refund`: what is done with money that has come.

import { type Command, Option } from 'commander';
import { intentUuidOf, refundUuidOf, transferUuidOf } from '../merchants/operator-ids.ts';
import { momentOption } from './admin-lists.ts';
import { idOption, merchantOption, modeOption } from './admin-options.ts';
import type { AdminProgram } from './admin-program.ts';

/** Loaded only by commands that run, because it loads the database. */
const loadTasks = () => import('./money-tasks.ts');

/** `transfer` is the group of the commands about transfers. */
export function addMoneyCommands(
  { program, group, withExample, withDatabase, changing, print }: AdminProgram,
  transfer: Command,
): void {
  const exported = group('export', 'what came in and what went back, for bookkeeping');
  const transferOption = () => idOption('--transfer <id>', 'id of the transfer, tr_…', transferUuidOf);

  withExample(transfer.command('attribute'), 'transfer attribute --transfer tr_… --intent pi_…')
    .description('make an unattributed transfer a payment of an intent')
    .addOption(transferOption())
    .addOption(idOption('--intent <id>', 'id of the intent, pi_…', intentUuidOf))
    .option('--allow-ended', 'although the intent has ended or has its amount already')
    .action((options) =>
      changing(async (database) => print(await (await loadTasks()).attribute(database, options))),
    );

  withExample(transfer.command('detach'), 'transfer detach --transfer tr_…')
    .description('take back an attribution by hand')
    .addOption(transferOption())
    .action((options) =>
      changing(async (database) => print(await (await loadTasks()).detach(database, options.transfer))),
    );

  withExample(
    exported.command('payments'),
    'export payments --merchant mer_… --mode mainnet --from 2026-11-01 --before 2026-12-01 > november.csv',
  )
    .description('print a line for each payment and each refund in blocks of that time, oldest first')
    .addOption(merchantOption())
    .addOption(modeOption())
    .addOption(momentOption('--from <time>', 'blocks of then or later').makeOptionMandatory())
    .addOption(momentOption('--before <time>', 'earlier blocks').makeOptionMandatory())
    .addOption(
      new Option('--format <format>', 'the form of the lines').choices(['csv', 'jsonl']).default('csv'),
    )
    .action((options) =>
      withDatabase(async (database) => {
        const { writeExport } = await import('./export-payments.ts');
        await writeExport(database, options);
      }),
    );

  withExample(program.command('test-refund'), 'test-refund --refund rf_…')
    .description('send a refund with test money on the local chain')
    .addOption(idOption('--refund <id>', 'id of the refund, rf_…', refundUuidOf))
    .action((options) =>
      withDatabase(async (database) =>
        print(await (await loadTasks()).testRefund(database, process.env, options.refund)),
      ),
    );
}
