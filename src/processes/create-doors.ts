// Creates the doors of the ports from the service's parts.

import type { Logger } from 'pino';
import type { Config } from '../config/config.ts';
import { file_google_rpc_error_details } from '../contract/gen/google/rpc/error_details_pb.ts';
import { Health } from '../contract/gen/health/v1/health_pb.ts';
import type { ChainName } from '../contract/words.ts';
import { createConsoleDoor } from '../doors/console/console-door.ts';
import { registerHealth } from '../doors/internal/health.ts';
import { createInternalDoor } from '../doors/internal/internal-door.ts';
import { registerReflection } from '../doors/internal/reflection.ts';
import { createOperationsDoor } from '../doors/operations/operations-door.ts';
import { createPayDoor } from '../doors/public/pay-door.ts';
import { createPublicDoor } from '../doors/public/public-door.ts';
import { loadCheckoutPage, loadConsolePages, loadDocumentation } from '../doors/public/sites.ts';
import type { Strangers } from '../doors/strangers.ts';
import { createTestWallet } from '../embedded/test-wallet-door.ts';
import type { Core } from './core.ts';
import type { Database } from './open-database.ts';
import type { Telemetry } from './start-telemetry.ts';

interface DoorSettings {
  config: Config;
  limits: Config['limits'];
  logger: Logger;
  database: Database;
  localChains: readonly ChainName[];
}

/** Creates the doors. Nothing listens yet. */
export async function createDoors(
  { services, takeFromLimit, admitPayer, payCheckout, readiness, forConsole }: Core,
  { onEnd, tracing, metrics }: Telemetry,
  strangers: Record<'doors' | 'console', Strangers>,
  shutdownSignal: AbortSignal,
  { config, limits: { requestTimeoutMs }, logger, database, localChains }: DoorSettings,
) {
  const { publicUrl, trustedProxies } = config;
  const scheme = config.tls ? 'https' : 'http';
  // Only on a developer's own machine and without TLS: the page is at http://localhost or http://127.0.0.1.
  const allowsTryIt = database.embedded && scheme === 'http';
  const sites = await Promise.all([loadDocumentation(allowsTryIt, publicUrl), loadCheckoutPage(localChains)]);
  if (config.chainNodes.some(({ facilitator }) => facilitator) || localChains.length > 0) {
    sites.push(createPayDoor({ admit: admitPayer, pay: payCheckout, publicUrl }));
  }
  if (localChains.length > 0) {
    const wallet = { em: database.orm.em, dataDir: config.dataDir, chains: localChains, payCheckout };
    sites.push(createTestWallet({ ...wallet, admit: admitPayer }));
  }
  const { isDraining } = readiness;
  const shared = { takeFromLimit, onEnd, requestTimeoutMs };
  const common = { ...shared, services, strangers: strangers.doors, logger, tracing };
  return {
    scheme,
    public: createPublicDoor({ ...common, isDraining, trustedProxies, scheme, sites, allowsTryIt }),
    internal: createInternalDoor({
      ...common,
      openRoutes: (router) => {
        const contract = services.map(({ desc }) => desc);
        const names = contract.map(({ typeName }) => typeName);
        registerHealth(router, readiness, names);
        registerReflection(router, [...contract, Health], [file_google_rpc_error_details]);
      },
      shutdownSignal,
    }),
    operations: createOperationsDoor(readiness, metrics),
    console:
      config.console &&
      createConsoleDoor({
        ...forConsole,
        ...shared,
        isDraining,
        scheme,
        origin: config.console.origin,
        pages: await loadConsolePages(),
        strangers: strangers.console,
      }),
  } as const;
}
