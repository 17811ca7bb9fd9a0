// What each index costs, and what it is for. Every index but the primary keys is dropped in turn. With it and
// without it, the table is written, and the query that needs the index is run.

import pg from 'pg';
import { pgConfigOf } from '../src/config/database-location.ts';
import { newUuid } from '../src/database/identifiers.ts';
import { fillPaymentIntents, inChunks, uuidArray } from './fill.ts';
import { type IndexCase, indexCases, writesOf } from './index-cases.ts';
import { loadByPgbench } from './load.ts';
import {
  inTurn,
  median,
  onThisMachine,
  type PreparedDatabase,
  prepareDatabase,
  publish,
  ratiosOf,
  spread,
  table,
  withSetting,
} from './setting.ts';

const merchants = 1_000;
const endpointsEach = 10;
const clients = 64;
/** How often a query is run; the time is the median. */
const runs = 5;
const timeoutMs = 20_000;
/** A query that takes longer is run once. */
const slowMs = 2_000;

interface Figures {
  entries: number;
  bytesEach: number;
  written: { with: number[]; without: number[] };
  /** Undefined if it took too long. */
  queryMs: { with: number | undefined; without: number | undefined } | undefined;
  isUsed: boolean;
}

export async function compareIndexes({
  rounds,
  seconds,
  rows,
}: {
  rounds: number;
  seconds: number;
  rows: number;
}): Promise<void> {
  await withSetting(async ({ folder, postgres }) => {
    const database = await prepareDatabase(postgres);
    await fillAll(database, rows);
    const { orm } = database;
    const found = await orm.em.execute<
      { name: string; definition: string; bytes: string; entries: number }[]
    >(
      `select c.relname as name, pg_get_indexdef(c.oid) as definition, pg_relation_size(c.oid) as bytes,
              c.reltuples::bigint::int as entries
         from pg_index i join pg_class c on c.oid = i.indexrelid
        where not i.indisprimary and i.indrelid::regclass::text = any (?::text[])
        order by i.indrelid::regclass::text, c.relname`,
      [uuidArray(Object.keys(writesOf(database.merchantId)))],
    );
    const client = new pg.Client(pgConfigOf(postgres));
    await client.connect();
    await client.query(`set statement_timeout = ${timeoutMs}`);
    const figures = new Map<string, Figures>();
    for (const { name, definition, bytes, entries } of found) {
      const index = indexCases.find((one) => one.name === name);
      if (index === undefined) throw new Error(`${name} has no case in bench/index-cases.ts`);
      const statements = writesOf(database.merchantId)[index.table] ?? '';
      const write = async () => {
        await orm.em.execute('checkpoint');
        const pace = await loadByPgbench(folder, postgres, statements, clients, seconds);
        if (pace === undefined) throw new Error('pgbench is not installed: apt-get install postgresql');
        return pace.perSecond;
      };
      const drop = () => orm.em.execute(`drop index ${name}`);
      const query = await queryOf(index, client);
      const measured = query === undefined ? undefined : await explain(client, query);
      const written = { with: [] as number[], without: [] as number[] };
      let without: Explained | undefined;
      for (let round = 0; round < rounds; round++) {
        for (const state of inTurn(['with', 'without'] as const, round)) {
          if (state === 'without') {
            await drop();
            if (query !== undefined) without ??= await explain(client, query);
          }
          written[state].push(await write());
          if (state === 'without') await orm.em.execute(definition);
        }
      }
      figures.set(name, {
        entries,
        bytesEach: Number(bytes) / entries,
        written,
        queryMs: measured && { with: measured.ms, without: without?.ms },
        isUsed: measured?.plan.includes(name) ?? false,
      });
      const ratio = median(ratiosOf(written.with, written.without)).toFixed(2);
      console.error(`${name}: written at ${ratio} of the pace without it`);
      console.error(
        `  with ${measured?.ms} ms: ${measured?.plan}\n  without ${without?.ms} ms: ${without?.plan}`,
      );
    }
    await client.end();
    await orm.close();
    await publish('results-indexes.md', report(figures, rows, rounds, seconds));
  });
}

/** The query with its values, or undefined if no query needs the index. */
async function queryOf({ values, query }: IndexCase, client: pg.Client): Promise<string | undefined> {
  if (query === undefined) return undefined;
  const { rows } = values === undefined ? { rows: [{}] } : await client.query(values);
  return query.replace(/:(\w+)/g, (match, name) =>
    name in (rows[0] ?? {}) ? pg.escapeLiteral(String(rows[0][name])) : match,
  );
}

interface Explained {
  ms: number | undefined;
  /** The kinds of its nodes, and the indexes that they use. */
  plan: string;
}

/** Runs the query several times, and rolls back what it changes. */
async function explain(client: pg.Client, query: string): Promise<Explained> {
  const times: number[] = [];
  let plan = '';
  for (let i = 0; i < runs; i++) {
    await client.query('begin');
    try {
      const { rows } = await client.query(`explain (analyze, format json) ${query}`);
      const [explained] = rows[0]['QUERY PLAN'];
      times.push(explained['Execution Time']);
      plan = nodesOf(explained.Plan).join(', ');
    } catch (reason) {
      // `query_canceled`: the timeout.
      if ((reason as { code?: string }).code !== '57014') throw reason;
      return { ms: undefined, plan: 'timeout' };
    } finally {
      await client.query('rollback');
    }
    if ((times[0] ?? 0) > slowMs) break;
  }
  return { ms: median(times), plan };
}

interface PlanNode {
  'Node Type': string;
  'Index Name'?: string;
  'Relation Name'?: string;
  Plans?: PlanNode[];
}

function nodesOf(node: PlanNode): string[] {
  const of = node['Index Name'] ?? node['Relation Name'];
  return [
    of === undefined ? node['Node Type'] : `${node['Node Type']} (${of})`,
    ...(node.Plans ?? []).flatMap(nodesOf),
  ];
}

/** Fills each table as it would be after some time: most rows are done with, and a few wait for something. */
async function fillAll({ orm: { em }, merchantId }: PreparedDatabase, rows: number): Promise<void> {
  const owners = [merchantId, ...Array.from({ length: merchants - 1 }, () => newUuid())];
  await fillPaymentIntents(em, owners, 'paid', rows);
  await fillPaymentIntents(em, owners, 'open', Math.ceil(rows / 100));
  await fillPaymentIntents(em, owners, 'overdue', Math.ceil(rows / 1_000));
  await em.execute('create table owners (place int primary key, id uuid)');
  await em.execute(
    'insert into owners select place - 1, id from unnest(?::uuid[]) with ordinality as o (id, place)',
    [uuidArray(owners)],
  );
  await em.execute(
    `insert into webhook_endpoints (id, merchant_id, mode, url, event_types, enabled, created_at, idempotency_key, request_fingerprint)
     select uuidv7(), o.id, 'testnet', 'https://shop.example/webhooks', '{*}', true, now(),
            case when i > ${merchants} then gen_random_uuid()::text end, case when i > ${merchants} then sha256(i::text::bytea) end
       from generate_series(1, ${merchants * endpointsEach}) as i join owners o on o.place = i % ${merchants}`,
  );
  await em.execute(
    `insert into webhook_secrets (endpoint_id, generation, key_version, created_at, idempotency_key)
     select id, 1, 1, now(), idempotency_key from webhook_endpoints`,
  );
  await inChunks(rows, async (first, last) => {
    await em.execute(
      `insert into events (id, merchant_id, mode, type, created_at, payment_intent, sequence, position, data)
       select uuidv7(make_interval(secs => (i - ${rows}) * 0.01)), o.id, 'testnet', 'payment_intent.canceled', now(), uuidv7(), 1, i,
              '{"payment_intent":"' || repeat('x', 550) || '"}'
         from generate_series(${first}, ${last}) as i join owners o on o.place = i % ${merchants}`,
    );
    // A hundredth is pending. Of those, a tenth is due.
    await em.execute(
      `insert into webhook_deliveries (merchant_id, event_id, endpoint_id, id, status, created_at, next_attempt_at)
       select e.merchant_id, e.id, w.id, gen_random_uuid(),
              case when e.position % 101 = 0 then 'pending' else 'delivered' end::webhook_delivery_status, now(),
              case when e.position % 101 = 0 then now() + case when e.position % 10 = 0 then interval '0' else interval '1 hour' end end
         from events e
         cross join lateral (select id from webhook_endpoints w where w.merchant_id = e.merchant_id
                             order by id offset e.position / ${merchants} % ${endpointsEach} limit 1) w
        where e.position between ${first} and ${last}`,
    );
  });
  await em.execute(
    `insert into events (id, merchant_id, mode, type, created_at, payment_intent, sequence, data)
     select uuidv7(), o.id, 'testnet', 'payment_intent.canceled', now(), uuidv7(), 1, '{"payment_intent":"' || repeat('x', 550) || '"}'
       from generate_series(1, 100) as i join owners o on o.place = i % ${merchants}`,
  );
  await em.execute(
    `insert into removed_events (id, merchant_id, mode, removed_at)
     select gen_random_uuid(), o.id, 'testnet', now() - make_interval(mins => i)
       from generate_series(1, ${Math.ceil(rows / 10)}) as i join owners o on o.place = i % ${merchants}`,
  );
  await em.execute(`create sequence bench_positions start ${rows + 1}`);
  await em.execute('vacuum analyze');
}

function report(
  figures: ReadonlyMap<string, Figures>,
  rows: number,
  rounds: number,
  seconds: number,
): string {
  const msOf = (ms: number | undefined) =>
    ms === undefined ? `over ${timeoutMs.toLocaleString('en')}` : ms.toFixed(2);
  const lines = indexCases.flatMap(({ name, purpose }) => {
    const one = figures.get(name);
    if (one === undefined) return [];
    const { entries, bytesEach, written, queryMs, isUsed } = one;
    return [
      [
        `\`${name}\``,
        entries.toLocaleString('en'),
        entries === 0 ? '' : Math.round(bytesEach),
        spread(ratiosOf(written.with, written.without)),
        purpose,
        queryMs === undefined ? '' : msOf(queryMs.with) + (isUsed ? '' : ' (not used)'),
        queryMs === undefined ? '' : msOf(queryMs.without),
      ],
    ];
  });
  return `# What each index costs, and what it is for

\`npm run bench -- --indexes\` ${onThisMachine()}; ${rows.toLocaleString('en')} intents, events and deliveries of ${merchants.toLocaleString('en')} merchants with ${endpointsEach} endpoints each, on one PostgreSQL with its default settings. "Written" is how fast \`pgbench\` writes the table with the index, as a ratio of its pace without it: ${clients} clients, ${rounds === 1 ? 'one round' : `${rounds} rounds`} of ${seconds} s for each in turn. For intents it inserts one; for events it inserts one and gives it a position; for deliveries it inserts one, claims it and records its success. A query's time is the median of ${runs} runs by EXPLAIN ANALYZE.

${table(['index', 'entries', 'bytes an entry', 'written', 'what needs it', 'ms with it', 'ms without'], lines)}
`;
}
