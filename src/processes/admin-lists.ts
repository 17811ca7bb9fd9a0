// Commands that list and show intents, transfers, refunds, events and deliveries of any merchant, attribute
// transfers by hand, begin an epoch of events after a restore, and export payments.

import { setFlagsFromString } from 'node:v8';
import { type Command, InvalidArgumentError, Option } from 'commander';
import { eventTypes } from '../contract/event-types.ts';
import {
  chainNames,
  deliveryStatusNames,
  labelNames,
  laneNames,
  modeNames,
  refundStatusNames,
  statusNames,
} from '../contract/words.ts';
import { idOption, modeOption, yesOption } from './admin-options.ts';
import { changing, command, confirm, group, print, shows, withDatabase } from './admin-program.ts';

const maxLimit = 1_000;

/** Loaded only by commands that run, because it loads the database. */
const loadTasks = () => import('./list-tasks.ts');
const loadTransferTasks = () => import('./transfer-tasks.ts');

export function addListCommands(): void {
  addMoneyLists();
  addEventLists();
  addExport();
}

function addMoneyLists(): void {
  const intent = group('intent', 'the payment intents of any merchant');
  const transfer = group('transfer', 'the transfers to the wallets of any merchant');
  const refund = group('refund', 'the refunds of any merchant');

  listOptions(command(intent, 'list --merchant mer_… --status processing'))
    .description('list payment intents, newest first')
    .addOption(choice('--status <status>', statusNames))
    .addOption(choice('--chain <chain>', chainNames))
    .addOption(choice('--lane <lane>', laneNames))
    .option('--idempotency-key <key>', 'only the one that was created with this key')
    .addOption(choice('--label <label>', labelNames))
    .option('--metadata-key <key>', 'only those with this key in their metadata, and --metadata-value')
    .option('--metadata-value <text>', 'the value of --metadata-key, exactly')
    .addOption(momentOption('--created-from <time>', 'only those created then or later'))
    .addOption(momentOption('--created-before <time>', 'only those created earlier'))
    .addOption(momentOption('--succeeded-from <time>', 'only those that succeeded then or later'))
    .addOption(momentOption('--succeeded-before <time>', 'only those that succeeded earlier'))
    .addOption(hexOption('--expected-wallet <address>', 'only those to be paid at this wallet', 40))
    .action(shows(async () => (await loadTasks()).intents.list, 'There are none.'));
  command(intent, 'show --intent pi_… --json')
    .description('show a payment intent; with --json also its payments and metadata')
    .addOption(idOption('intent', 'pi'))
    .action(shows(async () => (await loadTasks()).intents.show));

  listOptions(command(transfer, 'list --status unattributed'))
    .description('list transfers, newest first')
    .addOption(choice('--status <status>', ['unattributed', 'attributed']))
    .addOption(hexOption('--transaction-hash <hash>', 'only those of this transaction', 64))
    .addOption(hexOption('--from-address <address>', 'only those from this wallet', 40))
    .addOption(hexOption('--to-address <address>', 'only those to this wallet', 40))
    .addOption(choice('--chain <chain>', chainNames))
    .addOption(momentOption('--block-time-from <time>', 'only those in blocks of then or later'))
    .addOption(momentOption('--block-time-before <time>', 'only those in earlier blocks'))
    .addOption(ofIntentOption())
    .action(shows(async () => (await loadTasks()).transfers.list, 'There are none.'));
  command(transfer, 'show --transfer tr_…')
    .description('show a transfer; an unattributed one with the intents it may be for')
    .addOption(idOption('transfer', 'tr'))
    .action(shows(async () => (await loadTransferTasks()).show));

  command(transfer, 'attribute --transfer tr_… --intent pi_…')
    .description('make an unattributed transfer a payment of an intent')
    .addOption(idOption('transfer', 'tr'))
    .addOption(idOption('intent', 'pi'))
    .option('--allow-ended', 'although the intent has ended or has its amount already')
    .action(shows(async () => (await loadTransferTasks()).attribute, undefined, changing));

  command(transfer, 'detach --transfer tr_…')
    .description('undo a manual attribution')
    .addOption(idOption('transfer', 'tr'))
    .action(shows(async () => (await loadTransferTasks()).detach, undefined, changing));

  listOptions(command(refund, 'list --status requires_transfer'))
    .description('list refunds, newest first')
    .addOption(choice('--status <status>', refundStatusNames))
    .addOption(ofIntentOption())
    .action(shows(async () => (await loadTasks()).refunds.list, 'There are none.'));
  command(refund, 'show --refund rf_… --json')
    .description('show a refund; with --json also its transaction, transfers and metadata')
    .addOption(idOption('refund', 'rf'))
    .action(shows(async () => (await loadTasks()).refunds.show));
}

function addEventLists(): void {
  const event = group('event', 'the events of any merchant');
  const delivery = group('delivery', 'the deliveries of webhooks of any merchant');

  listOptions(command(event, 'list --intent pi_…'))
    .description('list events, newest first')
    .addOption(choice('--type <type>', eventTypes))
    .addOption(ofIntentOption())
    .addOption(optionalId('refund', 'rf', 'only those of this refund'))
    .action(shows(async () => (await loadTasks()).listEvents, 'There are none.'));

  command(event, 'new-epoch')
    .description(
      "after restoring the database's files: refuses readers of events that it no longer has; asks for confirmation in a terminal",
    )
    .addOption(yesOption())
    .action((options) =>
      changing(async (database) => {
        await confirm(
          options,
          'Begin a new epoch? Readers that are past the last event of this database are refused, and have to begin again.',
        );
        const { beginEpoch } = await import('../events/event-epochs.ts');
        print({ json: { begins_after: Number(await beginEpoch(database.orm.em)) } });
      }),
    );

  listOptions(command(delivery, 'list --merchant mer_… --failed'))
    .description('list deliveries of webhooks, those of the newest event first')
    .addOption(choice('--status <status>', deliveryStatusNames))
    .addOption(new Option('--failed', 'the same as --status failed').conflicts('status'))
    .addOption(optionalId('endpoint', 'we', 'only those to this endpoint'))
    .action(shows(async () => (await loadTasks()).listDeliveries, 'There are none.'));
}

function addExport(): void {
  const exported = group('export', 'what came in and what went back, for bookkeeping');

  command(
    exported,
    'payments --merchant mer_… --mode mainnet --from 2026-11-01 --before 2026-12-01 > november.csv',
  )
    .description('print a line for each payment and each refund in blocks of that time, oldest first')
    .addOption(idOption('merchant', 'mer'))
    .addOption(modeOption())
    .addOption(momentOption('--from <time>', 'blocks of then or later').makeOptionMandatory())
    .addOption(momentOption('--before <time>', 'earlier blocks').makeOptionMandatory())
    .addOption(
      new Option('--format <format>', 'the form of the lines').choices(['csv', 'jsonl']).default('csv'),
    )
    .action((options, command) => {
      if (options.before <= options.from) command.error('error: --before must be later than --from');
      // Collects garbage whenever the heap has grown by 10 %: a third less memory, for a fifth more time.
      setFlagsFromString('--heap-growing-percent=10');
      return withDatabase(async (database) => {
        const { writeExport } = await import('./export-payments.ts');
        await writeExport(database, options);
      });
    });
}

const optionalId = (...of: Parameters<typeof idOption>) => idOption(...of).makeOptionMandatory(false);
const ofIntentOption = () => optionalId('intent', 'pi', 'only those of this intent');

function hexOption(flags: string, description: string, digits: number): Option {
  return new Option(flags, description).argParser((text) => {
    if (text.length === 2 + digits && /^0x[0-9a-f]+$/i.test(text)) return text;
    throw new InvalidArgumentError(`It must be 0x and ${digits} hexadecimal digits.`);
  });
}

const choice = (flags: string, values: readonly string[]) =>
  new Option(flags, 'only these').choices([...values]);

function listOptions(command: Command): Command {
  return command
    .addOption(optionalId('merchant', 'mer'))
    .addOption(choice('--mode <mode>', modeNames))
    .addOption(
      new Option('--limit <number>', `how many, at most ${maxLimit}`).default(20).argParser((text) => {
        const limit = /^\d{1,4}$/.test(text) ? Number(text) : 0;
        if (limit >= 1 && limit <= maxLimit) return limit;
        throw new InvalidArgumentError(`It must be a whole number from 1 to ${maxLimit}.`);
      }),
    );
}

function momentOption(flags: string, description: string): Option {
  return new Option(
    flags,
    `${description}, such as 2026-11-22 (from 00:00 UTC) or 2026-11-22T09:30:00Z`,
  ).argParser((text) => {
    const [, day = ''] = /^(\d{4}-\d\d-\d\d)(?:T.*(?:Z|[+-]\d\d:\d\d))?$/.exec(text) ?? [];
    const moment = new Date(text);
    // `Date` would read February 31 as March 3.
    if (moment.getTime() >= 0 && day !== '' && new Date(day).toJSON().startsWith(day)) return moment;
    throw new InvalidArgumentError(
      'It must be a date, or a date and time with its time zone, in UTC or not.',
    );
  });
}
