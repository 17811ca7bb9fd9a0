import { timestampFromDate } from '@bufbuild/protobuf/wkt';
import type { EntityManager } from '@mikro-orm/postgresql';
import type { Gasless } from '../authorizations/gasless.ts';
import type { ChainNodes } from '../config/config.ts';
import type { KeyRing } from '../config/key-ring.ts';
import { ConsoleService } from '../contract/gen/console/v1/console_service_pb.ts';
import { MerchantEntity } from '../database/entities/merchant.ts';
import { formatIdentifier, parseIdentifier, timeOfUuid } from '../database/identifiers.ts';
import { createPreparedStatements, preparedStatement } from '../database/prepared.ts';
import { listApiKeys } from '../merchants/administration.ts';
import { ServiceError } from '../requests/errors.ts';
import { type ImplementedService, implementService, type MethodsOf } from '../requests/method.ts';
import { createDeliveryPresenter } from '../webhooks/deliveries.ts';
import { listAttention, resolveAttention } from './attention.ts';
import { findRefundTransfers, findTransaction, listChains } from './console-chains.ts';
import { createExport } from './export-payments.ts';
import { getSummary } from './reports.ts';
import { type ConsoleCaller, type ConsoleMethod, merchantOf } from './rights.ts';
import { revokeSession } from './sessions.ts';

/** `console.v1.ConsoleService`: what the console shows besides what the API has. `chainNodes` may grow. */
export function createConsoleService(
  em: EntityManager,
  chainNodes: readonly ChainNodes[],
  gasless: Pick<Gasless, 'on'>,
  peppers: KeyRing,
  minUnits: bigint,
): ImplementedService<ConsoleCaller> {
  const methods = {
    getSummary: getSummary(em),
    createExport: createExport(em, peppers),
    listAttention: listAttention(em, minUnits),
    resolveAttention: resolveAttention(em, minUnits),
    getTimeline: getTimeline(em),
    listChains: listChains(em, chainNodes, gasless),
    listApiKeys: listKeys(em),
    listMerchants: listMerchants(em),
    findTransaction: findTransaction(em, chainNodes),
    findRefundTransfers: findRefundTransfers(em),
    endSession: endSession(em),
  } satisfies { [Name in keyof (typeof ConsoleService)['method']]: ConsoleMethod<Name> };
  return implementService(ConsoleService, methods as MethodsOf<typeof ConsoleService, ConsoleCaller>);
}

const maxMerchants = 1_000;

function listMerchants(em: EntityManager): ConsoleMethod<'listMerchants'> {
  return {
    ratePolicy: 'reads',
    async run(_, { session: { merchant } }) {
      const where = merchant ? { id: merchant.id } : {};
      const page = { orderBy: { id: 'desc' }, limit: maxMerchants } as const;
      const merchants = await em.fork().find(MerchantEntity, where, page);
      return { merchants: merchants.map(({ id, name }) => ({ id: formatIdentifier('mer', id), name })) };
    },
  };
}

/** `EndSession`: as `revokeSession` does for an operator. */
function endSession(em: EntityManager): ConsoleMethod<'endSession'> {
  return {
    ratePolicy: 'changes',
    async run(_, { session: { typeId } }) {
      await revokeSession(em, typeId);
      return {};
    },
  };
}

/** `ListApiKeys`: the keys of the caller's merchant, in both modes. */
function listKeys(em: EntityManager): ConsoleMethod<'listApiKeys'> {
  return {
    ratePolicy: 'reads',
    async run(_, caller) {
      const { merchantTypeId } = merchantOf(caller);
      const keys = await listApiKeys(em, merchantTypeId);
      const at = timestampFromDate;
      return { apiKeys: keys.map((key) => ({ ...key, id: key.keyId, createdAt: at(key.createdAt) })) };
    },
  };
}

const maxEntries = 200;

/** `GetTimeline`: an intent's deliveries and audited changes, or an endpoint's audited changes. */
function getTimeline(em: EntityManager): ConsoleMethod<'getTimeline'> {
  const { read } = createPreparedStatements(em);
  const { columns, present } = createDeliveryPresenter(em);
  const findDeliveries = preparedStatement(
    'find_deliveries_of_intent',
    `with events_of as (
       select id, type, payment_intent from events where merchant_id = $1 and payment_intent = $2
       union all
       select e.id, e.type, r.payment_intent from refunds r join events e on e.merchant_id = $1 and e.refund = r.id
        where r.payment_intent = $2
     )
     select ${columns}, e.type as event_type, e.payment_intent
       from events_of e join webhook_deliveries d on d.merchant_id = $1 and d.event_id = e.id
      order by e.id desc limit ${maxEntries}`,
  );
  const changesOf = async (caller: ConsoleCaller, targets: string[], paymentIntent: string) => {
    const { merchantId, mode } = merchantOf(caller);
    const { rows } = await read(merchantId, findChanges, [targets, merchantId, mode, paymentIntent]);
    const made = rows.map(({ id, ...change }) => ({
      at: timestampFromDate(new Date(timeOfUuid(id))),
      ...change,
    }));
    return made.toReversed();
  };
  return {
    ratePolicy: 'reads',
    async run({ paymentIntent, webhookEndpoint }, caller, { context }) {
      const { merchantId, mode } = merchantOf(caller);
      const isEndpoint = parseIdentifier('we', webhookEndpoint) !== undefined;
      if (isEndpoint) return { changes: await changesOf(caller, [webhookEndpoint], '') };
      const id = parseIdentifier('pi', paymentIntent);
      const [row] = id === undefined ? [] : (await read(merchantId, findParts, [id, merchantId, mode])).rows;
      if (row === undefined) throw new ServiceError('resource_missing');
      const found = (await read(merchantId, findDeliveries, [merchantId, id])).rows.toReversed();
      // Ten count as a request: each has its endpoint's answers, up to 20 KB.
      context.charge?.(found.length / 10);
      const webhookDeliveries = await present(found);
      const targets = [
        paymentIntent,
        ...row.refunds.map((uuid: string) => formatIdentifier('rf', uuid)),
        ...row.transfers.map((uuid: string) => formatIdentifier('tr', uuid)),
        ...webhookDeliveries.map(({ event }) => event),
      ];
      return { webhookDeliveries, changes: await changesOf(caller, targets, paymentIntent) };
    },
  };
}

const findParts = preparedStatement(
  'find_parts_of_intent',
  `select array(select r.id from refunds r where r.payment_intent = i.id order by r.id desc limit ${maxEntries}) as refunds,
          array(select t.id from transfers t where t.payment_intent = i.id
                 order by t.block_number desc, t.log_index desc limit ${maxEntries}) as transfers
     from payment_intents i where i.id = $1 and i.merchant_id = $2 and i.mode = $3`,
);
/** Includes transfers that were once attributed to the intent. `admin` entries have no merchant. */
const findChanges = preparedStatement(
  'find_audited_changes',
  `select a.id, a.actor, a.actor_name as "actorName", a.method, a.target, coalesce(a.outcome, '') as outcome,
          coalesce(case when a.method like '%/ResolveAttention' then a.fields ->> 'note'
                        when a.method like '%/UpdateWebhookEndpoint' then
                          (select string_agg(f.key || ' ' || f.value, ', ') from json_each_text(a.fields) f where f.key <> 'id')
          end, '') as note
     from (select unnest($1::text[]) as target union
           (select target from audit_log where payment_intent = $4 and outcome = 'ok' limit ${maxEntries})) wanted
    cross join lateral
          (select * from audit_log where target = wanted.target and (merchant_id = $2 and mode = $3 or actor = 'cli')
            order by id desc limit ${maxEntries}) a
    order by a.id desc limit ${maxEntries}`,
);
