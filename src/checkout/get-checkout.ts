import { create } from '@bufbuild/protobuf';
import { timestampFromDate } from '@bufbuild/protobuf/wkt';
import type { EntityManager } from '@mikro-orm/postgresql';
import { LRUCache } from 'lru-cache';
import { createAuthorizationStore } from '../authorizations/authorization-store.ts';
import type { Checkout } from '../contract/gen/payments/v1/checkout_pb.ts';
import { CheckoutSchema, PaymentAuthorizationStatus } from '../contract/gen/payments/v1/checkout_pb.ts';
import { CheckoutService } from '../contract/gen/payments/v1/checkout_service_pb.ts';
import { Batcher } from '../database/batcher.ts';
import type { AuthorizationRow } from '../database/entities/authorization.ts';
import { PaymentIntentEntity, type PaymentIntentRow } from '../database/entities/payment-intent.ts';
import { entityColumns } from '../database/entity-columns.ts';
import { createPreparedStatements, jsonOfIds, preparedStatement } from '../database/prepared.ts';
import { presentFields } from '../payment-intents/payment-intent.ts';
import { createTransfersReader } from '../payment-intents/payments.ts';
import { ServiceError } from '../requests/errors.ts';
import { type ImplementedService, implementService } from '../requests/method.ts';
import type { OpenedIntent } from '../requests/request-context.ts';

/** Open checkouts ask every few seconds: those that ask while the statements in flight last share the next one. */
const slots = 2;
const maxBatchSize = 256;
/** No payer notices it, and those that ask within it share a statement. */
const gatherMs = 10;

/** True if payers can pay on the network by a signature now. */
type IsGasless = (network: number) => boolean;

/** Returns what a payer may know of the intent that the client secret opens. Throws `client_secret_invalid`. */
type ReadCheckout = (opened: OpenedIntent) => Promise<Checkout>;

/** `payments.v1.CheckoutService`. */
export function createCheckoutService(read: ReadCheckout): ImplementedService<OpenedIntent> {
  return implementService<typeof CheckoutService, OpenedIntent>(CheckoutService, {
    getCheckout: { ratePolicy: 'checkout', run: (_, opened) => read(opened) },
  });
}

/** As many as wait for a payment at once in one process; less than 10 MB. */
const maxRemembered = 4_096;

/** A checkout without payments, which is the same until its version changes. */
type Remembered = { version: string; checkout: Checkout };

/**
 * Returns the function that reads a checkout. One without payments that has not changed since is the same object, of
 * which the public door knows the text: most of those who ask are told that nothing has happened.
 */
export function createReadCheckout(em: EntityManager, isGasless: IsGasless): ReadCheckout {
  const columns = entityColumns<PaymentIntentRow>(em, PaymentIntentEntity);
  const { run } = createPreparedStatements(em);
  const readPayments = createTransfersReader(em, 'payment_intent');
  const readRefunds = createTransfersReader(em, 'refunds');
  const { currentOf } = createAuthorizationStore(em);
  const remembered = new LRUCache<string, Remembered>({ max: maxRemembered });
  const versionOf = ({ version, intent_network: network }: FoundCheckout) =>
    `${version} ${isGasless(network)}`;
  // Each id is looked up by itself: a plan that joins, made while the table was small and kept until its statistics are
  // renewed, would read a table of millions for every batch.
  const find = preparedStatement(
    'find_checkouts',
    `select ${columns.of('i')}, m.name as merchant_name, s.allowed_origins, i.network as intent_network,
            concat_ws(' ', i.version, m.xmin, s.xmin) as version
       from json_to_recordset($1) as wanted (id uuid)
      cross join lateral (select i.xmin as version, i.* from payment_intents i where i.id = wanted.id limit 1) i
      cross join lateral (select m.xmin, m.name from merchants m where m.id = i.merchant_id limit 1) m
       left join checkout_settings s on s.merchant_id = i.merchant_id and s.mode = i.mode::text`,
  );

  const read = async (found: readonly FoundCheckout[]): Promise<Checkout[]> => {
    const intents = found.map((result) => columns.read(result));
    const payments = await readPayments(run, intents);
    const refunds = await readRefunds(run, intents);
    const authorizations = await currentOf(intents);
    return found.map((result, i) => {
      const row = intents[i] as PaymentIntentRow;
      // Only the fields that the contract gives a checkout: neither the intent's metadata, nor its secret.
      const checkout = create(CheckoutSchema, {
        ...presentFields(row, payments.get(row.id) ?? []),
        refunds: refunds.get(row.id) ?? [],
        merchantName: result.merchant_name,
        allowedOrigins: result.allowed_origins ?? [],
        ...signedOf(row, authorizations.get(row.id), isGasless),
      });
      // Payments are confirmed with each block, and authorizations end.
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
  return async ({ id }) => {
    const checkout = await checkouts.add(id);
    // A secret that we have made, of an intent that was never stored.
    if (checkout === undefined) throw new ServiceError('client_secret_invalid');
    return checkout;
  };
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
  current: AuthorizationRow | undefined,
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

/** One that has landed is among the payments, and of one that was released nothing is left to say. */
const shownStatuses = {
  submitted: PaymentAuthorizationStatus.SUBMITTED,
  failed: PaymentAuthorizationStatus.FAILED,
  landed: undefined,
  released: undefined,
} as const;
