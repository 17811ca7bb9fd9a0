import type { Event } from '../contract/gen/payments/v1/event_pb.ts';
import type { GetEventRequest } from '../contract/gen/payments/v1/event_service_pb.ts';
import { parseIdentifier } from '../database/identifiers.ts';
import { ServiceError } from '../requests/errors.ts';
import type { Method } from '../requests/method.ts';
import { toEvent } from './event.ts';
import type { EventReader } from './read-events.ts';

/** `GetEvent`. */
export function getEvent(reader: EventReader): Method<GetEventRequest, Event> {
  return {
    ratePolicy: 'reads',
    async run(request, identity) {
      const uuid = parseIdentifier('evt', request.id);
      const row = uuid === undefined ? undefined : await reader.find(uuid, identity);
      if (row === undefined) throw new ServiceError('resource_missing');
      return toEvent(row);
    },
  };
}
