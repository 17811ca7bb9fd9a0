// `admin chain …`, `test-pay`, `test-refund` and `demo-month`: the state of the chains, and what is done with test money.

import { InvalidArgumentError, Option } from 'commander';
import { chainNames } from '../contract/words.ts';
import { intentUuidOf, refundUuidOf } from '../merchants/operator-ids.ts';
import { idOption, modeOption, yesOption } from './admin-options.ts';
import { changing, command, confirm, group, print, program, shows } from './admin-program.ts';

/** Loaded only by commands that run, because it loads the database. */
const loadTasks = () => import('./chain-tasks.ts');

export function addChainCommands(): void {
  const chain = group('chain', 'the chains that are watched');

  command(chain, 'status')
    .description('show the progress, the watcher and the nodes of each chain')
    .action(shows(async () => (await loadTasks()).chainStatus));

  command(chain, 'unwatch --mode testnet --chain base')
    .description(
      "stop watching a chain: its intents expire by the service's clock again; asks for confirmation in a terminal",
    )
    .addOption(modeOption())
    .addOption(new Option('--chain <chain>', 'the chain').choices([...chainNames]).makeOptionMandatory())
    .addOption(yesOption())
    .action((options) =>
      changing(async (database) => {
        await confirm(
          options,
          `Stop watching ${options.mode} ${options.chain}? Payments on it will not be seen, nor the transfers of refunds: cancel those that wait for one before. A running watcher begins again at the newest final block, and does not read what is unread before it.`,
        );
        print(await (await loadTasks()).unwatchChain(database, options.mode, options.chain));
      }),
    );

  command(program, 'test-pay --intent pi_…')
    .description('pay an intent with test money on the local chain')
    .addOption(idOption('--intent <id>', 'id of the intent, pi_…', intentUuidOf))
    .addOption(
      new Option(
        '--amount-units <units>',
        'amount to pay, 1000000 is 1 USDC (default: the missing amount)',
      ).argParser((text) => {
        if (!/^[1-9]\d{0,15}$/.test(text))
          throw new InvalidArgumentError('It must be a whole number above 0.');
        return BigInt(text);
      }),
    )
    .option('--without-id', "omit the intent's id, like a payer who only knows the address")
    .action(shows(async () => (await loadTasks()).testPay));

  command(program, 'test-refund --refund rf_…')
    .description('send a refund with test money on the local chain')
    .addOption(idOption('--refund <id>', 'id of the refund, rf_…', refundUuidOf))
    .action(shows(async () => (await loadTasks()).testRefund));

  command(program, 'demo-month')
    .description('fill a trial with a month of business, to look at in the console')
    .addOption(
      new Option('--payments <count>', 'how many payments there are').default(20_000).argParser((text) => {
        if (!/^[1-9]\d{1,5}$/.test(text)) throw new InvalidArgumentError('It must be from 10 to 999999.');
        return Number(text);
      }),
    )
    .action(shows(async () => (await loadTasks()).demoMonth));
}
