// Payments by a signature: for each chain with a facilitator, its node, and what the facilitator supports.

import type { Logger } from 'pino';
import { createFacilitator } from '../authorizations/facilitator.ts';
import { createGasless, type Gasless } from '../authorizations/gasless.ts';
import type { ChainFacilitator, Config } from '../config/config.ts';
import type { ChainNodes } from '../config/rpc-urls.ts';
import { startRepeater } from '../scheduling/repeater.ts';
import { connectNode } from '../settlement/node.ts';
import type { PayMetrics } from '../telemetry/pay-metrics.ts';

const refreshEveryMs = 600_000;
const maxRetryMs = 60_000;

export interface RunningGasless extends Gasless {
  /** Adds a chain, such as a local one that has started. */
  add(nodes: ChainNodes, facilitator: ChainFacilitator): void;
  stop(): Promise<void>;
}

/** Only processes that answer requests ask facilitators. */
export function offerGasless(
  { chainNodes, facilitators, roles }: Config,
  metrics: PayMetrics,
  logger: Logger,
): RunningGasless {
  const gasless = createGasless(logger);
  const add: RunningGasless['add'] = ({ urls: [url], ...settings }, { url: facilitatorUrl, token }) => {
    const { mode, chain, chainId, tokens } = settings;
    metrics.begin(mode, chain);
    const node = connectNode({ url, chainId, tokens });
    gasless.add({ settings, node, facilitator: createFacilitator({ url: facilitatorUrl, token }) });
  };
  for (const facilitator of roles.has('api') ? facilitators : []) {
    const nodes = chainNodes.find(({ chainId }) => chainId === facilitator.chainId);
    if (nodes !== undefined) add(nodes, facilitator);
  }
  const refreshing = startRepeater({
    name: 'facilitators',
    work: () => gasless.refresh(),
    intervalMs: refreshEveryMs,
    maxRetryMs,
    logger,
  });
  return {
    on: gasless.on,
    add(nodes, facilitator) {
      add(nodes, facilitator);
      refreshing.wake();
    },
    stop: refreshing.stop,
  };
}
