// A merchant's backend that receives events: it verifies each, stores it once, answers, and then does the work.
//
//   PAYMENTS_API_KEY=sk_testnet_… npm run -s webhook-receiver
//
// Creates its own webhook endpoint unless WEBHOOK_SECRET is set. Needs only Node.js 24 and standardwebhooks. The
// endpoint's address is of this machine, for a trial: in production, use the https address of your shop.

import { mkdirSync } from 'node:fs';
import { createServer, type IncomingMessage } from 'node:http';
import type { AddressInfo } from 'node:net';
import { dirname } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { Webhook, WebhookVerificationError } from 'standardwebhooks';

const {
  PAYMENTS_API_KEY,
  PAYMENTS_URL = 'http://127.0.0.1:8080',
  WEBHOOK_SECRET,
  PORT = '3001',
  EVENTS_FILE = '.data/webhook-receiver.sqlite',
} = process.env;

mkdirSync(dirname(EVENTS_FILE), { recursive: true });
const database = new DatabaseSync(EVENTS_FILE, { timeout: 5_000 });
// Each event is a job. It has a due time until it is done. In a real shop: a table in the database of the orders.
database.exec('create table if not exists jobs (id text primary key, event text not null, due_at integer)');
const storeOnce = database.prepare('insert into jobs values (?, ?, 0) on conflict do nothing');
// No other process takes this job for a minute. If the work fails or this process ends, the job is then taken again.
const takeJob = database.prepare(`
  update jobs set due_at = unixepoch() + 60
  where id = (select id from jobs where due_at <= unixepoch() order by due_at limit 1) returning event`);
const setDone = database.prepare('update jobs set due_at = null where id = ?');

interface Event {
  id: string;
  type: string;
  data: {
    payment_intent?: { id: string; status: string; metadata: { order_id?: string } };
    refund?: { id: string };
  };
}

/**
 * The work of an event. It is repeated after an error, and if the process ends before the job is marked as done, so
 * doing it twice must be harmless: fulfil an order by its id. It must take less than a minute.
 */
async function work({ id, type, data: { payment_intent: intent, refund } }: Event): Promise<void> {
  console.log(`${type} ${intent?.id ?? refund?.id ?? ''} ${id}`);
  // Decide by the type: each intent has this event once. Later events, such as `.reorged`, have the same status.
  if (type === 'payment_intent.succeeded') console.log(`fulfil ${intent?.metadata.order_id ?? intent?.id}`);
}

/** Does the work that is due. Concurrent calls, here and in other processes, take different jobs. */
async function workOff(): Promise<void> {
  for (let job = takeJob.get(); job !== undefined; job = takeJob.get()) {
    const event = JSON.parse(String(job.event)) as Event;
    try {
      await work(event);
      setDone.run(event.id);
    } catch (error) {
      console.error(`the work of ${event.id} is repeated in a minute:`, error);
    }
  }
}

const startWork = () => void workOff().catch(console.error);

/** Anybody may send a body. Events are smaller than this. */
const maxBodyBytes = 256 * 1024;

/** The body as it was sent. A body that was parsed and written again may differ in a space, and fails verification. */
async function rawBody(request: IncomingMessage): Promise<string> {
  const chunks: Buffer[] = [];
  let bytes = 0;
  for await (const chunk of request as AsyncIterable<Buffer>) {
    bytes += chunk.length;
    if (bytes > maxBodyBytes) throw new Error('the body is too large');
    chunks.push(chunk);
  }
  return Buffer.concat(chunks).toString('utf8');
}

if (PAYMENTS_API_KEY === undefined && WEBHOOK_SECRET === undefined) {
  throw new Error('set PAYMENTS_API_KEY to your secret API key');
}
let secret = WEBHOOK_SECRET;

const server = createServer(async (request, response) => {
  try {
    const body = await rawBody(request);
    if (secret === undefined) return response.writeHead(503).end();
    const headers = request.headers as Record<string, string>;
    const event = new Webhook(secret).verify(body, headers) as Event;
    // Store the event before the answer: after a 200 it is not sent again. An event that comes twice is stored once.
    storeOnce.run(event.id, body);
    response.writeHead(200).end();
    startWork();
  } catch (error) {
    // A webhook that fails verification is not from the service, was changed on its way, or is older than 5 minutes.
    if (error instanceof WebhookVerificationError) console.error(`refused: ${error.message}`);
    else console.error(error);
    response.writeHead(error instanceof WebhookVerificationError ? 400 : 500).end();
  }
});

/**
 * Creates the endpoint, unless WEBHOOK_SECRET is set, and enables it. The idempotency key makes a repeated call
 * return the same endpoint with its first secret. The service stops sending an event after three days of failures,
 * and disables an endpoint that keeps failing, so this also stores the events that were missed. It reads all that are
 * kept, 30 days by default, so the work of all is done again if EVENTS_FILE is lost. With many events, send `after`
 * with the id of one from before the outage.
 */
async function openEndpoint(url: string): Promise<string> {
  const ask = async (method: string, path: string, body?: object) => {
    const headers = {
      Authorization: `Bearer ${PAYMENTS_API_KEY}`,
      'Content-Type': 'application/json',
      ...(method === 'POST' && { 'Idempotency-Key': `webhook-receiver/${url}` }),
    };
    const answer = await fetch(`${PAYMENTS_URL}${path}`, {
      ...{ method, headers, body: JSON.stringify(body) },
      signal: AbortSignal.timeout(10_000),
    });
    if (!answer.ok) throw new Error(`${answer.status} ${await answer.text()}`);
    return (await answer.json()) as Record<string, string> & {
      events: Event[];
      webhook_endpoints: { id: string; url: string }[];
    };
  };
  const path = '/v1/webhook_endpoints';
  const create = () => ask('POST', path, { url, description: 'examples/webhook-receiver.ts' });
  const secret = WEBHOOK_SECRET ?? (await create()).secret;
  // A merchant can have at most 100 endpoints.
  const { webhook_endpoints } = await ask('GET', `${path}?page_size=100`);
  const own = webhook_endpoints.filter((endpoint) => endpoint.url === url);
  if (own.length === 0 && WEBHOOK_SECRET === undefined) {
    throw new Error(
      `the endpoint of ${url} was deleted: create another, and set WEBHOOK_SECRET to its secret`,
    );
  }
  for (const { id } of own) await ask('PATCH', `${path}/${id}`, { enabled: true });
  const first = '/v1/events?page_size=100';
  for (let page: string | undefined = first; page !== undefined; ) {
    const { events, next_page_token: token } = await ask('GET', page);
    for (const event of events) storeOnce.run(event.id, JSON.stringify(event));
    page = token && `${first}&page_token=${encodeURIComponent(token)}`;
  }
  return secret as string;
}

server.listen(Number(PORT), '127.0.0.1', async () => {
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/webhooks`;
  try {
    if (PAYMENTS_API_KEY !== undefined) secret = await openEndpoint(url);
  } catch (error) {
    const { message, cause } = error as Error;
    console.error(`no webhook endpoint at ${PAYMENTS_URL}: ${cause ?? message}`);
    process.exit(1);
  }
  console.log(`receiving at ${url}`);
  // Jobs that were left before the start, and jobs that failed.
  startWork();
  setInterval(startWork, 1_000);
});
