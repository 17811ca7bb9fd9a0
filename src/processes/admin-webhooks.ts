// `admin webhook …`: webhook endpoints and deliveries, for the operator.

import { type Command, InvalidArgumentError, Option } from 'commander';
import { eventTypes } from '../contract/event-types.ts';
import type { DeliveryStatusName } from '../contract/words.ts';
import { endpointUuidOf, eventUuidOf } from '../merchants/operator-ids.ts';
import { idOption, merchantOption, modeOption, overlapOption, yesOption } from './admin-options.ts';
import type { Database } from './open-database.ts';
import type { Output } from './webhook-tasks.ts';

/** What the commands need from the program. */
export interface AdminProgram {
  program: Command;
  group(name: string, description: string): Command;
  withExample(command: Command, line: string): Command;
  withDatabase(use: (database: Database) => Promise<void>): Promise<void>;
  print(output: Output, whenEmpty?: string): void;
  confirm(question: string): Promise<void>;
}

/** Loaded only by commands that run, because it loads the database. */
const loadTasks = () => import('./webhook-tasks.ts');

export function addWebhookCommands({ group, withExample, withDatabase, print, confirm }: AdminProgram): void {
  const webhook = group('webhook', 'webhook endpoints and deliveries of a merchant');

  withExample(
    webhook.command('create'),
    'webhook create --merchant mer_… --mode testnet --url https://shop.example/webhooks',
  )
    .description('create an endpoint and print its secret')
    .addOption(merchantOption())
    .addOption(modeOption())
    .requiredOption('--url <url>', 'where events are sent')
    .addOption(eventsOption())
    .option('--description <text>', 'a note', '')
    .action((options) =>
      withDatabase(async (database) => print(await (await loadTasks()).createWebhook(database, options))),
    );

  withExample(webhook.command('list'), 'webhook list --merchant mer_… --mode testnet')
    .description("list a merchant's endpoints")
    .addOption(merchantOption())
    .addOption(modeOption())
    .action((options) =>
      withDatabase(async (database) =>
        print(
          await (await loadTasks()).listWebhooks(database, options),
          'This merchant has no endpoints: "webhook create" makes one.',
        ),
      ),
    );

  withExample(webhook.command('update'), 'webhook update --endpoint we_… --enable')
    .description('change an endpoint')
    .addOption(endpointOption())
    .option('--url <url>', 'the new address')
    .addOption(eventsOption())
    .option('--description <text>', 'the new note; "" removes it')
    .addOption(new Option('--enable', 'send events again, and forget past failures').conflicts('disable'))
    .option('--disable', 'stop sending; pending deliveries fail')
    .action((options) =>
      withDatabase(async (database) => print(await (await loadTasks()).updateWebhook(database, options))),
    );

  withExample(webhook.command('delete'), 'webhook delete --endpoint we_…')
    .description('delete an endpoint; asks for confirmation in a terminal')
    .addOption(endpointOption())
    .addOption(yesOption())
    .action((options) =>
      withDatabase(async (database) => {
        const { deleteWebhook, urlOfWebhook } = await loadTasks();
        const url = await urlOfWebhook(database, options.endpoint);
        if (options.yes !== true) {
          await confirm(`Delete ${options.endpoint} (${url})? Its pending deliveries will fail.`);
        }
        print(await deleteWebhook(database, options.endpoint));
      }),
    );

  withExample(webhook.command('rotate'), 'webhook rotate --endpoint we_… --overlap 24h')
    .description('give an endpoint a new secret and print it; the old one also signs during the overlap')
    .addOption(endpointOption())
    .addOption(overlapOption('how long the old secret also signs, such as 24h'))
    .action((options) =>
      withDatabase(async (database) =>
        print(await (await loadTasks()).rotateWebhook(database, options.endpoint, options.overlap)),
      ),
    );

  withExample(webhook.command('deliveries'), 'webhook deliveries --endpoint we_… --status failed')
    .description('list the newest 50 deliveries to an endpoint')
    .addOption(endpointOption())
    .addOption(new Option('--status <status>', 'only these').choices(['pending', 'delivered', 'failed']))
    .action((options: { endpoint: string; status?: DeliveryStatusName }) =>
      withDatabase(async (database) =>
        print(
          await (await loadTasks()).listWebhookDeliveries(database, options.endpoint, options.status),
          'There are none.',
        ),
      ),
    );

  withExample(webhook.command('redeliver'), 'webhook redeliver --event evt_… --endpoint we_…')
    .description(
      'deliver an event again, to one endpoint or to all that are subscribed to it; without an event, up to 10,000 failed or pending deliveries of an endpoint',
    )
    .addOption(idOption('--event <id>', 'id of the event, evt_…', eventUuidOf).makeOptionMandatory(false))
    .addOption(endpointOption().makeOptionMandatory(false))
    .addOption(
      new Option('--status <status>', 'without an event: which deliveries')
        .choices(['failed', 'pending'])
        .conflicts('event'),
    )
    .action((options: { event?: string; endpoint?: string; status?: 'failed' | 'pending' }) =>
      withDatabase(async (database) =>
        print(
          await (await loadTasks()).redeliver(database, options),
          'No enabled endpoint is subscribed to this event.',
        ),
      ),
    );

  withExample(webhook.command('ping'), 'webhook ping --endpoint we_…')
    .description('send a test event to the endpoint')
    .addOption(endpointOption())
    .action((options) =>
      withDatabase(async (database) =>
        print(await (await loadTasks()).pingWebhook(database, options.endpoint)),
      ),
    );
}

function endpointOption(): Option {
  return idOption('--endpoint <id>', 'id of the endpoint, we_…', endpointUuidOf);
}

function eventsOption(): Option {
  return new Option(
    '--events <types>',
    `types of events, separated by commas, such as ${eventTypes[2]} (default: all)`,
  ).argParser((text) => {
    const types = text.split(',').map((type) => type.trim());
    if (types.includes('')) {
      throw new InvalidArgumentError('It must be a list of types, separated by commas.');
    }
    return types;
  });
}
