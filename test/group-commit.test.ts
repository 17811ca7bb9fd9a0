import { randomUUID } from 'node:crypto';
import type { Pool } from 'pg';
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest';
import { Batcher, usualWaits } from '../src/database/batcher.ts';
import type { NewPaymentIntentRow } from '../src/database/entities/payment-intent.ts';
import { inHalves } from '../src/database/halves.ts';
import { newUuid } from '../src/database/identifiers.ts';
import { createPreparedStatements, preparedStatement } from '../src/database/prepared.ts';
import { createInsert, createPaymentIntentStore } from '../src/payment-intents/insert-or-replay.ts';
import { isServerGone } from '../src/requests/unavailable.ts';
import { blockCreates } from './support/blocker.ts';
import { startService } from './support/service.ts';
import { useService } from './support/use-service.ts';

const service = await useService();

const store = createPaymentIntentStore(service.database.orm.em, { maxWaiting: 1_000, maxWaitMs: 60_000 });

function row(change: Partial<NewPaymentIntentRow> = {}): NewPaymentIntentRow {
  const createdAt = new Date();
  return {
    id: newUuid(),
    merchantId: service.merchant.id,
    mode: 'testnet',
    status: 'requires_payment',
    network: 3,
    amountUnits: 1n,
    expectedWallet: `0x${'1'.repeat(40)}`,
    lane: 'sdk',
    metadata: {},
    createdAt,
    expiresAt: new Date(createdAt.getTime() + 1_800_000),
    clientSecretVersion: 1,
    idempotencyKey: null,
    requestFingerprint: null,
    ...change,
  };
}

const keyed = (idempotencyKey: string, fingerprint = 1, change: Partial<NewPaymentIntentRow> = {}) =>
  row({ idempotencyKey, requestFingerprint: Buffer.alloc(32, fingerprint).toString('hex'), ...change });

const idsIn = async (ids: string[]) =>
  (await service.query<{ id: string }>('select id from payment_intents where id = any($1)', [ids])).map(
    ({ id }) => id,
  );

/** The columns that creation leaves to their defaults. */
const untouched = {
  amountReceivedUnits: 0n,
  paymentsCount: 0,
  amountRefundedUnits: null,
  authorizationsCount: null,
  eventCount: 0,
  labels: null,
  succeededAt: null,
  canceledAt: null,
  expiredAt: null,
};

describe('one batch', () => {
  test('reads back every column and every kind of value as written', async () => {
    const hostile = `quote " backslash \\ brace { } comma , null NULL single ' tab \t newline \n ключ 😀`;
    const intents = [
      keyed('"{},\\NULL', 7, { metadata: { [hostile]: hostile, n: null, list: [[], {}, 'NULL', ''] } }),
      keyed('NULL', 8, { amountUnits: 9007199254740991n, lane: 'manual' }),
      row({ metadata: { '': '' } }),
    ];
    expect(await Promise.all(intents.map((intent) => store.create(intent)))).toEqual(
      intents.map((intent) => ({ intent, replayed: false })),
    );
    for (const intent of intents.slice(0, 2)) {
      const again = await store.create({ ...intent, id: newUuid() });
      expect(again.replayed).toBe(true);
      expect({ ...again.intent }).toEqual({ ...intent, ...untouched });
    }
    const [stored] = await service.query('select metadata::text from payment_intents where id = $1', [
      intents[2]?.id,
    ]);
    expect(stored).toEqual({ metadata: '{"":""}' });
  });

  test('with the same key twice: one row, returned to both', async () => {
    const key = randomUUID();
    const intents = Array.from({ length: 20 }, () => keyed(key));
    const outcomes = await Promise.all(intents.map((intent) => store.create(intent)));
    expect(new Set(outcomes.map(({ intent }) => intent.id)).size).toBe(1);
    expect(outcomes.filter(({ replayed }) => !replayed)).toHaveLength(1);
    expect(await idsIn(intents.map(({ id }) => id))).toHaveLength(1);
  });

  test('with a replay, a reused key and new intents: each gets its own answer', async () => {
    const key = randomUUID();
    const first = keyed(key);
    await store.create(first);
    const fresh = [row(), keyed(randomUUID()), row()];
    const outcomes = await Promise.allSettled(
      [fresh[0], keyed(key, 1), fresh[1], keyed(key, 2), fresh[2]].map((intent) =>
        store.create(intent as NewPaymentIntentRow),
      ),
    );
    expect(outcomes).toMatchObject([
      { value: { replayed: false, intent: { id: fresh[0]?.id } } },
      { value: { replayed: true, intent: { id: first.id } } },
      { value: { replayed: false, intent: { id: fresh[1]?.id } } },
      { reason: { code: 'idempotency_key_reused' } },
      { value: { replayed: false, intent: { id: fresh[2]?.id } } },
    ]);
  });

  test('with a row that the database refuses: only that row fails', async () => {
    const neighbours = Array.from({ length: 10 }, () => row());
    const faulty = row({ amountUnits: 0n });
    const tooMuch = row({ amountUnits: 2n ** 53n });
    const outcomes = await Promise.allSettled(
      [...neighbours.slice(0, 5), faulty, tooMuch, ...neighbours.slice(5)].map((intent) =>
        store.create(intent),
      ),
    );
    expect(outcomes.map(({ status }) => status)).toEqual([
      ...Array(5).fill('fulfilled'),
      'rejected',
      'rejected',
      ...Array(5).fill('fulfilled'),
    ]);
    expect(outcomes[5]).toMatchObject({ reason: { code: '23514' } });
    expect(outcomes[6]).toMatchObject({ reason: { code: '23514' } });
    expect(await idsIn(neighbours.map(({ id }) => id))).toHaveLength(10);
  });

  test('with a faulty row, and a server that goes once some are stored: none is reported missing', async () => {
    await service.query(`
      create function leave() returns trigger language plpgsql as $$ begin raise sqlstate '25006'; end $$;
      create trigger leave before insert on payment_intents for each row when (new.amount_units = 7) execute function leave()`);
    onTestFinished(async () => void (await service.query('drop function leave cascade')));
    const hasty = createPaymentIntentStore(service.database.orm.em, { maxWaiting: 10, maxWaitMs: 300 });
    const intents = [row({ amountUnits: 0n }), row(), row({ amountUnits: 7n })];
    const [, outcome] = await Promise.allSettled(intents.map((intent) => hasty.create(intent)));
    expect(outcome).toMatchObject({ reason: { message: expect.stringContaining('may have been created') } });
    expect(await idsIn(intents.map(({ id }) => id))).toEqual([intents[1]?.id]);
  });

  test('whose connection is lost is repeated with the same rows, and a retry by key finds one row each', async () => {
    const blocker = await blockCreates(service.location);
    const intents = Array.from({ length: 30 }, () => keyed(randomUUID()));
    const outcomes = Promise.all(intents.map((intent) => store.create(intent)));
    await blocker.cutWaitingInserts();
    // The batch that waited for the freed slot runs next, and completes when the lock is released.
    await blocker.release();
    const stored = await outcomes;
    expect(stored.map(({ intent, replayed }) => [intent.id, replayed])).toEqual(
      intents.map(({ id }) => [id, false]),
    );
    await Promise.all(intents.map((intent) => store.create({ ...intent, id: newUuid() })));
    const [count] = await service.query(
      'select count(*)::int as n from payment_intents where idempotency_key = any($1)',
      [intents.map(({ idempotencyKey }) => idempotencyKey)],
    );
    expect(count).toEqual({ n: 30 });
  });
});

test('batches of several processes with the same keys wait for each other without a deadlock', async () => {
  await service.query(`
    create function dawdle() returns trigger language plpgsql as $$ begin perform pg_sleep(0.05); return new; end $$;
    create trigger dawdle before insert on payment_intents for each row execute function dawdle()`);
  onTestFinished(async () => void (await service.query('drop function dawdle cascade')));
  const key = randomUUID();
  const other = { merchantId: (await service.newMerchant()).id, mode: 'mainnet' } as const;
  const intents = [{ mode: 'mainnet' } as const, {}, other].map((owner) => keyed(key, 1, owner));
  const beside = createPaymentIntentStore(service.database.orm.em, usualWaits);
  const stored = [
    ...intents.map((intent) => store.create(intent)),
    ...intents.toReversed().map((intent) => beside.create({ ...intent, id: newUuid() })),
  ];
  expect((await Promise.all(stored)).filter(({ replayed }) => !replayed)).toHaveLength(3);
});

test('a stored create is not reported as missing if the next step of its batch fails', async () => {
  const env = { ROLES: 'api', DATABASE_POOL: '1', DATABASE_CONNECT_TIMEOUT: '1' };
  const narrow = await startService(env, { beside: service });
  onTestFinished(() => narrow.close());
  const { em } = narrow.database.orm;
  const stores = createPaymentIntentStore(em, { maxWaiting: 10, maxWaitMs: 2_500 });
  const pool: Pool = await em.getConnection().getNativeClient();
  const first = keyed(randomUUID());
  await stores.create(first);
  // Another caller holds the only connection before the insert, and again after it.
  const holder = await pool.connect();
  const fresh = row();
  const creates = Promise.allSettled([stores.create(fresh), stores.create({ ...first, id: newUuid() })]);
  await expect.poll(() => pool.waitingCount, { interval: 1 }).toBe(1);
  const next = pool.connect();
  holder.release();
  const again = await next;
  expect(await idsIn([fresh.id])).toEqual([fresh.id]);
  const reason = { code: 'unavailable', message: expect.stringContaining('may have been created') };
  expect(await creates).toMatchObject([{ reason }, { reason }]);
  again.release();
});

describe('the batcher', () => {
  /** A batcher whose commit waits until it is released, and the batches that it received. */
  function gated(options: {
    slots: number;
    maxBeside?: number;
    maxBatchSize: number;
    maxWaiting: number;
    maxWaitMs?: number;
    gatherMs?: number;
  }) {
    const batches: number[][] = [];
    const releases: (() => void)[] = [];
    const arrivals: (() => void)[] = [];
    const batcher = new Batcher<number, string>({
      maxWaitMs: 60_000,
      ...options,
      run: async (batch) => {
        batches.push([...batch]);
        arrivals.shift()?.();
        await new Promise<void>((release) => releases.push(release));
        return batch.map((n) => (n < 0 ? new Error(`bad ${n}`) : `done ${n}`));
      },
    });
    const nextBatch = () => new Promise<void>((arrived) => arrivals.push(arrived));
    return { batcher, batches, nextBatch, release: () => releases.shift()?.() };
  }

  test('writes at once if a slot is free, and writes items that arrive meanwhile together', async () => {
    const { batcher, batches, nextBatch, release } = gated({ slots: 1, maxBatchSize: 3, maxWaiting: 100 });
    let arrived = nextBatch();
    const first = batcher.add(1);
    await arrived;
    const others = [2, 3, 4, 5, -6].map((n) => batcher.add(n));
    expect(batches).toEqual([[1]]);
    arrived = nextBatch();
    release();
    expect(await first).toBe('done 1');
    await arrived;
    arrived = nextBatch();
    release();
    await arrived;
    release();
    expect(await Promise.allSettled(others)).toMatchObject([
      { value: 'done 2' },
      { value: 'done 3' },
      { value: 'done 4' },
      { value: 'done 5' },
      { reason: new Error('bad -6') },
    ]);
    expect(batches).toEqual([[1], [2, 3, 4], [5, -6]]);
  });

  test.each(['batch', 'item'])(
    'items that a held run may have done get its error, even if the %s fails otherwise when repeated',
    async (failing) => {
      const errors = ['08006', '53100'].map((code) => Object.assign(new Error(code), { code }));
      const batcher = new Batcher<number, string>({
        ...{ slots: 1, maxBatchSize: 1, isHeldAfter: isServerGone },
        async run(_, isRepeated) {
          const error = errors.shift() as Error;
          if (isRepeated && failing === 'item') return [error];
          throw error;
        },
      });
      await expect(batcher.add(1)).rejects.toThrow('08006');
      expect(errors).toEqual([]);
    },
  );

  test('items of one turn of the event loop are one batch', async () => {
    const { batcher, batches, nextBatch, release } = gated({ slots: 2, maxBatchSize: 100, maxWaiting: 100 });
    const arrived = nextBatch();
    const all = Promise.all([1, 2, 3].map((n) => batcher.add(n)));
    await arrived;
    expect(batches).toEqual([[1, 2, 3]]);
    release();
    expect(await all).toEqual(['done 1', 'done 2', 'done 3']);
  });

  test('a batch starts beside small ones, or if it is full', async () => {
    const { batcher, batches, nextBatch, release } = gated({
      ...{ slots: 2, maxBeside: 2, maxBatchSize: 4, maxWaiting: 100 },
    });
    const all: Promise<string>[] = [];
    const add = async (...items: number[]) => {
      const arrived = nextBatch();
      all.push(...items.map((n) => batcher.add(n)));
      await arrived;
    };
    await add(1, 2);
    await add(3, 4, 5);
    // The small batch is done; three items are still in flight.
    release();
    await all[1];
    all.push(batcher.add(6), batcher.add(7), batcher.add(8));
    await new Promise(setImmediate);
    expect(batches).toEqual([
      [1, 2],
      [3, 4, 5],
    ]);
    await add(9);
    expect(batches[2]).toEqual([6, 7, 8, 9]);
    release();
    release();
    expect(await Promise.all(all)).toHaveLength(9);
  });

  test('limits how many items wait, and refuses others at once as unavailable', async () => {
    const { batcher, nextBatch, release } = gated({ slots: 1, maxBatchSize: 10, maxWaiting: 2 });
    let arrived = nextBatch();
    const first = batcher.add(1);
    await arrived;
    const waiting = [batcher.add(2), batcher.add(3)];
    await expect(batcher.add(4)).rejects.toMatchObject({ code: 'unavailable' });
    arrived = nextBatch();
    release();
    await first;
    await arrived;
    release();
    expect(await Promise.all(waiting)).toEqual(['done 2', 'done 3']);
  });

  test('limits how long an item waits, and never writes a refused item', async () => {
    const { batcher, batches, nextBatch, release } = gated({
      slots: 1,
      maxBatchSize: 10,
      maxWaiting: 10,
      maxWaitMs: 50,
    });
    let arrived = nextBatch();
    const first = batcher.add(1);
    await arrived;
    const startedAtMs = performance.now();
    await expect(batcher.add(2)).rejects.toMatchObject({ code: 'unavailable' });
    expect(performance.now() - startedAtMs).toBeGreaterThanOrEqual(45);
    await expect(batcher.add(3)).rejects.toMatchObject({ code: 'unavailable' });
    // An item that is already being written is waited for, however long it takes.
    const last = batcher.add(4);
    arrived = nextBatch();
    release();
    expect(await first).toBe('done 1');
    await arrived;
    release();
    expect(await last).toBe('done 4');
    expect(batches).toEqual([[1], [4]]);
  });

  test('a slot that may wait also takes the items that arrive meanwhile', async () => {
    const { batcher, batches, nextBatch, release } = gated({
      slots: 1,
      maxBatchSize: 9,
      maxWaiting: 9,
      gatherMs: 300,
    });
    const arrived = nextBatch();
    const first = batcher.add(1);
    await new Promise(setImmediate);
    const second = batcher.add(2);
    await arrived;
    expect(batches).toEqual([[1, 2]]);
    release();
    expect(await Promise.all([first, second])).toEqual(['done 1', 'done 2']);
  });

  test('if a batch fails, each of its items fails, and the next batch is written', async () => {
    let calls = 0;
    const batcher = new Batcher<number, number>({
      slots: 1,
      maxBatchSize: 2,
      maxWaiting: 10,
      maxWaitMs: 60_000,
      async run(batch) {
        calls++;
        if (calls === 1) throw new Error('all of it');
        return batch;
      },
    });
    const outcomes = await Promise.allSettled([1, 2, 3].map((n) => batcher.add(n)));
    expect(outcomes).toMatchObject([
      { reason: new Error('all of it') },
      { reason: new Error('all of it') },
      { value: 3 },
    ]);
  });
});

describe('a transaction', () => {
  const statements = () => createPreparedStatements(service.database.orm.em);
  const note = preparedStatement('insert_note', 'insert into notes (text) values ($1)');
  const notes = () => service.query<{ text: string }>('select text from notes order by text');

  beforeAll(() => service.query('create table notes (text text not null)'));
  afterAll(() => service.query('drop table notes'));

  test('commits an insert of intents and another statement together', async () => {
    const intents = [row(), row()];
    const insert = createInsert(service.database.orm.em);
    const inserted = await statements().transaction(async (run) => {
      await run(note, ['kept']);
      return insert(intents, run);
    });
    expect(inserted).toBe(2);
    expect(await idsIn(intents.map(({ id }) => id))).toHaveLength(2);
    expect(await notes()).toEqual([{ text: 'kept' }]);
  });

  test('that fails leaves nothing of either, and its connection can be used again', async () => {
    const intent = row();
    const insert = createInsert(service.database.orm.em);
    const before = await notes();
    for (let i = 0; i < 20; i++) {
      const failing = statements().transaction(async (run) => {
        await insert([intent], run);
        await run(note, [null]);
      });
      await expect(failing).rejects.toMatchObject({ code: '23502' });
    }
    expect(await idsIn([intent.id])).toEqual([]);
    expect(await notes()).toEqual(before);
  });
});

describe('work in halves', () => {
  const gone = Object.assign(new Error('gone'), { code: '57P01' });
  const late = Object.assign(new Error('late'), { code: '57014' });

  /** Runs items 0 to 7. `failures` has the errors of each, one for each run that it is in. */
  async function halve(failures: Record<number, Error[]>, { isFatal = false, ping = async () => {} } = {}) {
    const runs: number[][] = [];
    const alone: number[] = [];
    const done: number[] = [];
    const ended = inHalves(
      Array.from({ length: 8 }, (_, i) => i),
      {
        async work(items) {
          runs.push([...items]);
          const errors = items.flatMap((item) => failures[item]?.splice(0, 1) ?? []);
          if (errors.length > 0) throw errors[0];
          done.push(...items);
        },
        alone: async (item) => void alone.push(item),
        run: async () => ping() as never,
        isFatal: () => isFatal,
        beforeRetry: async () => {},
      },
    );
    const failure = await ended.then(
      () => undefined,
      (reason: Error) => reason,
    );
    return { runs, alone, done, failure };
  }
  const bad = (times: number) => Array.from({ length: times }, () => new Error('bad'));

  test('leaves out an item that fails alone, twice, and does the others', async () => {
    const { runs, alone, done, failure } = await halve({ 5: bad(100) });
    expect([alone, failure]).toEqual([[5], undefined]);
    expect(done.toSorted()).toEqual([0, 1, 2, 3, 4, 6, 7]);
    expect(runs.filter((items) => items.join() === '5')).toHaveLength(2);
  });

  test('does an item that fails alone only once', async () => {
    const { alone, done } = await halve({ 5: bad(4) });
    expect([alone, done.toSorted()]).toEqual([[], [0, 1, 2, 3, 4, 5, 6, 7]]);
  });

  test.each([
    ['the database is gone', gone, {}, gone],
    ['the failure is fatal', late, { isFatal: true }, late],
    ['a timeout is that of the database', late, { ping: () => Promise.reject(gone) }, gone],
  ])('halves nothing if %s', async (_, reason, options, thrown) => {
    const { runs, alone, failure } = await halve({ 5: [reason] }, options);
    expect([runs.length, alone, failure]).toEqual([1, [], thrown]);
  });

  test('halves if a statement alone takes too long', async () => {
    const { alone, done } = await halve({ 5: Array(100).fill(late) });
    expect([alone, done.length]).toEqual([[5], 7]);
  });
});
