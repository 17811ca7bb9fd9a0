// Which node reads a chain, and which one confirms. The first that is configured reads as long as it works; the reader moves
// to the next one when it fails, stands still or falls behind, and back when it has been well for long enough.

import type { Logger } from 'pino';
import type { Node } from './node.ts';

export interface NodeChoiceTimes {
  /** The reader moves if it has failed for so long. */
  failsMs: number;
  /** Or if it has had no new block for so long, and another one has. */
  standsStillMs: number;
  /** It moves back to a node before it that has been well for so long. */
  wellMs: number;
  /** How often the nodes that do not read are asked for their newest block. */
  probeEveryMs: number;
}

const defaultTimes: NodeChoiceTimes = {
  failsMs: 15_000,
  standsStillMs: 120_000,
  wellMs: 600_000,
  probeEveryMs: 15_000,
};
/** A node that has so many blocks less than another one is behind. */
const behindBlocks = 20;

const failing = 'it fails';

export interface NodeChoice {
  readonly reader: Node;
  /** Another node than the reader, if there is one. */
  readonly confirmer: Node;
  /** The place of the reader among the nodes, from 0. */
  readonly place: number;
  /** Notes the newest block of a node. */
  noteHead(node: Node, head: number): void;
  /** The reader has done a part of its work, or has failed to: it may answer some questions, and never the others. */
  noteWorked(): void;
  noteFailed(): void;
  /**
   * Decides who reads from now on. `isSame` finds out whether a node has the blocks that are held. Resolves with true if the
   * reader has moved. Never rejects.
   */
  decide(isSame: (node: Node) => Promise<boolean>): Promise<boolean>;
}

interface Health {
  node: Node;
  head: number;
  /** When it had another newest block than before. */
  movedAtMs: number;
  /** Since when it works and keeps up. */
  wellSinceMs: number | undefined;
  /** When it failed as the reader: what it says of its newest block is doubted for a while. */
  failedAtMs: number;
  probedAtMs: number;
}

export function createNodeChoice(
  nodes: readonly [Node, ...Node[]],
  logger: Logger,
  times: Partial<NodeChoiceTimes> = {},
): NodeChoice {
  const { failsMs, standsStillMs, wellMs, probeEveryMs } = { ...defaultTimes, ...times };
  const startedAtMs = performance.now();
  const health = nodes.map(
    (node): Health => ({
      node,
      head: 0,
      movedAtMs: startedAtMs,
      wellSinceMs: undefined,
      failedAtMs: Number.NEGATIVE_INFINITY,
      probedAtMs: Number.NEGATIVE_INFINITY,
    }),
  );
  let place = 0;
  /** Since when the reader has not done its work. */
  let stuckSinceMs: number | undefined;

  const noteHead = (node: Node, head: number): void => {
    const of = health.find((each) => each.node === node);
    if (of === undefined || head === of.head) return;
    of.head = head;
    of.movedAtMs = performance.now();
  };

  const isTrusted = ({ failedAtMs }: Health) => performance.now() - failedAtMs >= wellMs;

  /** Why a node is not to read; undefined if it may. */
  const problemOf = ({ node, head, movedAtMs }: Health): string | undefined => {
    const now = performance.now();
    const sinceMs = Math.min(node.failingSinceMs ?? now, node === nodes[place] ? (stuckSinceMs ?? now) : now);
    if (now - sinceMs >= failsMs) return failing;
    const best = Math.max(head, ...health.flatMap((other) => (isTrusted(other) ? [other.head] : [])));
    if (best - head >= behindBlocks) return `it is ${best - head} blocks behind another node`;
    return best > head && now - movedAtMs >= standsStillMs ? 'it stands still' : undefined;
  };

  /** Asks the nodes that do not read for their newest block; does not wait for them. */
  const probe = (): void => {
    const now = performance.now();
    for (const [i, of] of health.entries()) {
      if (i === place || now - of.probedAtMs < probeEveryMs) continue;
      of.probedAtMs = now;
      of.node.header('latest').then(
        (header) => header && noteHead(of.node, header.number),
        // It says itself since when it fails.
        () => {},
      );
    }
  };

  const noteHealth = (): void => {
    for (const of of health) {
      const isWell = of.node.failingSinceMs === undefined && of.head > 0 && problemOf(of) === undefined;
      of.wellSinceMs = isWell ? (of.wellSinceMs ?? performance.now()) : undefined;
    }
  };

  /** The places to try: those before the reader that have been well for long, and if it has a problem, those after it. */
  const placesToTry = (problem: string | undefined): number[] => {
    const now = performance.now();
    const isLongWell = ({ wellSinceMs }: Health) => now - (wellSinceMs ?? now) >= wellMs;
    const before = health.slice(0, place).flatMap((of, i) => (isLongWell(of) ? [i] : []));
    if (problem === undefined) return before;
    const others = health.map((_, i) => (place + 1 + i) % health.length).filter((i) => i !== place);
    const well = others.filter((i) => health[i]?.wellSinceMs !== undefined);
    return well.sort(
      (a, b) => Number(isTrusted(health[b] as Health)) - Number(isTrusted(health[a] as Health)),
    );
  };

  return {
    get reader() {
      return nodes[place] ?? nodes[0];
    },
    get confirmer() {
      const others = health.filter((_, i) => i !== place);
      const working = others.find((of) => problemOf(of) === undefined) ?? others[0];
      return working?.node ?? nodes[0];
    },
    get place() {
      return place;
    },
    noteHead,
    noteWorked() {
      stuckSinceMs = undefined;
    },
    noteFailed() {
      stuckSinceMs ??= performance.now();
    },
    async decide(isSame) {
      if (nodes.length === 1) return false;
      probe();
      const current = health[place] as Health;
      const problem = problemOf(current);
      if (problem === failing) current.failedAtMs = performance.now();
      noteHealth();
      for (const i of placesToTry(problem)) {
        const { node } = health[i] as Health;
        if (!(await isSame(node).catch(() => false))) continue;
        const from = current.node.name;
        place = i;
        stuckSinceMs = undefined;
        logger.warn(
          { from, to: node.name, reason: problem ?? 'the node before it is well again' },
          'another node reads the chain from now on',
        );
        return true;
      }
      return false;
    },
  };
}
