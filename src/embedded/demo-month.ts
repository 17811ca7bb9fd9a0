// `admin demo-month`: a month of sample business: payments late, too high, too low, reorged, unattributed and
// refunded, and an endpoint that fails. What happens to an intent follows the service's own rules.

import { randomBytes } from 'node:crypto';
import type { EntityManager, EntitySchema } from '@mikro-orm/postgresql';
import type { KeyRing } from '../config/key-ring.ts';
import { type Network, networkFor, networkOf } from '../contract/chains.ts';
import type { WalletAddress } from '../contract/wallet-address.ts';
import type { ChainName } from '../contract/words.ts';
import type { NewPaymentIntentRow, PaymentIntentRow } from '../database/entities/payment-intent.ts';
import { PaymentIntentEntity } from '../database/entities/payment-intent.ts';
import { RefundEntity, type RefundRow } from '../database/entities/refund.ts';
import { TransferEntity, type TransferRow } from '../database/entities/settlement.ts';
import { WebhookEndpointEntity } from '../database/entities/webhook.ts';
import { entityColumns } from '../database/entity-columns.ts';
import { lowestUuid, newUuid } from '../database/identifiers.ts';
import type { PreparedStatements, RunPrepared } from '../database/prepared.ts';
import { createPreparedStatements, preparedStatement } from '../database/prepared.ts';
import { createPositioner } from '../events/position-events.ts';
import { type ChangeStep, changeOf, endOf, storeChanges } from '../payment-intents/change-payment-intents.ts';
import { createTransfersReader } from '../payment-intents/payments.ts';
import { asPrepared, createRefunding, type Refunding } from '../refunds/refunding.ts';
import { readReturnedMoney, storeRefundedUnits } from '../refunds/returned-money.ts';
import { arrive, confirm, judge, revert } from '../settlement/judgement.ts';
import { createEndpoint } from '../webhooks/endpoints.ts';

const deliveriesCount = 400;
/** The newest ones failed. */
const failedCount = 30;

const days = 30;
const dayMs = 86_400_000;
const batchSize = 250;
const expiryMs = 30 * 60_000;

/** What happens to intents, and to how many of ten thousand. */
const fates = {
  paid: 8_350,
  expired: 1_000,
  canceled: 280,
  inTwo: 120,
  overpaid: 80,
  underpaid: 60,
  late: 70,
  afterCancel: 25,
  reorged: 15,
} as const;
type Fate = keyof typeof fates;

const reasons = ['Out of stock', 'Sent back', 'The customer asked for it'];
const prices = [4_90, 9_90, 12_50, 18_00, 24_00, 34_90, 49_00, 79_00, 120_00, 249_00];

interface DemoMonthOptions {
  merchantId: string;
  wallet: WalletAddress;
  count: number;
  /** `WEBHOOK_SECRET_KEYS`. */
  webhookKeys: KeyRing;
  /** Called after each batch with how many intents there are. */
  onProgress?: (count: number) => void;
}

/** True if the month is there already. */
export async function hasDemoMonth(em: EntityManager, merchantId: string): Promise<boolean> {
  return (await em.fork().count(PaymentIntentEntity, { merchantId, idempotencyKey: keyOf(0) })) > 0;
}

/** Writes the month. Its transfers are in no block: their numbers are negative, where no watcher looks. */
export async function writeDemoMonth(em: EntityManager, options: DemoMonthOptions): Promise<void> {
  const month = new DemoMonth(em, options);
  const orders = month.plan(Date.now());
  for (let begin = 0; begin < orders.length; begin += batchSize) {
    await month.write(orders.slice(begin, begin + batchSize));
    options.onProgress?.(Math.min(begin + batchSize, orders.length));
  }
  await month.finish();
}

const keyOf = (place: number) => `demo-month-${place}`;
const address = () => `0x${randomBytes(20).toString('hex')}` as const;

interface Order {
  row: PaymentIntentRow;
  /** When its newest event was made. */
  changedAt?: Date;
  fate: Fate;
  payer: WalletAddress;
}

class DemoMonth {
  readonly #em: EntityManager;
  readonly #options: DemoMonthOptions;
  readonly #statements: PreparedStatements;
  /**
   * Runs in the transaction of the current batch: until it commits, the service cannot expire an intent
   * before it is paid, and no watcher sees a pending transfer.
   */
  #run: RunPrepared;
  readonly #readPayments: ReturnType<typeof createTransfersReader>;
  readonly #refunds: Refunding;
  readonly #payers = Array.from({ length: 400 }, address);
  #seed = 20_261_125;
  #block = -2_000_000;

  constructor(em: EntityManager, options: DemoMonthOptions) {
    this.#em = em;
    this.#options = options;
    this.#statements = createPreparedStatements(em);
    this.#run = this.#statements.run;
    this.#readPayments = createTransfersReader(em, 'payment_intent');
    this.#refunds = createRefunding(em);
  }

  /** The same each time, to compare screenshots: a linear congruential generator (Numerical Recipes). */
  #random(): number {
    this.#seed = (Math.imul(this.#seed, 1_664_525) + 1_013_904_223) >>> 0;
    return this.#seed / 2 ** 32;
  }

  #pick<T>(of: readonly T[]): T {
    return of[Math.floor(this.#random() * of.length)] as T;
  }

  #fate(): Fate {
    let at = this.#random() * 10_000;
    for (const [fate, share] of Object.entries(fates)) {
      at -= share;
      if (at < 0) return fate as Fate;
    }
    return 'paid';
  }

  /** The orders of the month until now, oldest first: more around midday, and more towards the end. */
  plan(nowMs: number): Order[] {
    const times = Array.from({ length: this.#options.count }, () => {
      const day = Math.sqrt(this.#random()) * days;
      const hour = (this.#random() + this.#random() + this.#random()) / 3;
      // Not later than two hours ago, so that everything has happened.
      return Math.min(
        nowMs - 4 * expiryMs,
        nowMs - dayMs * (days - Math.floor(day)) + dayMs * hour - 4 * expiryMs,
      );
    });
    return times.sort((a, b) => a - b).map((ms, place) => this.#order(ms, place));
  }

  #order(createdAtMs: number, place: number): Order {
    const { merchantId, wallet } = this.#options;
    const chain: ChainName = this.#random() < 0.7 ? 'base' : 'polygon';
    const createdAt = new Date(Math.floor(createdAtMs));
    const created: NewPaymentIntentRow = {
      id: newUuid(createdAt.getTime()),
      merchantId,
      mode: 'testnet',
      status: 'requires_payment',
      network: networkFor('testnet', chain).id,
      amountUnits: BigInt(this.#pick(prices) * (1 + Math.floor(this.#random() ** 4 * 4))) * 10_000n,
      expectedWallet: wallet,
      lane: 'sdk',
      metadata: { order_id: `order-${2_000 + place}`, customer_id: `customer-${place % 1_700}` },
      createdAt,
      expiresAt: new Date(createdAt.getTime() + expiryMs),
      clientSecretVersion: 1,
      idempotencyKey: keyOf(place),
      requestFingerprint: '00'.repeat(32),
    };
    const row = { ...created, amountReceivedUnits: 0n, paymentsCount: 0, eventCount: 0 } as PaymentIntentRow;
    return { row, fate: this.#fate(), payer: this.#pick(this.#payers) };
  }

  /** Writes orders and what happens to them, in chronological order. */
  async write(orders: readonly Order[]): Promise<void> {
    await this.#statements.transaction(async (run) => {
      this.#run = run;
      const rows = orders.map(({ row }) => row);
      await this.#insert(PaymentIntentEntity, rows);
      await this.#happen(orders);
    });
    this.#run = this.#statements.run;
  }

  async #insert(entity: EntitySchema, rows: readonly object[]): Promise<void> {
    const { insert, json } = entityColumns(this.#em, entity);
    if (rows.length > 0) await this.#run(preparedStatement('insert_demo_rows', insert), [json(rows)]);
  }

  async #happen(orders: readonly Order[]): Promise<void> {
    const of = (...wanted: Fate[]) => orders.filter(({ fate }) => wanted.includes(fate));
    await this.#change(of('canceled', 'afterCancel'), (order) => {
      const at = this.#at(order, 4 * 60_000);
      return { steps: [endOf(order.row, 'canceled', at)], at };
    });
    await this.#receive(of('inTwo', 'underpaid'), (order) => [order.row.amountUnits, 2, 90_000]);
    await this.#change(of('expired', 'underpaid', 'late'), ({ row }) => {
      const at = new Date(row.expiresAt.getTime() + 20_000);
      return { steps: [endOf(row, 'expired', at)], at };
    });
    const missing = ({ row }: Order) => BigInt(row.amountUnits) - BigInt(row.amountReceivedUnits);
    await this.#receive(of('paid', 'reorged', 'inTwo'), (order) => [missing(order), 1, 150_000]);
    await this.#receive(of('overpaid'), ({ row }) => [BigInt(row.amountUnits) + 5_000_000n, 1, 150_000]);
    await this.#receive(of('late', 'afterCancel'), ({ row }) => [row.amountUnits, 1, expiryMs + 600_000]);
    await this.#succeed(of('paid', 'reorged', 'inTwo', 'overpaid'));
    await this.#reorganise(of('reorged'));
    const [paid, others] = [of('paid'), of('late', 'overpaid', 'afterCancel')];
    await this.#refund(0.7, ...paid.filter((_, i) => i % 60 === 7));
    await this.#refund(1, ...others.filter((_, i) => i % 4 !== 0));
    if (this.#random() < 0.15) await this.#strayTransfer(this.#pick(orders));
  }

  /** About this long after the creation, and after the order's last change. */
  #at({ row, changedAt = row.createdAt }: Order, aboutMs: number): Date {
    const atMs = row.createdAt.getTime() + Math.floor(aboutMs * (0.6 + 0.8 * this.#random()));
    return new Date(Math.max(atMs, changedAt.getTime() + 2_000));
  }

  async #change(
    orders: readonly Order[],
    of: (order: Order) => { steps: readonly ChangeStep[]; at: Date },
  ): Promise<void> {
    const changing = orders.map((order) => ({ order, ...of(order) })).filter(({ steps }) => steps.length > 0);
    if (changing.length === 0) return;
    const after = changing.map(({ order, steps }) =>
      Object.assign({ ...order.row }, ...steps.map(({ fields }) => fields)),
    );
    const payments = await this.#readPayments(this.#run, after);
    const changes = changing.map(({ order, steps, at }) =>
      changeOf(order.row, steps, payments.get(order.row.id) ?? [], at),
    );
    await storeChanges(this.#run, changes);
    for (const [i, { order, at }] of changing.entries())
      Object.assign(order, { row: changes[i]?.row, changedAt: at });
  }

  /** Records payments of `units` divided by `parts`, about `afterMs` after the creation. */
  async #receive(
    orders: readonly Order[],
    of: (order: Order) => readonly [units: bigint | string | number, parts: number, afterMs: number],
  ): Promise<void> {
    const arrivals = new Map(
      orders.map((order) => {
        const [units, parts, afterMs] = of(order);
        const blockTime =
          afterMs > expiryMs ? new Date(order.row.createdAt.getTime() + afterMs) : this.#at(order, afterMs);
        const amountUnits = BigInt(units) / BigInt(parts);
        const arrival = { amountUnits, blockTime, isRightToken: true, isReturned: false };
        return [order, { ...arrival, judged: judge(order.row, arrival) }] as const;
      }),
    );
    await this.#insert(
      TransferEntity,
      [...arrivals].map(([order, { amountUnits, blockTime, judged }]) => {
        const labels = judged.labels.length > 0 ? judged.labels : null;
        const payment = { paymentIntent: order.row.id, counts: judged.counts, labels };
        return this.#transfer(order, amountUnits, blockTime, payment);
      }),
    );
    await this.#change(orders, (order) => {
      const arrival = arrivals.get(order);
      if (arrival === undefined) return { steps: [], at: new Date() };
      return { steps: arrive(order.row, [arrival]), at: new Date(arrival.blockTime.getTime() + 2_000) };
    });
    await this.#run(moveTransfers, [orders.map(({ row }) => row.id), 'pending', 'confirmed']);
  }

  async #succeed(orders: readonly Order[]): Promise<void> {
    await this.#change(orders, (order) => {
      const { row } = order;
      const at = this.#at(order, 200_000);
      const step = confirm(row, BigInt(row.amountReceivedUnits), at);
      return { steps: step === undefined ? [] : [step], at };
    });
  }

  async #reorganise(orders: readonly Order[]): Promise<void> {
    await this.#run(moveTransfers, [orders.map(({ row }) => row.id), 'confirmed', 'reorged']);
    await this.#change(orders, (order) => {
      const remaining = { receivedUnits: 0n, labels: [], wasConfirmed: true };
      return { steps: revert(order.row, remaining), at: this.#at(order, 400_000) };
    });
  }

  /** Prepares refunds. The share `signed` of them is sent; the others wait for a signature. */
  async #refund(signed: number, ...orders: readonly Order[]): Promise<void> {
    for (const order of orders) {
      const { row, payer, fate } = order;
      const createdAt = new Date(row.createdAt.getTime() + 5 * 3_600_000);
      if (createdAt.getTime() > Date.now()) continue;
      const amountUnits = fate === 'overpaid' ? 5_000_000n : BigInt(row.amountUnits);
      const isSigned = this.#random() < signed;
      // One that waits has a week left.
      const expiresAt = new Date((isSigned ? createdAt.getTime() : Date.now()) + 7 * dayMs);
      const refund = refundOf(order, { amountUnits, reason: this.#pick(reasons), createdAt, expiresAt });
      await this.#insert(RefundEntity, [refund]);
      if (!isSigned) continue;
      const blockTime = new Date(createdAt.getTime() + 60_000);
      const sent = { fromAddress: row.expectedWallet, toAddress: payer, isRefund: true, counts: true };
      const transfer = this.#transfer(order, amountUnits, blockTime, { ...sent, refund: refund.id });
      await this.#insert(TransferEntity, [transfer]);
      const processing = new Date(blockTime.getTime() + 2_000);
      const succeeded = new Date(blockTime.getTime() + 22_000);
      const begun = { type: 'processing' as const, fields: { status: 'processing' as const } };
      await this.#refunds.apply(this.#run, new Map([[refund, [begun]]]), processing);
      await this.#run(moveTransfers, [[refund.id], 'pending', 'confirmed']);
      await storeRefundedUnits(this.#run, await readReturnedMoney(this.#run, [row.id]));
      const fields = { status: 'succeeded' as const, succeededAt: succeeded };
      const step = { type: 'succeeded' as const, fields };
      const processed = { ...refund, ...begun.fields, eventCount: 1 };
      await this.#refunds.apply(this.#run, new Map([[processed, [step]]]), succeeded);
    }
  }

  /** A payment without the intent's id. */
  async #strayTransfer(order: Order): Promise<void> {
    const blockTime = this.#at(order, 300_000);
    const units = BigInt(order.row.amountUnits) - (this.#random() < 0.5 ? 100_000n : 0n);
    await this.#insert(TransferEntity, [this.#transfer(order, units, blockTime, { state: 'confirmed' })]);
  }

  /** A transfer of the payer to the intent's wallet, not confirmed yet, unless `others` say otherwise. */
  #transfer({ row, payer }: Order, amountUnits: bigint, at: Date, others: Partial<TransferRow>): TransferRow {
    const { merchantId, mode, expectedWallet } = row;
    const { chainId, tokenAddress } = networkOf(row.network) as Network;
    return {
      id: newUuid(at.getTime()),
      merchantId,
      mode,
      chainId,
      transactionHash: randomBytes(32).toString('hex'),
      logIndex: Math.floor(this.#random() * 300),
      blockNumber: BigInt(this.#block++),
      blockHash: randomBytes(32).toString('hex'),
      blockTime: new Date(Math.floor(at.getTime() / 1_000) * 1_000),
      fromAddress: payer,
      toAddress: expectedWallet,
      tokenAddress,
      amountUnits,
      ordinal: 0,
      state: 'pending',
      paymentIntent: null,
      attributedByHand: false,
      isDetached: false,
      isRefund: false,
      refund: null,
      authorizedBy: null,
      counts: false,
      labels: null,
      createdAt: at,
      ...others,
    };
  }

  /** Positions all events before there is an endpoint, then adds deliveries of the newest ones. */
  async finish(): Promise<void> {
    await createPositioner(this.#em).positionAll();
    const { merchantId, webhookKeys } = this.#options;
    const owner = { merchantId, mode: 'testnet' as const };
    const { endpoint } = await createEndpoint(this.#em, webhookKeys, owner, {
      url: 'http://127.0.0.1:4999/webhooks',
      eventTypes: ['*'],
      enabled: true,
      description: 'The shop, which does not answer today',
    });
    const createdAt = new Date(Date.now() - days * dayMs);
    await this.#em.fork().nativeUpdate(WebhookEndpointEntity, { id: endpoint.id }, { createdAt });
    await this.#run(insertDeliveries, [merchantId, endpoint.id, deliveriesCount, failedCount]);
    await this.#run(insertAttempts, [endpoint.id]);
    // The metadata index is past these times already. It starts again, to include the month's orders.
    await this.#em.execute('update metadata_progress set position = ?', [lowestUuid(0)]);
  }
}

type GivenRefund = Pick<RefundRow, 'amountUnits' | 'reason' | 'createdAt' | 'expiresAt'>;

function refundOf({ row, payer }: Order, given: GivenRefund): RefundRow {
  const { merchantId, mode, id, network, expectedWallet } = row;
  return {
    ...asPrepared,
    ...given,
    id: newUuid(given.createdAt.getTime()),
    merchantId,
    mode,
    paymentIntent: id,
    network,
    destination: payer,
    wallet: expectedWallet,
    metadata: {},
    idempotencyKey: null,
    requestFingerprint: null,
  };
}

/** Moves the transfers of intents, or of refunds, from one state to another. */
const moveTransfers = preparedStatement(
  'move_demo_transfers',
  `update transfers set state = $3
    where (payment_intent = any ($1::uuid[]) or refund = any ($1::uuid[])) and state = $2`,
);

const insertDeliveries = preparedStatement(
  'insert_demo_deliveries',
  `insert into webhook_deliveries (merchant_id, event_id, endpoint_id, id, status, created_at, scheduled, attempts)
   select $1, e.id, $2, gen_random_uuid(),
          case when row_number() over (order by e.created_at desc) <= $4 then 'failed' else 'delivered' end::webhook_delivery_status,
          e.created_at, 1, 1
     from (select id, created_at from events where merchant_id = $1 order by created_at desc limit $3) e`,
);

const insertAttempts = preparedStatement(
  'insert_demo_attempts',
  `insert into webhook_attempts (event_id, endpoint_id, number, at, duration_ms, status_code, error, response)
   select event_id, endpoint_id, 1, created_at + interval '1 second', 40 + (random() * 200)::int,
          case when status = 'failed' then 502 else 200 end, case when status = 'failed' then 'answered 502' end,
          convert_to(case when status = 'failed' then '<h1>Bad gateway</h1>' else 'ok' end, 'UTF8')
     from webhook_deliveries where endpoint_id = $1`,
);
