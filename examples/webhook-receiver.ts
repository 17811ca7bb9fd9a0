// A merchant's backend that receives events: verify, store the event's id once, answer, then work.
//
//   PAYMENTS_API_KEY=sk_testnet_… npm run -s webhook-receiver
//
// Creates a webhook endpoint for itself, unless WEBHOOK_SECRET has the secret of one that exists. Needs only Node.js 24
// and the package standardwebhooks.

import { createServer, type IncomingMessage } from 'node:http';
import type { AddressInfo } from 'node:net';
import { DatabaseSync } from 'node:sqlite';
import { Webhook, WebhookVerificationError } from 'standardwebhooks';

const {
  PAYMENTS_API_KEY,
  PAYMENTS_URL = 'http://127.0.0.1:8080',
  WEBHOOK_SECRET,
  PORT = '3001',
  EVENTS_FILE = ':memory:',
} = process.env;

/** The ids of events that were handled. In a real shop: a table of the database that holds the orders. */
const database = new DatabaseSync(EVENTS_FILE);
database.exec('create table if not exists handled_events (id text primary key, body text not null)');
const storeOnce = database.prepare('insert into handled_events values (?, ?) on conflict do nothing');

interface Event {
  id: string;
  type: string;
  data: { payment_intent?: { id: string; status: string; metadata: { order_id?: string } } };
}

/** The work of an event. It may fail and be repeated, long after the sender has its answer. */
function work({ id, type, data: { payment_intent: intent } }: Event): void {
  console.log(`${type} ${intent?.id ?? ''} ${id}`);
  // Each intent succeeds once. Later events of it, such as `.overpaid` and `.reorged`, have the status `succeeded` too.
  if (type === 'payment_intent.succeeded') console.log(`fulfil ${intent?.metadata.order_id ?? intent?.id}`);
}

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
    // Stored before it is answered: after a 200 nobody sends it again. `changes` is 0 if it has come before.
    const isNew = storeOnce.run(event.id, body).changes === 1;
    response.writeHead(200).end();
    if (isNew) work(event);
  } catch (error) {
    // Not from the service, or changed on its way.
    if (error instanceof WebhookVerificationError) console.error(`refused: ${error.message}`);
    else console.error(error);
    response.writeHead(error instanceof WebhookVerificationError ? 400 : 500).end();
  }
});

/** Creates the endpoint, or finds it: the idempotency key makes a repeated call return the same one and its secret. */
async function createEndpoint(url: string): Promise<string> {
  const answer = await fetch(`${PAYMENTS_URL}/v1/webhook_endpoints`, {
    method: 'POST',
    headers: {
      Authorization: `Bearer ${PAYMENTS_API_KEY}`,
      'Content-Type': 'application/json',
      'Idempotency-Key': `webhook-receiver/${url}`,
    },
    body: JSON.stringify({ url, description: 'examples/webhook-receiver.ts' }),
  });
  if (answer.status !== 201) throw new Error(`${answer.status} ${await answer.text()}`);
  return ((await answer.json()) as { secret: string }).secret;
}

server.listen(Number(PORT), '127.0.0.1', async () => {
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/webhooks`;
  try {
    secret ??= await createEndpoint(url);
  } catch (error) {
    const { message, cause } = error as Error;
    console.error(`no webhook endpoint could be created at ${PAYMENTS_URL}: ${cause ?? message}`);
    process.exit(1);
  }
  console.log(`receiving at ${url}`);
});
