// `admin webhook …`: what a merchant does over the API, for the operator of the service.

import { timestampDate } from '@bufbuild/protobuf/wkt';
import type { EntityManager } from '@mikro-orm/postgresql';
import { type Command, InvalidArgumentError, Option } from 'commander';
import { loadConfig } from '../config/config.ts';
import type { FieldViolation } from '../contract/error-catalogue.ts';
import { eventTypes } from '../contract/event-types.ts';
import type { WebhookDelivery } from '../contract/gen/payments/v1/webhook_endpoint_pb.ts';
import { EventEntity } from '../database/entities/event.ts';
import {
  type DeliveryStatusName,
  WebhookEndpointEntity,
  type WebhookEndpointRow,
} from '../database/entities/webhook.ts';
import { formatIdentifier, parseIdentifier } from '../database/identifiers.ts';
import { AdministrationError, merchantExists, merchantUuidOf } from '../merchants/administration.ts';
import { createAddressPolicy } from '../webhooks/address-policy.ts';
import { listDeliveries, pingEndpoint, redeliverEvent } from '../webhooks/deliveries.ts';
import {
  createEndpoint,
  deleteEndpoint,
  type EndpointSettings,
  type EndpointWithSecret,
  listEndpoints,
  maxEndpoints,
  type Owner,
  ownerOf,
  rotateSecret,
  settingsViolations,
  updateEndpoint,
} from '../webhooks/endpoints.ts';
import { deliveryStatusName } from '../webhooks/webhook-delivery.ts';
import { idOption, merchantOption, modeOption, overlapOption, yesOption } from './admin-options.ts';
import { formatMinute, type Row } from './admin-output.ts';
import type { Database } from './open-database.ts';

/** What the commands take from the program. */
export interface AdminProgram {
  group(name: string, description: string): Command;
  withExample(command: Command, line: string): Command;
  withDatabase(use: (database: Database) => Promise<void>): Promise<void>;
  print(json: unknown, rows: Row[], whenEmpty?: string): void;
  /** Prints a secret that is shown once. */
  printSecret(json: object, secret: string, rows: Row[]): void;
  confirm(question: string): Promise<void>;
}

const hourMs = 3_600_000;
const shownDeliveries = 50;

export function addWebhookCommands(program: AdminProgram): void {
  const { group, withExample, withDatabase, print, printSecret, confirm } = program;
  const webhook = group('webhook', "where a merchant's events are sent, and what came of it");

  const printNewSecret = ({ endpoint, secret }: EndpointWithSecret) =>
    printSecret({ ...fieldsOf(endpoint), secret }, secret, [rowOf(endpoint)]);

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
      withDatabase(async ({ orm, keyRing }) => {
        const settings = {
          url: options.url,
          eventTypes: options.events ?? ['*'],
          enabled: true,
          description: options.description,
        };
        assertSettings(settings);
        const owner = await ownerNamed(orm.em, options);
        printNewSecret(await createEndpoint(orm.em, keyRing('WEBHOOK_SECRET_KEYS'), owner, settings));
      }),
    );

  withExample(webhook.command('list'), 'webhook list --merchant mer_… --mode testnet')
    .description("list a merchant's endpoints")
    .addOption(merchantOption())
    .addOption(modeOption())
    .action((options) =>
      withDatabase(async ({ orm }) => {
        const found = await listEndpoints(orm.em, await ownerNamed(orm.em, options), undefined, maxEndpoints);
        print(
          found.map(fieldsOf),
          found.map(rowOf),
          'This merchant has no endpoints: "webhook create" makes one.',
        );
      }),
    );

  withExample(webhook.command('update'), 'webhook update --endpoint we_… --enable')
    .description('change an endpoint')
    .addOption(endpointOption())
    .option('--url <url>', 'the new address')
    .addOption(eventsOption())
    .option('--description <text>', 'the new note; "" removes it')
    .addOption(new Option('--enable', 'send events again, and forget past failures').conflicts('disable'))
    .option('--disable', 'send nothing more; what was still to be delivered has failed')
    .action((options) =>
      withDatabase(async ({ orm }) => {
        const settings: Partial<EndpointSettings> = {
          ...(options.url !== undefined && { url: options.url }),
          ...(options.events !== undefined && { eventTypes: options.events }),
          ...(options.description !== undefined && { description: options.description }),
          ...(options.enable && { enabled: true }),
          ...(options.disable && { enabled: false }),
        };
        if (Object.keys(settings).length === 0)
          throw new AdministrationError('name something to change: see --help');
        assertSettings(settings);
        const { owner, id } = await findEndpoint(orm.em, options.endpoint);
        const endpoint = await updateEndpoint(orm.em, owner, id, settings);
        print(fieldsOf(endpoint), [rowOf(endpoint)]);
      }),
    );

  withExample(webhook.command('delete'), 'webhook delete --endpoint we_…')
    .description('delete an endpoint; a terminal is asked first')
    .addOption(endpointOption())
    .addOption(yesOption())
    .action((options) =>
      withDatabase(async ({ orm }) => {
        const { owner, id, url } = await findEndpoint(orm.em, options.endpoint);
        if (options.yes !== true) {
          await confirm(
            `Delete ${options.endpoint} (${url})? What was still to be delivered to it has failed then.`,
          );
        }
        await deleteEndpoint(orm.em, owner, id);
        print({ deleted: options.endpoint }, [{ deleted: options.endpoint }]);
      }),
    );

  withExample(webhook.command('rotate'), 'webhook rotate --endpoint we_… --overlap 24h')
    .description('give an endpoint a new secret and print it; the old one signs too for the overlap')
    .addOption(endpointOption())
    .addOption(overlapOption())
    .action((options) =>
      withDatabase(async ({ orm, keyRing }) => {
        const { owner, id } = await findEndpoint(orm.em, options.endpoint);
        const keys = keyRing('WEBHOOK_SECRET_KEYS');
        printNewSecret(await rotateSecret(orm.em, keys, owner, id, options.overlap / hourMs));
      }),
    );

  withExample(webhook.command('deliveries'), 'webhook deliveries --endpoint we_… --status failed')
    .description(`list the newest ${shownDeliveries} deliveries to an endpoint`)
    .addOption(endpointOption())
    .addOption(new Option('--status <status>', 'only these').choices(['pending', 'delivered', 'failed']))
    .action((options: { endpoint: string; status?: DeliveryStatusName }) =>
      withDatabase(async ({ orm }) => {
        const { owner, id } = await findEndpoint(orm.em, options.endpoint);
        const { deliveries } = await listDeliveries(orm.em, owner, id, {
          status: options.status,
          below: undefined,
          limit: shownDeliveries,
        });
        print(deliveries.map(deliveryFields), deliveries.map(deliveryRow), 'There are none.');
      }),
    );

  withExample(webhook.command('redeliver'), 'webhook redeliver --event evt_… --endpoint we_…')
    .description('deliver an event again, to one endpoint or to all that want it')
    .addOption(idOption('--event <id>', 'id of the event, evt_…', (id) => uuidOf('evt', id)))
    .addOption(endpointOption().makeOptionMandatory(false))
    .action((options: { event: string; endpoint?: string }) =>
      withDatabase(async ({ orm }) => {
        const eventId = uuidOf('evt', options.event);
        const event = await orm.em.fork().findOne(EventEntity, { id: eventId });
        if (event === null) throw new AdministrationError(`there is no event ${options.event}`);
        const endpointId = options.endpoint === undefined ? 'all' : uuidOf('we', options.endpoint);
        const deliveries = await redeliverEvent(orm.em, ownerOf(event), eventId, endpointId);
        print(
          deliveries.map(deliveryFields),
          deliveries.map(deliveryRow),
          'No enabled endpoint wants this event.',
        );
      }),
    );

  withExample(webhook.command('ping'), 'webhook ping --endpoint we_…')
    .description('send an event that only tries the endpoint')
    .addOption(endpointOption())
    .action((options) =>
      withDatabase(async ({ orm }) => {
        const { owner, id } = await findEndpoint(orm.em, options.endpoint);
        const event = await pingEndpoint(orm.em, owner, id);
        print({ event: event.id }, [
          { event: event.id, 'what came of it': `webhook deliveries --endpoint ${options.endpoint}` },
        ]);
      }),
    );
}

function endpointOption(): Option {
  return idOption('--endpoint <id>', 'id of the endpoint, we_…', (id) => uuidOf('we', id));
}

function eventsOption(): Option {
  return new Option(
    '--events <types>',
    `types of events, separated by commas, such as ${eventTypes[4]}; without it all`,
  ).argParser((text) => {
    const types = text.split(',').map((type) => type.trim());
    if (types.includes(''))
      throw new InvalidArgumentError('It must be a list of types, separated by commas.');
    return types;
  });
}

/** Returns the UUID of an id. Throws AdministrationError if the text is not one. */
function uuidOf(prefix: 'we' | 'evt', id: string): string {
  const uuid = parseIdentifier(prefix, id);
  if (uuid !== undefined) return uuid;
  throw new AdministrationError(
    `"${id}" is not an id that begins with ${prefix}_ and has 26 more characters`,
  );
}

async function ownerNamed(
  em: EntityManager,
  options: { merchant: string; mode: Owner['mode'] },
): Promise<Owner> {
  if (!(await merchantExists(em, options.merchant))) {
    throw new AdministrationError(`there is no merchant ${options.merchant}: "merchant list" shows them`);
  }
  return { merchantId: merchantUuidOf(options.merchant), mode: options.mode };
}

async function findEndpoint(
  em: EntityManager,
  endpointId: string,
): Promise<{ owner: Owner; id: string; url: string }> {
  const id = uuidOf('we', endpointId);
  const endpoint = await em.fork().findOne(WebhookEndpointEntity, { id, deletedAt: null });
  if (endpoint === null) {
    throw new AdministrationError(
      `there is no endpoint ${endpointId}: "webhook list" shows a merchant's endpoints`,
    );
  }
  return { owner: ownerOf(endpoint), id, url: endpoint.url };
}

/** What is permitted here is what the service permits, if both have the same environment. */
function assertSettings(settings: Partial<EndpointSettings>): void {
  const policy = createAddressPolicy(loadConfig(process.env, []).webhookAllow);
  const violations: FieldViolation[] = settingsViolations(settings, policy);
  if (violations.length === 0) return;
  const options: Record<string, string> = { url: '--url', description: '--description' };
  throw new AdministrationError(
    violations.map(({ field, message }) => `${options[field] ?? '--events'} ${message}`).join('; '),
  );
}

function fieldsOf(endpoint: WebhookEndpointRow) {
  return {
    webhook_endpoint: formatIdentifier('we', endpoint.id),
    merchant_id: formatIdentifier('mer', endpoint.merchantId),
    mode: endpoint.mode,
    url: endpoint.url,
    event_types: endpoint.eventTypes,
    enabled: endpoint.enabled,
    disabled_reason: endpoint.disabledReason ?? undefined,
    description: endpoint.description ?? undefined,
    created_at: endpoint.createdAt.toISOString(),
  };
}

function rowOf(endpoint: WebhookEndpointRow): Row {
  const { webhook_endpoint, url, event_types, enabled, disabled_reason, description } = fieldsOf(endpoint);
  return {
    webhook_endpoint,
    url,
    events: event_types.join(', '),
    state: enabled ? 'enabled' : `disabled${disabled_reason === undefined ? '' : `: ${disabled_reason}`}`,
    description,
  };
}

function deliveryFields({ id, event, webhookEndpoint, status, attempts, nextAttemptAt }: WebhookDelivery) {
  return {
    webhook_delivery: id,
    event,
    webhook_endpoint: webhookEndpoint,
    status: deliveryStatusName(status),
    attempts: attempts.map(({ at, statusCode, durationMs, error, response }) => ({
      at: at && timestampDate(at).toISOString(),
      status_code: statusCode,
      duration_ms: durationMs,
      error,
      response,
    })),
    next_attempt_at: nextAttemptAt && timestampDate(nextAttemptAt).toISOString(),
  };
}

function deliveryRow(delivery: WebhookDelivery): Row {
  const { event, status, attempts, next_attempt_at } = deliveryFields(delivery);
  const last = attempts.at(-1);
  return {
    event,
    status,
    attempts: attempts.length,
    last: last?.error ?? (last && `${last.status_code} in ${last.duration_ms} ms`),
    'next (UTC)': next_attempt_at && formatMinute(next_attempt_at),
  };
}
