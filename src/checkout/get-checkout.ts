import { create } from '@bufbuild/protobuf';
import { timestampFromDate } from '@bufbuild/protobuf/wkt';
import type { EntityManager } from '@mikro-orm/postgresql';
import { LRUCache } from 'lru-cache';
import { type CurrentAuthorization, currentAuthorization } from '../authorizations/authorization-store.ts';
import type { Checkout } from '../contract/gen/payments/v1/checkout_pb.ts';
import { CheckoutSchema, PaymentAuthorizationStatus } from '../contract/gen/payments/v1/checkout_pb.ts';
import { CheckoutService } from '../contract/gen/payments/v1/checkout_service_pb.ts';
import { Batcher } from '../database/batcher.ts';
import { PaymentIntentEntity, type PaymentIntentRow } from '../database/entities/payment-intent.ts';
import { entityColumns } from '../database/entity-columns.ts';
import { createPreparedStatements, jsonOfIds, preparedStatement } from '../database/prepared.ts';
import { presentFields } from '../payment-intents/payment-intent.ts';
import { createPaymentsReader, createTransfersReader } from '../payment-intents/payments.ts';
import { ServiceError } from '../requests/errors.ts';
import { implementService } from '../requests/method.ts';
import type { OpenedIntent } from '../requests/request-context.ts';

/** Open checkouts ask every few seconds. Those that ask while all statements are in flight share the next. */
const slots = 2;
const maxBatchSize = 256;
/** No payer notices this delay. Requests that arrive within it share a statement. */
const gatherMs = 10;

/** True if payers can pay on the network by a signature now. */
type IsGasless = (network: number) => boolean;

/** Maximum checkouts remembered: as many as wait for a payment at once in one process; less than 10 MB. */
const maxRemembered = 4_096;

/** A checkout without payments, which is the same until its version changes. */
type Remembered = { version: string; checkout: Checkout };

/**
 * Makes `payments.v1.CheckoutService`. An unchanged checkout without payments is returned as the same object,
 * whose text the public door keeps: most requests find nothing new.
 */
export function createCheckout(em: EntityManager, isGasless: IsGasless) {
  const columns = entityColumns<PaymentIntentRow>(em, PaymentIntentEntity);
  const { run } = createPreparedStatements(em);
  const current = currentAuthorization(em);
  const readPayments = createPaymentsReader(em, current);
  const readRefunds = createTransfersReader(em, 'refunds');
  const remembered = new LRUCache<string, Remembered>({ max: maxRemembered });
  const versionOf = ({ version, intent_network: network }: FoundCheckout) =>
    `${version} ${isGasless(network)}`;
  // Each id is looked up by itself: a join planned while the table was small, and kept until its statistics
  // are renewed, would read a table of millions for every batch.
  const find = preparedStatement(
    'find_checkouts',
    `select ${columns.of('i')}${current.columns}, m.name as merchant_name, s.allowed_origins, i.network as intent_network,
            concat_ws(' ', i.version, m.xmin, s.xmin) as version
       from json_to_recordset($1) as wanted (id uuid)
      cross join lateral (select i.xmin as version, i.* from payment_intents i where i.id = wanted.id limit 1) i
      cross join lateral (select m.xmin, m.name from merchants m where m.id = i.merchant_id limit 1) m
       left join checkout_settings s on s.merchant_id = i.merchant_id and s.mode = i.mode::text
       ${current.join}`,
  );

  const read = async (found: readonly FoundCheckout[]): Promise<Checkout[]> => {
    const intents = found.map((result) => columns.read(result));
    const paid = await readPayments(run, intents);
    const refunds = await readRefunds(run, intents);
    return paid.map(({ row, payments, found: newer }, i) => {
      const result = found[i] as FoundCheckout;
      // `create` takes only the contract's fields of a checkout: not the intent's metadata, nor its secret.
      const checkout = create(CheckoutSchema, {
        ...presentFields(row, payments),
        refunds: refunds.get(row.id) ?? [],
        merchantName: result.merchant_name,
        allowedOrigins: result.allowed_origins ?? [],
        ...signedOf(row, current.read(newer ?? result), isGasless),
      });
      // Others change without a new version: payments gain confirmations, and authorizations end.
      if (row.paymentsCount === 0 && row.authorizationsCount == null) {
        remembered.set(row.id, { version: versionOf(result), checkout });
      }
      return checkout;
    });
  };

  const checkouts = new Batcher<string, Checkout | undefined>({
    slots,
    maxBatchSize,
    gatherMs,
    async run(ids) {
      const { rows } = await run(find, [jsonOfIds(ids)]);
      const found: FoundCheckout[] = rows;
      const byId = new Map<string, Checkout>();
      const others = found.filter((result) => {
        const known = remembered.get(result.id);
        const isSame = known?.version === versionOf(result);
        if (isSame) byId.set(result.id, known.checkout);
        return !isSame;
      });
      const checkouts = await read(others);
      others.forEach(({ id }, i) => {
        byId.set(id, checkouts[i] as Checkout);
      });
      return ids.map((id) => byId.get(id)) as Checkout[];
    },
  });
  /** Returns what a payer may know of the opened intent. Throws `client_secret_invalid`. */
  const readCheckout = async ({ id }: OpenedIntent): Promise<Checkout> => {
    const checkout = await checkouts.add(id);
    // The secret is genuine, but its intent was never stored.
    if (checkout === undefined) throw new ServiceError('client_secret_invalid');
    return checkout;
  };
  const checkoutService = implementService<typeof CheckoutService, OpenedIntent>(CheckoutService, {
    getCheckout: { ratePolicy: 'checkout', run: (_, opened) => readCheckout(opened) },
  });
  return { readCheckout, checkoutService };
}

/** A row of `find_checkouts`. */
interface FoundCheckout extends Readonly<Record<string, unknown>> {
  /** UUID. */
  id: string;
  merchant_name: string;
  allowed_origins: string[] | null;
  intent_network: number;
  /** The transactions that last changed the rows it is read from. */
  version: string;
}

/** What the payer has signed, and whether they can sign. */
function signedOf(
  { status, network }: PaymentIntentRow,
  current: CurrentAuthorization | undefined,
  isGasless: IsGasless,
) {
  const isOpen = status === 'requires_payment';
  const shown = current && shownStatuses[current.status];
  return {
    gasless: isOpen && current?.status !== 'submitted' && isGasless(network),
    ...(isOpen &&
      current &&
      shown && {
        authorization: {
          status: shown,
          expiresAt: timestampFromDate(current.validBefore),
          transactionHash: current.reportedHash == null ? '' : `0x${current.reportedHash}`,
        },
      }),
  };
}

/** A landed authorization is shown as a payment. A released one is not shown. */
const shownStatuses = {
  submitted: PaymentAuthorizationStatus.SUBMITTED,
  failed: PaymentAuthorizationStatus.FAILED,
  landed: undefined,
  released: undefined,
} as const;
