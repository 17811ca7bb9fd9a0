// Load from a client that never loses a payment: it writes each request, before sending it, and each answer to a
// journal on disk. Afterwards the journal is compared with the database.

import { type FileHandle, open, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect } from 'vitest';
import {
  type Answer,
  type Call,
  type Door,
  doors,
  type Endpoints,
  openCalls,
  type Request,
} from '../../support/call.ts';
import type { Cluster } from './process.ts';
import { random } from './seed.ts';

export interface LoadOptions {
  /** One or more services; each attempt goes to a random door of one of them. */
  services: readonly Endpoints[];
  apiKey: string;
  callers: number;
  /** The share of creations without an idempotency key; those are never retried. */
  shareWithoutKey?: number;
  /** The number of callers that send each key at the same time. */
  callersPerKey?: number;
  /** What a caller does after an attempt that failed: try again (the default), or stop calling. */
  onFailure?: (failure: string) => 'retry' | 'stop';
  /** How long a caller rests after each creation. */
  restMs?: number;
  /** Called with the duration of each acknowledged attempt. */
  onAcknowledged?: (tookMs: number) => void;
  /** Counts what is lost instead of failing. */
  mayLose?: boolean;
}

interface Entry {
  tag: string;
  key: string | null;
  body: Request;
}

export interface Figures {
  seed: number;
  sent: number;
  acknowledged: number;
  retried: number;
  lost: number;
  doubled: number;
}

export interface Load {
  /** Failed attempts, counted by the code of the catalogue or of the network. */
  failures: ReadonlyMap<string, number>;
  /** Creates acknowledged so far. */
  acknowledged(): number;
  /** Resolves after that many more were acknowledged. */
  progress(creates: number): Promise<void>;
  /** Waits until every started creation has ended, and compares the journal with the database. */
  finish(): Promise<Figures>;
}

const retryAfterMs = 50;
const maxUnits = 1_000_000_000;
let loads = 0;

export async function startLoad(
  cluster: Pick<Cluster, 'folder' | 'query'>,
  options: LoadOptions,
): Promise<Load> {
  const {
    services,
    apiKey,
    callers,
    shareWithoutKey = 0,
    callersPerKey = 1,
    onFailure,
    restMs = 0,
  } = options;
  const name = `load-${++loads}`;
  const journal = await openJournal(join(cluster.folder, `${name}.journal`));
  const calls = services.map((endpoints) => openCalls(endpoints, apiKey));
  const failures = new Map<string, number>();
  const waiters: { at: number; resolve: () => void }[] = [];
  let isStopping = false;
  let retried = 0;
  let acknowledged = 0;
  let number = 0;

  const acknowledge = () => {
    acknowledged++;
    for (const waiter of waiters) if (acknowledged >= waiter.at) waiter.resolve();
  };

  const attemptUntilAnswered = async (entry: Entry): Promise<void> => {
    for (;;) {
      const { call } = calls[random.below(calls.length)] as (typeof calls)[number];
      const sentAtMs = performance.now();
      const outcome = await attemptOnce(call, entry);
      if (typeof outcome !== 'string') {
        await journal.append(['ack', entry.tag, outcome.json.id, outcome.json.client_secret]);
        acknowledge();
        options.onAcknowledged?.(performance.now() - sentAtMs);
        return;
      }
      failures.set(outcome, (failures.get(outcome) ?? 0) + 1);
      if (onFailure?.(outcome) === 'stop') {
        isStopping = true;
        return;
      }
      if (entry.key === null) return;
      if (!isTransient(outcome)) throw new Error(`a creation was refused: ${outcome}`);
      retried++;
      await sleep(retryAfterMs);
    }
  };

  const call = async () => {
    while (!isStopping) {
      const tag = `${name}-${++number}`;
      const key = random.fraction() < shareWithoutKey ? null : tag;
      const entry: Entry = { tag, key, body: newBody(tag) };
      await journal.append(['send', tag, key, entry.body.amount_units]);
      const same = key === null ? 1 : callersPerKey;
      await Promise.all(Array.from({ length: same }, () => attemptUntilAnswered(entry)));
      if (restMs > 0) await sleep(restMs);
    }
  };
  const calling = Promise.all(Array.from({ length: callers }, call));
  // The error is reported to whoever waits for the load. Until then it must not end the process.
  calling.catch(() => {});

  return {
    failures,
    acknowledged: () => acknowledged,
    progress: (creates) =>
      Promise.race([
        new Promise<void>((resolve) => waiters.push({ at: acknowledged + creates, resolve })),
        calling.then(() => {}),
      ]),
    async finish() {
      isStopping = true;
      await calling;
      for (const { close } of calls) close();
      const entries = await journal.close();
      return {
        seed: random.seed,
        retried,
        ...(await holdAgainstDatabase(cluster, name, entries, options.mayLose)),
      };
    },
  };
}

async function attemptOnce(call: Call, { key, body }: Entry): Promise<Answer | string> {
  try {
    const answer = await call('createPaymentIntent', body, {
      door: doors[random.below(doors.length)] as Door,
      ...(key === null ? {} : { idempotencyKey: key }),
    });
    return answer.code === 'ok' ? answer : answer.code;
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException;
    return code ?? message;
  }
}

/** A code of the catalogue or the network: gRPC reports a broken connection as UNAVAILABLE, INTERNAL or CANCELLED. */
export function isTransient(failure: string): boolean {
  return /^(?:unavailable|UNAVAILABLE|INTERNAL|CANCELLED|UNKNOWN|E[A-Z]+|HPE_INVALID_EOF_STATE)$/.test(
    failure,
  );
}

function newBody(tag: string): Request {
  return {
    amount_units: 1 + random.below(maxUnits),
    chain: random.fraction() < 0.5 ? 'base' : 'polygon',
    expires_in_minutes: 5 + random.below(56),
    metadata: { tag },
  };
}

type JournalLine = [what: 'send' | 'ack', tag: string, ...rest: unknown[]];

interface Journal {
  /** Resolves when the line is on disk; concurrent lines are flushed together. */
  append(line: JournalLine): Promise<void>;
  /** All lines on disk. */
  close(): Promise<JournalLine[]>;
}

async function openJournal(path: string): Promise<Journal> {
  const file: FileHandle = await open(path, 'wx');
  let waiting: string[] = [];
  let next: Promise<void> | undefined;
  let last: Promise<void> = Promise.resolve();
  return {
    append(line) {
      waiting.push(`${JSON.stringify(line)}\n`);
      next ??= last = last.then(async () => {
        const lines = waiting;
        waiting = [];
        next = undefined;
        await file.appendFile(lines.join(''));
        await file.datasync();
      });
      return next;
    },
    async close() {
      await last;
      await file.close();
      const text = await readFile(path, 'utf8');
      return text
        .trimEnd()
        .split('\n')
        .filter((line) => line !== '')
        .map((line) => JSON.parse(line));
    },
  };
}

async function holdAgainstDatabase(
  cluster: Pick<Cluster, 'query'>,
  name: string,
  journal: JournalLine[],
  mayLose = false,
) {
  const rows = await cluster.query<{
    tag: string;
    key: string | null;
    id: string;
    amount: string;
    n: number;
  }>(
    `select metadata->>'tag' as tag, min(idempotency_key) as key, min(id::text) as id, min(amount_units) as amount,
            count(*)::int as n
       from payment_intents where metadata->>'tag' like $1 group by 1`,
    [`${name}-%`],
  );
  const found = new Map(rows.map((row) => [row.tag, row]));
  const sent = new Map(
    journal.flatMap(([what, tag, key, amount]) => (what === 'send' ? [[tag, { key, amount }]] : [])),
  );
  const answers = new Map<string, Set<string>>();
  let acknowledged = 0;
  for (const [what, tag, id, secret] of journal) {
    if (what !== 'ack') continue;
    acknowledged++;
    answers.set(tag, (answers.get(tag) ?? new Set()).add(`${id} ${secret}`));
  }
  const { formatIdentifier } = await import('../../../src/database/identifiers.ts');
  const lost = [...answers].filter(([tag, all]) => {
    const row = found.get(tag);
    const [only = ''] = all;
    return all.size !== 1 || row === undefined || only.split(' ')[0] !== formatIdentifier('pi', row.id);
  });
  const doubled = rows.filter(({ n }) => n > 1);
  const foreign = rows.filter(({ tag, key, amount }) => {
    const entry = sent.get(tag);
    return entry === undefined || entry.key !== key || Number(amount) !== entry.amount;
  });
  const expected = { lost: mayLose ? lost : [], doubled: [], foreign: [] };
  expect({ lost, doubled, foreign }).toEqual(expected);
  return { sent: sent.size, acknowledged, lost: lost.length, doubled: doubled.length };
}

/** A test's result in one line. */
export function report(figures: Figures, more: Record<string, unknown> = {}): void {
  const all = Object.entries({ ...figures, ...more }).map(([name, value]) => `${name} ${value}`);
  console.log(all.join(', '));
}
