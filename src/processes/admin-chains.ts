// `admin chain …` and `admin test-pay`: how far the chains are read, and money to try with.

import { InvalidArgumentError, Option } from 'commander';
import { chainNames, modeNames } from '../contract/words.ts';
import { intentUuidOf } from '../merchants/operator-ids.ts';
import { idOption, yesOption } from './admin-options.ts';
import type { AdminProgram } from './admin-webhooks.ts';

/** Needs the database, so only a command that runs loads it. */
const loadTasks = () => import('./chain-tasks.ts');

export function addChainCommands({
  program,
  group,
  withExample,
  withDatabase,
  print,
  confirm,
}: AdminProgram): void {
  const chain = group('chain', 'the chains that are watched');

  withExample(chain.command('status'), 'chain status')
    .description('how far each chain is read, by whom, and what its nodes say')
    .action(() =>
      withDatabase(async (database) => print(await (await loadTasks()).chainStatus(database, process.env))),
    );

  withExample(chain.command('unwatch'), 'chain unwatch --mode testnet --chain base')
    .description(
      'forget that a chain is watched: its intents expire by the clock again; a terminal is asked first',
    )
    .addOption(
      new Option('--mode <mode>', 'test money or real money').choices([...modeNames]).makeOptionMandatory(),
    )
    .addOption(new Option('--chain <chain>', 'the chain').choices([...chainNames]).makeOptionMandatory())
    .addOption(yesOption())
    .action((options) =>
      withDatabase(async (database) => {
        if (options.yes !== true) {
          await confirm(
            `Stop watching ${options.mode} ${options.chain}? Payments on it are no longer seen, and a watcher that runs begins again.`,
          );
        }
        print(await (await loadTasks()).unwatchChain(database, options.mode, options.chain));
      }),
    );

  withExample(program.command('test-pay'), 'test-pay --intent pi_…')
    .description('pay an intent with test money on the chain of this machine')
    .addOption(idOption('--intent <id>', 'id of the intent, pi_…', intentUuidOf))
    .addOption(
      new Option(
        '--amount-units <units>',
        'another amount than what is missing, 1000000 being 1 USDC',
      ).argParser((text) => {
        if (!/^[1-9]\d{0,15}$/.test(text))
          throw new InvalidArgumentError('It must be a whole number above 0.');
        return BigInt(text);
      }),
    )
    .option('--without-id', "leave out the intent's id, as a payer does who only has the address")
    .action((options) =>
      withDatabase(async (database) =>
        print(await (await loadTasks()).testPay(database, process.env, options)),
      ),
    );
}
