// Chooses the node that reads a chain (the reader) and the one that confirms. The first configured node is
// the reader while it works. The reader moves to the next node if it fails, stalls or falls behind, and back
// once an earlier node has been healthy for long enough.

import type { Logger } from 'pino';
import type { Node } from './node.ts';

const defaultTimes = {
  /** Moves the reader after it has failed for this long. */
  failsMs: 15_000,
  /** Moves the reader if it has no new block for this long and another node has. */
  standsStillMs: 120_000,
  /** Moves the reader back to an earlier node that has been healthy for this long. */
  healthyMs: 600_000,
  /** A node that is this many blocks below another one is behind. */
  behindBlocks: 20,
  /** How often the other nodes are asked for their newest block. */
  probeEveryMs: 15_000,
};

export type NodeChoiceTimes = typeof defaultTimes;

const failing = 'failing';

interface Health {
  node: Node;
  head: number;
  /** When its newest block last changed. */
  movedAtMs: number;
  /** Since when the node has worked and kept up. */
  healthySinceMs: number | undefined;
  /** When it last failed as the reader. Its newest block is not trusted for a while after that. */
  failedAtMs: number;
  /** When it last could not answer for an old block. */
  unableAtMs: number;
  /** When the probe or the watcher last asked for its newest block. */
  askedAtMs: number;
}

function unknownHealth(node: Node): Health {
  return {
    node,
    head: 0,
    movedAtMs: performance.now(),
    healthySinceMs: undefined,
    failedAtMs: Number.NEGATIVE_INFINITY,
    unableAtMs: Number.NEGATIVE_INFINITY,
    askedAtMs: Number.NEGATIVE_INFINITY,
  };
}

function noteHead(of: Health, head: number): void {
  of.askedAtMs = performance.now();
  if (head !== of.head) of.movedAtMs = of.askedAtMs;
  of.head = head;
}

/** Asks nodes for their newest block, without awaiting the answers. The watcher asks the reader itself. */
function probe(health: readonly Health[], everyMs: number): void {
  for (const of of health) {
    if (performance.now() - of.askedAtMs < everyMs) continue;
    of.askedAtMs = performance.now();
    // The node tracks its own failures.
    of.node.header('latest').then(
      (header) => header && noteHead(of, header.number),
      () => {},
    );
  }
}

/** Prefers a node that has answered, also for old blocks. One that began with no requests left has not. */
function bestConfirmer(others: readonly Health[], isWorking: (of: Health) => boolean, restMs: number) {
  const working = others.filter(isWorking);
  const answering = working.filter(({ head }) => head > 0);
  const able = answering.filter(({ unableAtMs }) => performance.now() - unableAtMs >= restMs);
  return [...able, ...answering, ...working, ...others][0];
}

export function createNodeChoice(
  nodes: readonly [Node, ...Node[]],
  logger: Logger,
  times: Partial<NodeChoiceTimes> = {},
) {
  const { failsMs, standsStillMs, healthyMs, behindBlocks, probeEveryMs } = { ...defaultTimes, ...times };
  const health = nodes.map(unknownHealth);
  let place = 0;
  /** Since when the reader has failed to finish a pass. */
  let stuckSinceMs: number | undefined;

  const isTrusted = ({ failedAtMs }: Health) => performance.now() - failedAtMs >= healthyMs;

  /** Returns why a node must not be the reader, or undefined. */
  const problemOf = ({ node, head, movedAtMs }: Health): string | undefined => {
    const now = performance.now();
    const sinceMs = Math.min(node.failingSinceMs ?? now, node === nodes[place] ? (stuckSinceMs ?? now) : now);
    if (now - sinceMs >= failsMs) return failing;
    // A node that has not answered yet is not behind.
    const others = head === 0 ? [] : health.filter(isTrusted);
    const best = Math.max(head, ...others.map((other) => other.head));
    if (best - head >= behindBlocks) return `${best - head} blocks behind another node`;
    return best > head && now - movedAtMs >= standsStillMs ? 'no new block' : undefined;
  };

  const noteHealth = (): void => {
    for (const of of health) {
      const isHealthy = of.node.failingSinceMs === undefined && of.head > 0 && problemOf(of) === undefined;
      of.healthySinceMs = isHealthy ? (of.healthySinceMs ?? performance.now()) : undefined;
    }
  };

  /** The nodes to try: any healthy one if the reader has a problem, else earlier ones, healthy for long. */
  const placesToTry = (problem: string | undefined): number[] => {
    const now = performance.now();
    const isLongHealthy = ({ healthySinceMs }: Health) => now - (healthySinceMs ?? now) >= healthyMs;
    const before = health.slice(0, place).flatMap((of, i) => (isLongHealthy(of) ? [i] : []));
    if (problem === undefined) return before;
    const others = health.map((_, i) => (place + 1 + i) % health.length).filter((i) => i !== place);
    const healthy = others.filter((i) => health[i]?.healthySinceMs !== undefined);
    const trust = (i: number) => Number(isTrusted(health[i] as Health));
    return healthy.sort((a, b) => trust(b) - trust(a));
  };

  return {
    get reader() {
      return nodes[place] ?? nodes[0];
    },
    /** A node other than the reader, if there is one. */
    get confirmer() {
      const others = health.filter((_, i) => i !== place);
      const best = bestConfirmer(others, (of) => problemOf(of) === undefined, healthyMs);
      return best?.node ?? nodes[0];
    },
    /** The index of the reader among the nodes. */
    get place() {
      return place;
    },
    noteHead(node: Node, head: number) {
      for (const of of health) if (of.node === node) noteHead(of, head);
    },
    /** Notes that the reader finished or failed a pass: a node may answer some requests and never others. */
    noteWorked() {
      stuckSinceMs = undefined;
    },
    noteFailed() {
      stuckSinceMs ??= performance.now();
    },
    /** Notes that a node could not answer for an old block. For a while another node confirms, if any. */
    noteUnable(node: Node) {
      for (const of of health) if (of.node === node) of.unableAtMs = performance.now();
    },
    /** Chooses the reader; true if it moved. `isSame` checks a node for the recorded blocks. Never rejects. */
    async decide(isSame: (node: Node) => Promise<boolean>): Promise<boolean> {
      if (nodes.length === 1) return false;
      probe(health, probeEveryMs);
      const current = health[place] as Health;
      const problem = problemOf(current);
      if (problem === failing) current.failedAtMs = performance.now();
      noteHealth();
      for (const i of placesToTry(problem)) {
        const { node } = health[i] as Health;
        if (!(await isSame(node).catch(() => false))) continue;
        place = i;
        stuckSinceMs = undefined;
        logger.warn(
          { from: current.node.name, to: node.name, reason: problem ?? 'an earlier node has recovered' },
          'switched to another node to read the chain',
        );
        return true;
      }
      return false;
    },
  };
}
