// A read may bring thousands of requests at once, and all sockets that are ready are read in one turn of the event
// loop. Begun as they come, they would keep every other client waiting for seconds.

/** Work begun in one turn of the event loop, in units of a plain request: some 3 ms of processor time. */
const unitsPerTurn = 64;
const unitMs = 3 / unitsPerTurn;
/**
 * Requests of all connections together that wait for their turn, of some 10 KB each. Above it a connection has its share
 * of them; the first request of each connection always waits, and connections have a limit of their own.
 */
const maxWaiting = 4_096;

/** What a request costs in units, measured roughly: refusing it where it is served by our own handlers, or by Connect's. */
export const cost = { plain: 1, throughConnect: 8 } as const;

interface Turn {
  units: number;
  begin(): void;
}

/** Begins requests at once while there are few, and otherwise turn by turn, one connection after the other. */
export class FairTurns {
  /** By connection, in the order in which they are served; each request in the order it came. The urgent ones first. */
  readonly #urgent = new Map<object, Turn[]>();
  readonly #others = new Map<object, Turn[]>();
  #waitingCount = 0;
  #spentUnits = 0;
  #isScheduled = false;

  /** True if this turn is over, or others wait for theirs: nothing may begin at once. */
  get isOver(): boolean {
    return this.#waitingCount > 0 || this.#spentUnits >= unitsPerTurn;
  }

  /** True if a request may begin at once, and then counts it. Otherwise it has to `wait`. */
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
   * Begins a request of the connection in a later turn; an urgent one before those that are not. Returns false, and will
   * not begin it, if too many wait and this connection has its share of them already; an urgent one always waits.
   */
  wait(connection: object, units: number, begin: () => void, isUrgent = false): boolean {
    const queue = isUrgent ? this.#urgent : this.#others;
    const own = queue.get(connection);
    if (this.#waitingCount >= maxWaiting && own !== undefined && !isUrgent) {
      if (own.length >= maxWaiting / queue.size) return false;
    }
    if (own === undefined) queue.set(connection, [{ units, begin }]);
    else own.push({ units, begin });
    this.#waitingCount++;
    return true;
  }

  /** The connection is closed: what of it still waits is not begun. */
  forget(connection: object): void {
    for (const queue of [this.#urgent, this.#others]) {
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
    this.#serve(this.#urgent);
    this.#serve(this.#others);
    if (this.#spentUnits > 0) this.#schedule();
  };

  #serve(queue: Map<object, Turn[]>): void {
    // A connection with more goes to the end, and so comes up again in this loop.
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
