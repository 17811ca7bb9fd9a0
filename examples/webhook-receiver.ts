// A merchant's backend that receives events: verify, store the event once, answer, then do the stored work.
//
//   PAYMENTS_API_KEY=sk_testnet_… npm run -s webhook-receiver
//
// Creates its own webhook endpoint unless WEBHOOK_SECRET is set. Needs only Node.js 24 and standardwebhooks.

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
// Each event is a job, due at a time until it is done. In a real shop: a table in the orders' database.
database.exec('create table if not exists jobs (id text primary key, event text not null, due_at integer)');
const storeOnce = database.prepare('insert into jobs values (?, ?, 0) on conflict do nothing');
// No other process takes it for a minute. If the work fails, or this process ends, it is then taken again.
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
 * The work of an event, repeated until it succeeds once, or if the process ends before it is marked as done.
 * So doing it twice has to be harmless: fulfil an order by its id. It takes less than a minute.
 */
async function work({ id, type, data: { payment_intent: intent, refund } }: Event): Promise<void> {
  console.log(`${type} ${intent?.id ?? refund?.id ?? ''} ${id}`);
  // Each intent succeeds once. Later events, such as `.overpaid` and `.reorged`, have this status too.
  if (type === 'payment_intent.succeeded') console.log(`fulfil ${intent?.metadata.order_id ?? intent?.id}`);
}

/** Does the work that is due. Other calls of this, here and in other processes, take other jobs. */
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

/** The largest event that is read. */
const maxBodyBytes = 256 * 1024;

/** The body as it was sent. A parsed body cannot be verified: written again, it may differ in a space. */
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
    // Stored, with its work, before the answer: after a 200 it is not sent again. It may come twice.
    storeOnce.run(event.id, body);
    response.writeHead(200).end();
    startWork();
  } catch (error) {
    // Not from the service, or changed on its way.
    if (error instanceof WebhookVerificationError) console.error(`refused: ${error.message}`);
    else console.error(error);
    response.writeHead(error instanceof WebhookVerificationError ? 400 : 500).end();
  }
});

/**
 * Creates the endpoint, unless WEBHOOK_SECRET is set, and enables it. The idempotency key makes a repeated
 * call return the same one and its first secret. The service gives up on what has failed for three days, and
 * in the end on the endpoint: what has happened is listed here.
 */
async function openEndpoint(url: string): Promise<string> {
  const ask = async (method: string, path: string, body?: object) => {
    const headers = {
      Authorization: `Bearer ${PAYMENTS_API_KEY}`,
      'Content-Type': 'application/json',
      ...(method === 'POST' && { 'Idempotency-Key': `webhook-receiver/${url}` }),
    };
    const answer = await fetch(`${PAYMENTS_URL}${path}`, { method, headers, body: JSON.stringify(body) });
    if (!answer.ok) throw new Error(`${answer.status} ${await answer.text()}`);
    return (await answer.json()) as Record<string, string> & {
      events: Event[];
      webhook_endpoints: { id: string; url: string }[];
    };
  };
  const path = '/v1/webhook_endpoints';
  const create = () => ask('POST', path, { url, description: 'examples/webhook-receiver.ts' });
  const secret = WEBHOOK_SECRET ?? (await create()).secret;
  // There can be no more than this.
  const { webhook_endpoints } = await ask('GET', `${path}?page_size=100`);
  const own = webhook_endpoints.filter((endpoint) => endpoint.url === url);
  if (own.length === 0 && WEBHOOK_SECRET === undefined) {
    throw new Error(`that of ${url} was deleted: create another, and set WEBHOOK_SECRET to its secret`);
  }
  for (const { id } of own) await ask('PATCH', `${path}/${id}`, { enabled: true });
  for (let page: string | undefined = '/v1/events'; page !== undefined; ) {
    const { events, next_page_token: token } = await ask('GET', page);
    for (const event of events) storeOnce.run(event.id, JSON.stringify(event));
    page = token && `/v1/events?page_token=${token}`;
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
  // What is left from before the start, and what has failed.
  startWork();
  setInterval(startWork, 1_000);
});
