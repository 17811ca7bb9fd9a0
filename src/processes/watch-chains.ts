// Starts a watcher for each chain that has nodes, with its metrics and log lines.

import type { EntityManager } from '@mikro-orm/postgresql';
import type { Logger } from 'pino';
import type { ChainNodes } from '../config/config.ts';
import { StartupError } from '../config/startup-error.ts';
import { eventTypes } from '../contract/event-types.ts';
import { formatIdentifier } from '../database/identifiers.ts';
import { createPreparedStatements } from '../database/prepared.ts';
import { type Repeater, startRepeater } from '../scheduling/repeater.ts';
import type { Change } from '../settlement/ledger/context.ts';
import { createLedger } from '../settlement/ledger/ledger.ts';
import { measureReceived, measureRefunds, measureUnattributed } from '../settlement/measures.ts';
import { Node } from '../settlement/node.ts';
import { NodeError, nodeFaults } from '../settlement/node-answers.ts';
import { Watcher } from '../settlement/watcher.ts';
import type { ChainMetrics } from '../telemetry/chain-metrics.ts';
import type { Metrics } from '../telemetry/metrics.ts';
import { repeat } from './background.ts';

/** If many blocks are new by then, they are read together. */
const followEveryMs = 2_000;
const verifyEveryMs = 30_000;
/** Longest pause while a node does not answer. */
const maxRetryMs = 5_000;
const measureEveryMs = 10_000;
/** Reads all transfers of the day, so it is rare. */
const measureReceivedEveryMs = 60_000;
/** The start waits this long for the chain id of a node. Later, its watcher checks it. */
const chainCheckMs = 3_000;

interface WatchOptions {
  nodes: readonly ChainNodes[];
  metrics: Metrics;
  logger: Logger;
  onEvent: () => void;
  unattributedMinUnits: bigint;
  /** The process gives up a statement after this time. */
  databaseTimeoutMs: number;
  /** The polling interval of a local chain, which has a block per second while it is used. */
  pollMs?: number | undefined;
}

/** Starts the watchers. Throws StartupError, naming the variable, if a node is on another chain. */
export async function watchChains(em: EntityManager, options: WatchOptions) {
  const watched = options.nodes.map((nodes) => watchedChainOf(nodes, options));
  await Promise.all(watched.map(({ assertChains }) => assertChains()));
  const running = watched.map(({ start }) => start(em));
  const { run } = createPreparedStatements(em);
  const { metrics } = options;
  const measuring = repeat(options, 'unattributed transfers and refunds', measureEveryMs, async () => {
    metrics.unattributed(await measureUnattributed(run));
    metrics.refunds(await measureRefunds(run));
  });
  const measuringReceived = repeat(options, 'received today', measureReceivedEveryMs, async () =>
    metrics.received(await measureReceived(run)),
  );
  return {
    /** Resolves when the current block is committed and the leases are released. */
    async stop() {
      await Promise.all([measuring.stop(), measuringReceived.stop(), ...running.map((stop) => stop())]);
    },
  };
}

function watchedChainOf(
  { urls, ...settings }: ChainNodes,
  { metrics, logger: parent, onEvent, unattributedMinUnits, databaseTimeoutMs, pollMs }: WatchOptions,
) {
  const { mode, chain, rpcVariable } = settings;
  const logger = parent.child({ mode, chain });
  const chainMetrics = metrics.chain(mode, chain, {
    blockTimeMs: settings.blockTimeMs,
    faults: nodeFaults,
    // Expiry has a metric of its own.
    events: eventTypes.filter((type) => !/^webhook_endpoint\.|\.expired$/.test(type)),
  });
  const { chainId, tokens } = settings;
  const observer = { onFault: chainMetrics.nodeFault, onRequest: chainMetrics.nodeRequest };
  const nodes = urls.map((url) => new Node({ url, chainId, tokens, ...observer })) as [Node, ...Node[]];

  const start = (em: EntityManager): (() => Promise<void>) => {
    const ledger = createLedger(em, {
      settings,
      onChanges: (changes) => {
        onEvent();
        for (const change of changes) report(change, chainMetrics, logger);
      },
      logger,
      onSettled: chainMetrics.settled,
      onFailed: chainMetrics.failed,
      unattributedMinUnits,
      times: { databaseTimeoutMs },
    });
    const watcher = new Watcher({
      settings,
      nodes,
      ledger,
      logger,
      observer: {
        ...chainMetrics,
        expiry(expiry) {
          chainMetrics.expiry(expiry);
          if (expiry.expired > 0) onEvent();
        },
      },
    });
    const following = startRepeater({
      name: `watching ${mode} ${chain}`,
      work: () => watcher.follow(),
      intervalMs: pollMs ?? followEveryMs,
      maxRetryMs,
      logger,
    });
    const verifying: Repeater = startRepeater({
      name: `verify ${mode} ${chain}`,
      work: () => watcher.verify(),
      intervalMs: verifyEveryMs,
      maxRetryMs: verifyEveryMs,
      logger,
    });
    return async () => {
      await Promise.all([following.stop(), verifying.stop()]);
      // An unreachable database must not end the requests that wait for it.
      await watcher.release().catch((reason) => {
        logger.warn({ err: reason }, 'could not release the lease of the chain: it ends by itself');
      });
    };
  };
  return { assertChains: () => assertChains(nodes, rpcVariable, logger), start };
}

/** Checks the chains of the nodes that answer in time. Throws StartupError for a node on another chain. */
async function assertChains(nodes: readonly Node[], variable: string, logger: Logger): Promise<void> {
  const answers = nodes.map((node) => node.assertChain().catch((reason) => reason));
  const isLate = new Promise((resolve) => setTimeout(resolve, chainCheckMs).unref());
  for (const [i, answer] of answers.entries()) {
    const late = isLate.then(
      () => new NodeError('late', `${nodes[i]?.name} has not answered within ${chainCheckMs / 1_000} s`),
    );
    const reason = await Promise.race([answer, late]);
    if (reason instanceof NodeError && reason.fault === 'another_chain') {
      throw new StartupError(`${variable} is not usable: ${reason.message}`, { cause: reason });
    }
    if (reason instanceof NodeError) {
      logger.warn({ node: nodes[i]?.name, variable }, `${reason.message}; it is asked again`);
    }
  }
}

/** Logs one line for each change of an intent or a refund, and for the unattributed transfers of a block. */
function report(
  { merchantId, event, paymentIntent, refund, transfer, mayBeLeftOut = false }: Change,
  metrics: ChainMetrics,
  logger: Logger,
) {
  const { status, labels = [] } = paymentIntent ?? refund ?? {};
  // Later payments of the same intent are no news.
  const isFoundLate =
    !mayBeLeftOut &&
    event === 'payment_intent.late_payment' &&
    paymentIntent?.newLabels.includes('found_late') === true;
  const isLost = event === 'payment_intent.reorged' && labels.includes('reorged');
  metrics.change(event, { isFoundLate, isLost });
  const needsOperator = event === 'refund.unexpected' || isFoundLate || isLost;
  logger[needsOperator ? 'error' : 'info'](
    {
      ...(paymentIntent && { payment_intent: formatIdentifier('pi', paymentIntent.id) }),
      ...(refund && { refund: formatIdentifier('rf', refund.id) }),
      merchant_id: formatIdentifier('mer', merchantId),
      event,
      ...(status && { status }),
      ...(labels.length > 0 && { labels }),
      ...(transfer && {
        transfer: formatIdentifier('tr', transfer.id),
        transaction_hash: `0x${transfer.transactionHash}`,
        amount_units: Number(transfer.amountUnits),
        transfers: transfer.count,
      }),
    },
    messageOf(needsOperator, paymentIntent, refund),
  );
}

function messageOf(needsOperator: boolean, intent: unknown, refund: unknown): string {
  if (refund !== undefined) {
    return needsOperator ? 'check this refund by hand' : 'a refund was changed by the chain';
  }
  if (intent === undefined) return 'a block has unattributed transfers; this is the largest';
  return needsOperator ? 'check this payment intent by hand' : 'a payment intent was changed by the chain';
}
