import { EventEmitter, on } from 'node:events';

export type ReadinessStatus = 'ready' | 'draining' | 'database_unreachable' | 'database_not_writable';

/** Milliseconds the database has to answer a probe. */
const probeTimeoutMs = 2_000;
/** How often the database is probed while somebody watches. */
const watchIntervalMs = 2_000;

export interface Readiness {
  /** Asks the database, unless the service is draining. Callers at the same time share one probe. */
  check(): Promise<ReadinessStatus>;
  /** The status now and each time it changes, until the signal aborts. However many watch, one probe serves all. */
  watch(signal: AbortSignal): AsyncIterable<ReadinessStatus>;
  isDraining(): boolean;
  /** From now on the service takes no new work: load balancers and clients are told. */
  drain(): void;
}

/**
 * Whether the service should be sent requests: its database stores intents, and it is not about to stop.
 * `probeDatabase` resolves with whether the database can be written, and throws if it does not answer.
 */
export function createReadiness(probeDatabase: () => Promise<boolean>): Readiness {
  const probes = new EventEmitter().setMaxListeners(0);
  let draining = false;
  /** Until the database answers or its connection is given up: one that hangs is not asked again meanwhile. */
  let probe: Promise<boolean> | undefined;
  let running: Promise<ReadinessStatus> | undefined;

  const become = (next: ReadinessStatus): ReadinessStatus => {
    const now = draining ? 'draining' : next;
    probes.emit('status', now);
    return now;
  };

  const check = (): Promise<ReadinessStatus> => {
    if (draining) return Promise.resolve('draining');
    probe ??= probeDatabase().finally(() => {
      probe = undefined;
    });
    running ??= withTimeout(probe, probeTimeoutMs)
      .then(
        (isWritable) => become(isWritable ? 'ready' : 'database_not_writable'),
        () => become('database_unreachable'),
      )
      .finally(() => {
        running = undefined;
      });
    return running;
  };

  let watchers = 0;
  let probing: NodeJS.Timeout | undefined;
  /** All watchers share one timer. Returns what to call when one of them goes. */
  const probeRegularly = () => {
    watchers++;
    probing ??= setInterval(() => void check(), watchIntervalMs).unref();
    return () => {
      watchers--;
      if (watchers > 0) return;
      clearInterval(probing);
      probing = undefined;
    };
  };

  return {
    check,
    async *watch(signal) {
      // Listening starts before the first result: a change between the two is not missed.
      const stream = on(probes, 'status', { signal });
      const stopProbing = probeRegularly();
      try {
        let last = await check();
        yield last;
        for await (const [next] of stream) {
          if (next === last) continue;
          last = next;
          yield last;
        }
      } catch (error) {
        if (!signal.aborted) throw error;
      } finally {
        stopProbing();
      }
    },
    isDraining: () => draining,
    drain() {
      draining = true;
      become('draining');
    },
  };
}

async function withTimeout<T>(work: Promise<T>, timeoutMs: number): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const timeout = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Error('timed out')), timeoutMs);
  });
  try {
    return await Promise.race([work, timeout]);
  } finally {
    clearTimeout(timer);
  }
}
