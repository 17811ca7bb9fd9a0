// Do creates stay as fast while checkouts are open, each of which polls every few seconds? In turn with the
// same polling of a bare server, so that the cost of polling on this machine counts on both sides.

import { once } from 'node:events';
import http from 'node:http';
import type { AddressInfo } from 'node:net';
import { loadByWrk, loadOpenCheckouts, type Measurement, type OpenCheckout, requireTools } from './load.ts';
import {
  inTurn,
  median,
  onThisMachine,
  type PreparedDatabase,
  prepareDatabase,
  publish,
  type Running,
  ratiosOf,
  spread,
  startOurs,
  table,
  warmUpSeconds,
  withSetting,
} from './setting.ts';

const kinds = ['checkouts of a bare server', 'open checkouts'] as const;
type Kind = (typeof kinds)[number];

const openCheckouts = 2_000;
/** More than the default. */
const roomForAll = { MAX_CONNECTIONS: '4096' };
/** Like the page. */
const everyMs = 2_500;

export async function compareCheckouts({
  rounds,
  seconds,
}: {
  rounds: number;
  seconds: number;
}): Promise<void> {
  await requireTools(['wrk']);
  await withSetting(async ({ folder, postgres }) => {
    const database = await prepareDatabase(postgres);
    const bare = await startBareServer();
    const creates: Record<Kind, Measurement[]> = { 'checkouts of a bare server': [], 'open checkouts': [] };
    const asked: Measurement[] = [];
    for (let round = 0; round < rounds; round++) {
      for (const kind of inTurn(kinds, round)) {
        const server = await startOurs({ ...database.environment, ...roomForAll }, 'HTTP_PORT');
        const checkouts = await openSome(server, database);
        const target = { port: server.port, apiKey: database.apiKey, inFlight: 64 };
        await loadByWrk(folder, 'no idempotency keys', { ...target, seconds: warmUpSeconds });
        await database.orm.em.execute('checkpoint');
        const port = kind === 'open checkouts' ? server.port : bare.port;
        // The checkouts begin before the creates and end after them.
        const asking = loadOpenCheckouts(folder, checkouts, { port, seconds: seconds + 2, everyMs });
        const result = await loadByWrk(folder, 'no idempotency keys', { ...target, seconds });
        creates[kind].push(result);
        const answers = await asking;
        if (kind === 'open checkouts') asked.push(answers);
        console.error(
          `${kind}: ${Math.round(result.perSecond)} creates/s, ${Math.round(answers.perSecond)} checkouts/s, p99 ${answers.p99Ms} ms`,
        );
        await server.stop();
      }
    }
    bare.stop();
    await database.orm.close();
    await publish('results-checkouts.md', report(creates, asked, { rounds, seconds }));
  });
}

/** Answers everything with 304. */
async function startBareServer(): Promise<{ port: number; stop(): void }> {
  const server = http.createServer((_, response) => response.writeHead(304).end()).listen(0, '127.0.0.1');
  await once(server, 'listening');
  return { port: (server.address() as AddressInfo).port, stop: () => server.close() };
}

/** Creates intents, and requests the checkout of each once. */
async function openSome({ port }: Running, { apiKey }: PreparedDatabase): Promise<OpenCheckout[]> {
  const base = `http://127.0.0.1:${port}/v1`;
  const open = async (): Promise<OpenCheckout> => {
    const created = await fetch(`${base}/payment_intents`, {
      method: 'POST',
      headers: { Authorization: `Bearer ${apiKey}`, 'Content-Type': 'application/json' },
      body: JSON.stringify({ amount_units: 12_500_000, chain: 'base' }),
    });
    const { client_secret: clientSecret } = (await created.json()) as { client_secret: string };
    const checkout = await fetch(`${base}/checkout`, {
      headers: { Authorization: `Bearer ${clientSecret}` },
    });
    await checkout.arrayBuffer();
    return { clientSecret, etag: checkout.headers.get('etag') ?? '' };
  };
  const checkouts: OpenCheckout[] = [];
  while (checkouts.length < openCheckouts)
    checkouts.push(...(await Promise.all(Array.from({ length: 50 }, open))));
  return checkouts;
}

function report(
  creates: Record<Kind, readonly Measurement[]>,
  asked: readonly Measurement[],
  { rounds, seconds }: { rounds: number; seconds: number },
): string {
  const figures = (kind: Kind, of: keyof Measurement) => creates[kind].map((sample) => sample[of]);
  const ratio = (of: keyof Measurement) =>
    spread(ratiosOf(figures('open checkouts', of), figures('checkouts of a bare server', of)));
  return `# Creates beside open checkouts

\`npm run bench -- --checkouts\` ${onThisMachine()}; public door, 64 creates in flight, one process with all roles and \`MAX_CONNECTIONS=${roomForAll.MAX_CONNECTIONS}\`, ${rounds} rounds of ${seconds} s for each, in turn. Meanwhile ${openCheckouts.toLocaleString('en')} checkouts are open, each on a connection of its own, and ask every ${everyMs / 1000} s with \`If-None-Match\`: ${Math.round(median(asked.map(({ perSecond }) => perSecond)))} times a second. In the first row they ask a bare \`node:http\` server that answers 304 to everything.

${table(
  ['creates beside', 'creates/s', 'p50 ms', 'p99 ms'],
  kinds.map((kind) => [
    kind,
    Math.round(median(figures(kind, 'perSecond'))),
    median(figures(kind, 'p50Ms')).toFixed(2),
    median(figures(kind, 'p99Ms')).toFixed(2),
  ]),
)}

Creates beside open checkouts / beside those of the bare server: ${ratio('perSecond')} creates/s (target: at least 0.9), p99 ${ratio('p99Ms')}. A checkout is answered within ${median(asked.map(({ p99Ms }) => p99Ms)).toFixed(0)} ms (p99).
`;
}
