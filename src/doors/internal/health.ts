// grpc.health.v1.Health over Connect, which provides no health service for Node.

import { once } from 'node:events';
import { Code, ConnectError, type ConnectRouter } from '@connectrpc/connect';
import {
  Health,
  HealthCheckResponse_ServingStatus as ServingStatus,
} from '../../contract/gen/health/v1/health_pb.ts';
import { ServiceError } from '../../requests/errors.ts';
import { requestContextOf } from '../../requests/request-context.ts';
import type { Readiness, ReadinessStatus } from '../operations/readiness.ts';

/** Most concurrent health watches. Each is a long-lived stream of about 100 KB and needs no key. */
const maxHealthWatches = 256;

/** Registers the health of the server (service "") and of each service by its full name. */
export function registerHealth(router: ConnectRouter, readiness: Readiness, services: readonly string[]) {
  const known = new Set(['', ...services]);
  let watches = 0;
  router.service(Health, {
    async check({ service }) {
      if (!known.has(service)) throw new ConnectError('unknown service', Code.NotFound);
      return { status: servingStatus(await readiness.check()) };
    },
    async list() {
      const status = servingStatus(await readiness.check());
      return { statuses: Object.fromEntries([...known].map((service) => [service, { status }])) };
    },
    async *watch({ service }, { signal, values }) {
      if (watches >= maxHealthWatches) {
        throw new ServiceError('rate_limited', {
          message: 'Too many health checks are watched already. Call Check from time to time instead.',
        });
      }
      watches++;
      requestContextOf(values).stayOpen?.();
      try {
        if (known.has(service)) {
          for await (const status of readiness.watch(signal)) yield { status: servingStatus(status) };
        } else {
          // The protocol keeps such a watch open, because the service may be registered later.
          yield { status: ServingStatus.SERVICE_UNKNOWN };
          if (!signal.aborted) await once(signal, 'abort');
        }
      } finally {
        watches--;
      }
    },
  });
}

function servingStatus(status: ReadinessStatus): ServingStatus {
  return status === 'ready' ? ServingStatus.SERVING : ServingStatus.NOT_SERVING;
}
