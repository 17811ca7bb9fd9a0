// Attribution of transfers: every way to pay, every attempted theft, every ambiguity. Each row makes real transactions
// on a chain, lets the watcher read them, and lists every change in the database.

import { afterAll, beforeEach, expect, test } from 'vitest';
import { formatIdentifier } from '../src/database/identifiers.ts';
import { batchRows, bundleRows } from './attribution/batch-rows.ts';
import { candidateRows, directRows } from './attribution/direct-rows.ts';
import { merchantRows } from './attribution/merchant-rows.ts';
import { createStage, type Expected, fundPayers } from './attribution/stage.ts';
import { startChain } from './support/chain.ts';
import type { TestMerchant } from './support/service.ts';
import { createTestWatcher } from './support/settlement.ts';
import { useService } from './support/use-service.ts';

const service = await useService({ ROLES: 'api' });

const chain = await startChain();
await fundPayers(chain);
const watcher = createTestWatcher(service, { urls: [chain.url] });
await watcher.catchUp();
/** A merchant with an open intent of the usual amount, which no row may change. */
const bystander = await service.newMerchant();

afterAll(async () => {
  await watcher.release();
  await chain.stop();
});

beforeEach(async () => {
  await service.query('delete from payment_intents');
  // Reads what a failed row left unread.
  await watcher.catchUp();
  for (const table of ['transfers', 'events']) await service.query(`delete from ${table}`);
});

const rows = [...directRows, ...batchRows, ...bundleRows, ...candidateRows, ...merchantRows];

test.for(rows)('$name', async ({ pay }) => {
  const shop = await service.newMerchant();
  const stage = createStage(service, chain, shop);
  await createStage(service, chain, bystander).intent();
  const first = await chain.client.getBlockNumber();
  const expected = await pay(stage);
  await chain.mine();
  await assertNoneReverted(first);
  const before = await readDatabase();
  await watcher.catchUp();
  expect(await readDatabase()).toEqual(after(before, expected));
  expect(watcher.faults).toEqual([]);
  for (const report of expected) {
    if ('reportedTo' in report)
      expect(await listUnattributed(report.reportedTo)).toHaveLength(report.transfers.length);
  }
});

/** A row that expects no change would otherwise pass because its transaction reverted. */
async function assertNoneReverted(after: bigint): Promise<void> {
  const newest = await chain.client.getBlockNumber();
  for (let blockNumber = after + 1n; blockNumber <= newest; blockNumber++) {
    const { transactions } = await chain.client.getBlock({ blockNumber });
    for (const hash of transactions) {
      expect((await chain.client.getTransactionReceipt({ hash })).status).toBe('success');
    }
  }
}

interface IntentState {
  status: string;
  received: string;
  payments: number;
  labels: string[];
  events: string[];
  event_count: number;
}

/** Everything that a transfer can change, for all merchants. */
interface State {
  intents: Record<string, IntentState>;
  /** Merchant, intent or none, amount, whether it counts, labels. */
  transfers: string[];
  /** Merchant, then status, amount and labels of a block's largest transfer, and the number of transfers. */
  reports: string[];
}

async function readDatabase(): Promise<State> {
  const intents = await service.query<IntentState & { id: string }>(
    `select id, status::text as status, amount_received_units as received, payments_count as payments,
            coalesce(labels, '{}') as labels, event_count,
            (select coalesce(array_agg(replace(e.type, 'payment_intent.', '') order by e.sequence), '{}')
               from events e where e.payment_intent = i.id) as events
       from payment_intents i`,
  );
  const transfers = await service.query(
    `select merchant_id, payment_intent, amount_units, counts, coalesce(labels, '{}') as labels
       from transfers`,
  );
  const reports = await service.query(
    `select merchant_id, data::json -> 'transfer' as transfer, data::json -> 'transfers_count' as count from events
      where payment_intent is null and type = 'transfer.unattributed'`,
  );
  return {
    intents: Object.fromEntries(intents.map(({ id, ...state }) => [formatIdentifier('pi', id), state])),
    transfers: transfers
      .map((row) => {
        const intent = row.payment_intent === null ? 'none' : formatIdentifier('pi', row.payment_intent);
        const { amount_units: amountUnits, counts, labels } = row;
        return transferLine(row.merchant_id, intent, { amountUnits, counts, labels });
      })
      .sort(),
    reports: reports
      .map(({ merchant_id, transfer, count }) =>
        [merchant_id, transfer.status, transfer.amount_units, ...(transfer.labels ?? []), count].join(' '),
      )
      .sort(),
  };
}

const transferLine = (
  merchantId: string,
  intent: string,
  { amountUnits, counts, labels }: { amountUnits: bigint; counts: boolean; labels: string[] },
) => [merchantId, intent, amountUnits, counts ? 'counts' : 'does not count', ...labels].join(' ');

/** The state of the database after exactly the expected changes. */
function after(before: State, expected: readonly Expected[]): State {
  const state = structuredClone(before);
  for (const each of expected) {
    if ('reportedTo' in each) {
      const { id } = each.reportedTo;
      for (const transfer of each.transfers) state.transfers.push(transferLine(id, 'none', transfer));
      // One event for a block: its largest transfer, and the number of transfers.
      const [largest] = each.transfers.toSorted((a, b) => Number(b.amountUnits - a.amountUnits));
      if (largest === undefined) continue;
      const { amountUnits, labels } = largest;
      state.reports.push([id, 'unattributed', amountUnits, ...labels, each.transfers.length].join(' '));
      continue;
    }
    const { intent, status, receivedUnits, labels, events, transfers } = each;
    const old = state.intents[intent.id] as IntentState;
    state.intents[intent.id] = {
      ...old,
      status,
      labels,
      received: String(receivedUnits),
      payments: old.payments + transfers.length,
      events: [...old.events, ...events],
      event_count: old.event_count + events.length,
    };
    for (const transfer of transfers) {
      state.transfers.push(transferLine(intent.merchantId, intent.id, transfer));
    }
  }
  state.transfers.sort();
  state.reports.sort();
  return state;
}

async function listUnattributed({ keys }: TestMerchant): Promise<unknown[]> {
  const answer = await fetch(`${service.publicUrl}/v1/transfers?status=unattributed`, {
    headers: { authorization: `Bearer ${keys.testnet.apiKey}` },
  });
  const { transfers = [] } = (await answer.json()) as { transfers?: unknown[] };
  return transfers;
}
