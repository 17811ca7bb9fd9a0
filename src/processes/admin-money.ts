// `admin export payments` and `test-refund`: what is done with money that has come.

import { Option } from 'commander';
import { refundUuidOf } from '../merchants/operator-ids.ts';
import { momentOption } from './admin-lists.ts';
import { idOption, merchantOption, modeOption } from './admin-options.ts';
import { group, program, shows, withDatabase, withExample } from './admin-program.ts';

/** Loaded only by commands that run, because it loads the database. */
const loadTasks = () => import('./money-tasks.ts');

export function addMoneyCommands(): void {
  const exported = group('export', 'what came in and what went back, for bookkeeping');

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
    .action(shows(async () => (await loadTasks()).testRefund));
}
