// grpc.health.v1.Health over Connect, which has no health service of its own for Node.

import { Code, ConnectError, type ConnectRouter } from '@connectrpc/connect';
import { Health, HealthCheckResponse_ServingStatus as ServingStatus } from '../gen/health/v1/health_pb.ts';
import type { Readiness, ReadinessStatus } from './readiness.ts';

/** Registers the health of the server (service "") and of each service by its full name. */
export function registerHealth(
  router: ConnectRouter,
  readiness: Readiness,
  services: readonly string[],
): void {
  const known = new Set(['', ...services]);
  router.service(Health, {
    async check({ service }) {
      if (!known.has(service)) throw new ConnectError('unknown service', Code.NotFound);
      return { status: servingStatus(await readiness.check()) };
    },
    async list() {
      const status = servingStatus(await readiness.check());
      return { statuses: Object.fromEntries([...known].map((service) => [service, { status }])) };
    },
    async *watch({ service }, context) {
      if (!known.has(service)) {
        // The protocol keeps such a watch open, for the service may come.
        yield { status: ServingStatus.SERVICE_UNKNOWN };
        await aborted(context.signal);
        return;
      }
      for await (const status of readiness.watch(context.signal)) yield { status: servingStatus(status) };
    },
  });
}

function servingStatus(status: ReadinessStatus): ServingStatus {
  return status === 'ready' ? ServingStatus.SERVING : ServingStatus.NOT_SERVING;
}

function aborted(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) resolve();
    else signal.addEventListener('abort', () => resolve(), { once: true });
  });
}
