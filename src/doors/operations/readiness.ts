import { EventEmitter, on } from 'node:events';

export type ReadinessStatus = 'ready' | 'draining' | 'database_unreachable' | 'database_not_writable';

const probeTimeoutMs = 2_000;
/** How often the database is probed while there are watchers. */
const watchIntervalMs = 2_000;

export type Readiness = ReturnType<typeof createReadiness>;

/**
 * Reports whether the service should receive requests: its database commits, and it is not draining.
 * `probeDatabase` resolves to whether the database is writable, and rejects if it does not answer. Once
 * writable, it counts as unreachable only after `toleratedMs` of failures: a failover takes some seconds.
 */
export function createReadiness(probeDatabase: () => Promise<boolean>, toleratedMs = 0) {
  const probes = new EventEmitter().setMaxListeners(0);
  let draining = false;
  let wasReady = false;
  /** When the last probe began. */
  let probedAtMs = 0;
  /** When the first probe that has failed since the last answer began. */
  let failingSinceMs: number | undefined;
  /** Set until the database answers or the connection is given up: a hanging database is not probed again. */
  let probe: Promise<boolean> | undefined;
  let running: Promise<ReadinessStatus> | undefined;

  const become = (next: ReadinessStatus): ReadinessStatus => {
    const now = draining ? 'draining' : next;
    probes.emit('status', now);
    return now;
  };

  /** Probes the database, unless the service is draining. Concurrent callers share one probe. */
  const check = (): Promise<ReadinessStatus> => {
    if (draining) return Promise.resolve('draining');
    if (probe === undefined) {
      probedAtMs = performance.now();
      probe = probeDatabase()
        .then((isWritable) => {
          failingSinceMs = undefined;
          return isWritable;
        })
        .finally(() => (probe = undefined));
    }
    const late = () => new Promise<never>((_, reject) => setTimeout(reject, probeTimeoutMs).unref());
    running ??= Promise.race([probe, late()])
      .then(
        (isWritable) => {
          wasReady ||= isWritable;
          return become(isWritable ? 'ready' : 'database_not_writable');
        },
        () => {
          failingSinceMs ??= probedAtMs;
          const isTolerated = wasReady && performance.now() - failingSinceMs < toleratedMs;
          return become(isTolerated ? 'ready' : 'database_unreachable');
        },
      )
      .finally(() => (running = undefined));
    return running;
  };

  let probing: NodeJS.Timeout | undefined;
  /** All watchers share one timer, which ends when none is left. */
  const probeWhileWatched = () => {
    if (probes.listenerCount('status') > 0) void check();
    else {
      clearInterval(probing);
      probing = undefined;
    }
  };

  return {
    check,
    /** Yields the current status and each change, until the signal aborts. One probe serves all watchers. */
    async *watch(signal: AbortSignal): AsyncIterable<ReadinessStatus> {
      // Listens before the first result, so that no change in between is missed.
      const stream = on(probes, 'status', { signal });
      probing ??= setInterval(probeWhileWatched, watchIntervalMs).unref();
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
      }
    },
    isDraining: () => draining,
    /** Reports `draining` from now on, so that load balancers and clients send no new work. */
    drain() {
      draining = true;
      become('draining');
    },
  };
}
