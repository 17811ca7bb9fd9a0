import type { EntityManager } from '@mikro-orm/postgresql';
import { EventService } from '../contract/gen/payments/v1/event_service_pb.ts';
import { type ImplementedService, implementService } from '../requests/method.ts';
import type { Identity } from '../requests/request-context.ts';
import { createEventCursors } from './event-cursor.ts';
import type { EventFeed } from './event-feed.ts';
import { getEvent, listEvents } from './list-events.ts';
import { createEventReader } from './read-events.ts';
import { watchEvents } from './watch-events.ts';

/** `payments.v1.EventService`. */
export function createEventService(em: EntityManager, feed: EventFeed): ImplementedService<Identity> {
  const reader = createEventReader(em);
  const cursors = createEventCursors(em);
  return implementService(EventService, {
    getEvent: getEvent(reader),
    listEvents: listEvents(reader, cursors),
    watchEvents: watchEvents(reader, cursors, feed),
  });
}
