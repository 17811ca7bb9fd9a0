// The webhook endpoints of a merchant in one mode, and their methods.

import { hash } from 'node:crypto';
import { create } from '@bufbuild/protobuf';
import { timestampFromDate } from '@bufbuild/protobuf/wkt';
import { type EntityManager, LockMode } from '@mikro-orm/postgresql';
import { NIL } from 'uuid';
import type { KeyRing } from '../config/key-ring.ts';
import { eventTypes, wantedEventType } from '../contract/event-types.ts';
import type { WebhookEndpoint } from '../contract/gen/payments/v1/webhook_endpoint_pb.ts';
import { WebhookEndpointSchema } from '../contract/gen/payments/v1/webhook_endpoint_pb.ts';
import {
  DeleteWebhookEndpointResponseSchema,
  ListWebhookEndpointsResponseSchema,
  type WebhookEndpointService,
} from '../contract/gen/payments/v1/webhook_endpoint_service_pb.ts';
import { modeWords } from '../contract/gen/words.ts';
import { invisibleProblem } from '../contract/visible-text.ts';
import { EventEntity } from '../database/entities/event.ts';
import {
  WebhookEndpointEntity,
  type WebhookEndpointRow,
  WebhookSecretEntity,
} from '../database/entities/webhook.ts';
import { entityColumns } from '../database/entity-columns.ts';
import { formatIdentifier, newUuid, parseIdentifier } from '../database/identifiers.ts';
import { newEvent } from '../database/new-events.ts';
import { createPreparedStatements, preparedStatement } from '../database/prepared.ts';
import { ring } from '../database/ring.ts';
import { inTurn } from '../database/turns.ts';
import { toEvent } from '../events/event.ts';
import { type Fault, invalidState, ServiceError, violationsIn } from '../requests/errors.ts';
import { parseIdempotencyKey } from '../requests/idempotency-key.ts';
import type { MethodsOf } from '../requests/method.ts';
import { pageSizeOf, pageSizeViolations, uuidCursorOf, uuidPageTokenOf } from '../requests/page-token.ts';
import type { Identity, RequestContext } from '../requests/request-context.ts';
import { chargedByRows } from '../requests/row-cost.ts';
import type { AddressPolicy } from './address-policy.ts';
import { leaseMs } from './delivery-queue.ts';
import { type SecretGeneration, webhookSecret } from './signature.ts';

type Owner = Pick<Identity, 'merchantId' | 'mode'>;

interface EndpointSettings {
  url: string;
  eventTypes: string[];
  enabled: boolean;
  /** Empty for none. */
  description: string;
}

/** The settings in a request. An empty list of event types means that none are given. */
type GivenSettings = { [Name in keyof EndpointSettings]?: EndpointSettings[Name] | undefined };

/** An endpoint with its secret. `replayed`: an earlier call created it. */
type EndpointWithSecret = { endpoint: WebhookEndpointRow; secret: string; replayed: boolean };

/** Longest URL and longest description of an endpoint, in characters. */
const maxUrlLength = 2_048;
const maxDescriptionLength = 200;
/** Maximum endpoints of a merchant in one mode. */
export const maxEndpoints = 100;
/** Longest overlap, in hours, during which a replaced secret still signs. */
const maxOverlapHours = 168;
/** Maximum replaced secrets of an endpoint that still sign. */
const maxRetiredSecrets = 5;
const hourMs = 3_600_000;

/** Returns the violations of the settings, by the field names of the API. */
function settingsViolations(
  { url, eventTypes: types = [], description }: GivenSettings,
  policy: AddressPolicy,
) {
  const known = ['*', ...eventTypes];
  const areTooMany = types.length > known.length;
  const tooLong = (length: number, most: number) => length > most && `must have at most ${most} characters`;
  const urlProblem = (text: string) =>
    tooLong(text.length, maxUrlLength) || (policy.urlProblem(text) ?? invisibleProblem(text));
  const descriptionProblem = (text: string) =>
    tooLong([...text].length, maxDescriptionLength) || invisibleProblem(text);
  return violationsIn(
    ['url', url !== undefined && urlProblem(url)],
    ['event_types', areTooMany && `must have at most ${known.length} types`],
    ...(areTooMany ? [] : types).map((type, i): Fault => {
      const wanted = type === '*' ? undefined : wantedEventType(type);
      return [`event_types[${i}]`, wanted && `must be "*" or ${wanted}`];
    }),
    ['description', description !== undefined && descriptionProblem(description)],
  );
}

/**
 * Creates an endpoint with its first secret, or replays the earlier call with this idempotency key. Throws
 * `idempotency_key_reused` if that call was different, and `invalid_state` if there are too many endpoints.
 */
export async function createEndpoint(
  em: EntityManager,
  keys: KeyRing,
  { merchantId, mode }: Owner,
  settings: EndpointSettings,
  idempotencyKey?: string,
): Promise<EndpointWithSecret> {
  const owner = { merchantId, mode };
  const fingerprint = fingerprintOf(['CreateWebhookEndpoint/1', settings]);
  return em.fork().transactional(async (tx) => {
    // Serialises creations of a merchant, so that the limit holds.
    await tx.execute('select pg_advisory_xact_lock(hashtextextended(?, 0))', [
      `webhook_endpoints ${merchantId} ${mode}`,
    ]);
    const first =
      idempotencyKey === undefined
        ? null
        : await tx.findOne(WebhookEndpointEntity, { ...owner, idempotencyKey });
    if (first !== null) {
      if (first.requestFingerprint !== fingerprint) throw new ServiceError('idempotency_key_reused');
      const made = await tx.findOneOrFail(WebhookSecretEntity, { endpointId: first.id, generation: 1 });
      return { endpoint: first, secret: replayedSecret(keys, first.id, made), replayed: true };
    }
    if ((await tx.count(WebhookEndpointEntity, { ...owner, deletedAt: null })) >= maxEndpoints) {
      throw invalidState(
        `You already have ${maxEndpoints} webhook endpoints, the maximum. Delete one first.`,
      );
    }
    const now = new Date();
    const id = newUuid(now.getTime());
    const endpoint = tx.create(WebhookEndpointEntity, {
      ...owner,
      ...settings,
      id,
      description: settings.description === '' ? null : settings.description,
      createdAt: now,
      idempotencyKey: idempotencyKey ?? null,
      requestFingerprint: idempotencyKey === undefined ? null : fingerprint,
    });
    const secret = { endpointId: id, generation: 1, keyVersion: keys.newestVersion, createdAt: now };
    tx.create(WebhookSecretEntity, secret);
    return { endpoint, secret: webhookSecret(keys, id, secret), replayed: false };
  });
}

/** Returns the secret for a replayed answer. Throws `invalid_state` if its key has since been removed. */
function replayedSecret(keys: KeyRing, endpointId: string, made: SecretGeneration): string {
  if (keys.versions.includes(made.keyVersion)) return webhookSecret(keys, endpointId, made);
  throw invalidState(
    'The secret of the first answer can no longer be shown. If the endpoint still exists, rotate its secret with a new ' +
      'idempotency key; otherwise create another endpoint with a new key.',
  );
}

export function createEndpointReader(em: EntityManager) {
  const columns = entityColumns<WebhookEndpointRow>(em, WebhookEndpointEntity);
  const { read } = createPreparedStatements(em);
  const ofOwner = `select ${columns.of('w')} from webhook_endpoints w
      where w.merchant_id = $1 and w.mode = $2 and w.deleted_at is null`;
  const findOne = preparedStatement('find_webhook_endpoint', `${ofOwner} and w.id = $3`);
  const list = preparedStatement(
    'list_webhook_endpoints',
    `${ofOwner} and ($3::uuid is null or w.id < $3) order by w.id desc limit $4`,
  );
  return {
    /** Returns an endpoint. Throws `resource_missing` if the owner has none with this id. */
    async get({ merchantId, mode }: Owner, publicId: string): Promise<WebhookEndpointRow> {
      const id = parseIdentifier('we', publicId);
      const { rows } =
        id === undefined ? { rows: [] } : await read(merchantId, findOne, [merchantId, mode, id]);
      if (rows[0] === undefined) throw new ServiceError('resource_missing');
      return columns.read(rows[0]);
    },
    /** Returns endpoints with ids below `below`, newest first. */
    async list({ merchantId, mode }: Owner, below: string | undefined, limit: number) {
      const { rows } = await read(merchantId, list, [merchantId, mode, below ?? null, limit]);
      return rows.map(columns.read);
    },
  };
}

/** Changes the given settings. Enabling resets the failures; disabling fails all deliveries pending until then. */
async function updateEndpoint(
  em: EntityManager,
  owner: Owner,
  id: string | undefined,
  { url, eventTypes = [], enabled, description }: GivenSettings,
): Promise<WebhookEndpointRow> {
  return em.fork().transactional(async (tx) => {
    const endpoint = await lockEndpoint(tx, owner, id);
    // Failures at the old URL do not count against the new one.
    if (url !== undefined && url !== endpoint.url) {
      Object.assign(endpoint, { url, failures: 0, failingSince: null });
    }
    if (eventTypes.length > 0) endpoint.eventTypes = eventTypes;
    if (description !== undefined) endpoint.description = description === '' ? null : description;
    if (enabled === true) {
      while (!endpoint.enabled && (await giveUpDeliveries(tx, endpoint.id)) > 0);
      Object.assign(endpoint, { enabled: true, disabledReason: null, failures: 0, failingSince: null });
    }
    if (enabled === false) {
      endpoint.enabled = false;
      await giveUpDeliveries(tx, endpoint.id);
    }
    return endpoint;
  });
}

/** Deletes an endpoint. Idempotent. */
async function deleteEndpoint(em: EntityManager, owner: Owner, id: string | undefined): Promise<void> {
  await em.fork().transactional(async (tx) => {
    const endpoint = await lockEndpoint(tx, owner, id, {});
    endpoint.deletedAt ??= new Date();
    endpoint.enabled = false;
    await giveUpDeliveries(tx, endpoint.id);
  });
}

/** Adds a secret. The old one also signs during the overlap. A known idempotency key is replayed. */
export async function rotateSecret(
  em: EntityManager,
  keys: KeyRing,
  owner: Owner,
  id: string | undefined,
  overlapHours: number,
  idempotencyKey?: string,
): Promise<EndpointWithSecret> {
  const fingerprint = fingerprintOf(['RotateWebhookSecret/1', overlapHours]);
  return em.fork().transactional(async (tx) => {
    const endpoint = await lockEndpoint(tx, owner, id);
    const own = { endpointId: endpoint.id };
    const first =
      idempotencyKey === undefined ? null : await tx.findOne(WebhookSecretEntity, { ...own, idempotencyKey });
    if (first !== null) {
      if (first.requestFingerprint !== fingerprint) throw new ServiceError('idempotency_key_reused');
      return { endpoint, secret: replayedSecret(keys, endpoint.id, first), replayed: true };
    }
    const now = new Date();
    // Older ones have expired.
    const newest = { orderBy: { generation: 'desc' }, limit: maxRetiredSecrets + 1 } as const;
    const [present, ...retired] = await tx.find(WebhookSecretEntity, own, newest);
    if (present === undefined) throw new Error(`webhook endpoint ${endpoint.id} has no secret`);
    present.expiresAt = new Date(now.getTime() + overlapHours * hourMs);
    for (const old of retired.slice(maxRetiredSecrets - 1)) {
      if (old.expiresAt == null || old.expiresAt > now) old.expiresAt = now;
    }
    const next = {
      endpointId: endpoint.id,
      generation: present.generation + 1,
      keyVersion: keys.newestVersion,
      createdAt: now,
    };
    tx.create(WebhookSecretEntity, {
      ...next,
      idempotencyKey: idempotencyKey ?? null,
      requestFingerprint: idempotencyKey === undefined ? null : fingerprint,
    });
    return { endpoint, secret: webhookSecret(keys, endpoint.id, next), replayed: false };
  });
}

const waiting = ring({
  name: 'waiting',
  column: 'endpoint_id',
  begin: `'${NIL}'::uuid`,
  from: 'webhook_deliveries d',
  where: "d.status = 'pending'",
  order: 'd.endpoint_id, d.next_attempt_at',
});

/** Maximum deliveries failed by one statement: an endpoint that was down for days may have a million. */
const maxFailedAtOnce = 1_000;

/**
 * Fails some pending deliveries of a disabled or deleted endpoint, or of all such endpoints, and returns
 * their number. The rest are not attempted; the task `give up webhooks` fails them later.
 */
export async function giveUpDeliveries(em: EntityManager, endpointId?: string): Promise<number> {
  // Starts from endpoints with pending deliveries: there may be very many disabled and deleted ones.
  const [endpoints, condition, values] =
    endpointId === undefined
      ? ['waiting r join webhook_endpoints w on w.id = r.endpoint_id', 'not w.enabled', []]
      : ['webhook_endpoints w', 'w.id = ?', [endpointId]];
  // All statements lock in the order of events and endpoints to prevent deadlocks.
  const update = `
    with recursive ${waiting},
    given as materialized (
      select d.* from ${endpoints}
       cross join lateral (
         select d.merchant_id, d.event_id, d.endpoint_id from webhook_deliveries d
          where d.endpoint_id = w.id and d.status = 'pending' limit ${maxFailedAtOnce}) d
       where ${condition} limit ${maxFailedAtOnce}
    ), locked as materialized (
      select d.* from (select * from given order by event_id, endpoint_id) s
       cross join lateral (
         select d.ctid as place, d.status from webhook_deliveries d
          where d.merchant_id = s.merchant_id and d.event_id = s.event_id and d.endpoint_id = s.endpoint_id
          limit 1 for update) d
    )
    update webhook_deliveries d
       set status = 'failed', next_attempt_at = null, leased_until = now() + interval '${leaseMs} milliseconds'
      from locked l where d.ctid = l.place and l.status = 'pending'`;
  return (await em.execute<{ affectedRows: number }>(update, values, 'run')).affectedRows;
}

/** Locks an endpoint, by default one not deleted. Throws `resource_missing` if there is none. */
async function lockEndpoint(
  tx: EntityManager,
  { merchantId, mode }: Owner,
  id: string | undefined,
  state: { deletedAt?: null } = { deletedAt: null },
): Promise<WebhookEndpointRow> {
  if (id === undefined) throw new ServiceError('resource_missing');
  const where = { id, merchantId, mode, ...state };
  const endpoint = await tx.findOne(WebhookEndpointEntity, where, { lockMode: LockMode.PESSIMISTIC_WRITE });
  return endpoint ?? Promise.reject(new ServiceError('resource_missing'));
}

/** Returns the SHA-256, in hexadecimal, of a request with its defaults applied. */
const fingerprintOf = (request: readonly unknown[]): string => hash('sha256', JSON.stringify(request), 'hex');

const defaultOverlapHours = 24;
const endpointIdOf = ({ id }: { id: string }) => parseIdentifier('we', id);

/** `onEvent` is called when an event was recorded. */
export function createEndpointMethods(
  em: EntityManager,
  keys: KeyRing,
  policy: AddressPolicy,
  onEvent: () => void,
) {
  const endpoints = createEndpointReader(em);
  return {
    createWebhookEndpoint: {
      ratePolicy: 'changes',
      violations: (request) => settingsViolations(request, policy),
      async run(request, identity, { context, header }) {
        const idempotencyKey = parseIdempotencyKey(header.get('idempotency-key'));
        const { url, eventTypes, enabled = true, description = '' } = request;
        const types = eventTypes.length === 0 ? ['*'] : eventTypes;
        const settings = { url, eventTypes: types, enabled, description };
        const create = () => createEndpoint(em, keys, identity, settings, idempotencyKey);
        return answerWithSecret(await inTurn(em, 'changes', identity.merchantId, create), context);
      },
    },
    getWebhookEndpoint: {
      ratePolicy: 'reads',
      run: async ({ id }, identity) => toWebhookEndpoint(await endpoints.get(identity, id)),
    },
    /** Newest first. */
    listWebhookEndpoints: {
      ratePolicy: 'reads',
      violations: ({ pageSize }) => pageSizeViolations(pageSize),
      async run(request, identity, { context }) {
        const filter = ['webhook_endpoints', identity.merchantId, identity.mode];
        const below = uuidCursorOf(request.pageToken, filter);
        const size = pageSizeOf(request.pageSize);
        const work = () => endpoints.list(identity, below, size + 1);
        const found = await chargedByRows(context, size, work, (rows) => rows.length);
        const page = found.slice(0, size);
        return create(ListWebhookEndpointsResponseSchema, {
          webhookEndpoints: page.map((row) => toWebhookEndpoint(row)),
          nextPageToken: uuidPageTokenOf(filter, found.length > size ? page.at(-1)?.id : undefined),
        });
      },
    },
    /** Changes the given fields. */
    updateWebhookEndpoint: {
      ratePolicy: 'changes',
      violations: (request) => settingsViolations(request, policy),
      async run(request, identity) {
        const update = () => updateEndpoint(em, identity, endpointIdOf(request), request);
        return toWebhookEndpoint(await inTurn(em, 'changes', identity.merchantId, update));
      },
    },
    deleteWebhookEndpoint: {
      ratePolicy: 'changes',
      async run(request, identity) {
        const remove = () => deleteEndpoint(em, identity, endpointIdOf(request));
        await inTurn(em, 'changes', identity.merchantId, remove);
        return create(DeleteWebhookEndpointResponseSchema);
      },
    },
    rotateWebhookSecret: {
      ratePolicy: 'changes',
      violations: ({ overlapHours = defaultOverlapHours }) =>
        overlapHours >= 0 && overlapHours <= maxOverlapHours
          ? []
          : [{ field: 'overlap_hours', message: `must be an integer from 0 to ${maxOverlapHours}` }],
      async run(request, identity, { context, header }) {
        const idempotencyKey = parseIdempotencyKey(header.get('idempotency-key'));
        const { overlapHours = defaultOverlapHours } = request;
        const rotate = () =>
          rotateSecret(em, keys, identity, endpointIdOf(request), overlapHours, idempotencyKey);
        return answerWithSecret(await inTurn(em, 'changes', identity.merchantId, rotate), context);
      },
    },
    /** Records an event for the endpoint, which is delivered like any other. */
    pingWebhookEndpoint: {
      ratePolicy: 'changes',
      async run({ id }, identity) {
        const endpoint = await endpoints.get(identity, id);
        assertEnabled(endpoint);
        const data = { webhookEndpoint: toWebhookEndpoint(endpoint) };
        const about = { data, webhookEndpoint: endpoint.id };
        const event = newEvent(identity, new Date(), { type: 'webhook_endpoint.ping', ...about });
        await em.fork().insert(EventEntity, event);
        onEvent();
        return toEvent(event);
      },
    },
  } satisfies Partial<MethodsOf<typeof WebhookEndpointService>>;
}

/** Throws `invalid_state` if nothing is sent to the endpoint. */
export function assertEnabled({ enabled }: WebhookEndpointRow): void {
  if (enabled) return;
  throw invalidState('The webhook endpoint is disabled. Enable it first, with {"enabled": true}.');
}

function answerWithSecret({ endpoint, secret, replayed }: EndpointWithSecret, context: RequestContext) {
  if (replayed) context.replayed = true;
  return toWebhookEndpoint(endpoint, secret);
}

/** Converts a row to the contract's endpoint. `secret` is empty unless the answer shows it. */
function toWebhookEndpoint(row: WebhookEndpointRow, secret = ''): WebhookEndpoint {
  return create(WebhookEndpointSchema, {
    id: formatIdentifier('we', row.id),
    url: row.url,
    eventTypes: row.eventTypes,
    enabled: row.enabled,
    ...(row.disabledReason != null && { disabledReason: row.disabledReason }),
    ...(row.description != null && { description: row.description }),
    mode: modeWords[row.mode],
    createdAt: timestampFromDate(row.createdAt),
    secret,
  });
}
