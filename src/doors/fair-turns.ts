// Limits the work started in one turn of the event loop. One read can bring thousands of requests, and one turn reads
// all ready sockets. If every request began on arrival, all other clients would wait for seconds.

/** Work started in one turn of the event loop, in units of a plain request: about 3 ms of processor time. */
const unitsPerTurn = 64;
const unitMs = 3 / unitsPerTurn;
/**
 * Most waiting requests of all connections, about 10 KB each. Above it each connection may only have its share. A
 * connection's first request always waits; the number of connections has its own limit.
 */
const maxWaiting = 4_096;

/** The cost of a request in units, measured roughly by refusing it in our own handlers or in Connect's. */
export const cost = { plain: 1, throughConnect: 8 } as const;

interface Turn {
  units: number;
  begin(): void;
}

/** Starts requests at once while there are few. Otherwise it starts them turn by turn, one connection after the other. */
export class FairTurns {
  /** By connection, round-robin; within a connection, in order of arrival. Strangers come last. */
  readonly #others = new Map<object, Turn[]>();
  readonly #strangers = new Map<object, Turn[]>();
  #waitingCount = 0;
  #spentUnits = 0;
  #isScheduled = false;

  /** True if this turn is over or other requests are waiting. Nothing may start at once then. */
  get isOver(): boolean {
    return this.#waitingCount > 0 || this.#spentUnits >= unitsPerTurn;
  }

  /** Returns true and counts the request if it may start at once. Otherwise it has to `wait`. */
  take(units: number): boolean {
    if (this.isOver) return false;
    this.#spend(units);
    return true;
  }

  /** Counts work of this turn that took longer than expected. */
  charge(milliseconds: number): void {
    this.#spend(milliseconds / unitMs);
  }

  /**
   * Queues a request for a later turn. Strangers are served after all others. Returns false, and does not queue it, if
   * too many requests wait and this stranger's connection has its share already.
   */
  wait(connection: object, units: number, begin: () => void, isStranger = true): boolean {
    const queue = isStranger ? this.#strangers : this.#others;
    const own = queue.get(connection);
    if (this.#waitingCount >= maxWaiting && own !== undefined && isStranger) {
      if (own.length >= maxWaiting / queue.size) return false;
    }
    if (own === undefined) queue.set(connection, [{ units, begin }]);
    else own.push({ units, begin });
    this.#waitingCount++;
    return true;
  }

  /** The connection is closed: its waiting requests are dropped. */
  forget(connection: object): void {
    for (const queue of [this.#others, this.#strangers]) {
      this.#waitingCount -= queue.get(connection)?.length ?? 0;
      queue.delete(connection);
    }
  }

  #spend(units: number): void {
    this.#spentUnits += units;
    this.#schedule();
  }

  #schedule(): void {
    if (this.#isScheduled) return;
    this.#isScheduled = true;
    setImmediate(this.#nextTurn);
  }

  readonly #nextTurn = (): void => {
    this.#isScheduled = false;
    this.#spentUnits = 0;
    this.#serve(this.#others);
    this.#serve(this.#strangers);
    if (this.#spentUnits > 0) this.#schedule();
  };

  #serve(queue: Map<object, Turn[]>): void {
    // A connection with more requests moves to the end of the map, so this loop reaches it again.
    for (const [connection, own] of queue) {
      if (this.#spentUnits >= unitsPerTurn) return;
      const next = own.shift();
      queue.delete(connection);
      if (own.length > 0) queue.set(connection, own);
      if (next === undefined) continue;
      this.#waitingCount--;
      this.#spentUnits += next.units;
      next.begin();
    }
  }
}
