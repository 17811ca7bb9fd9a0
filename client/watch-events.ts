import type { ApiResource } from './api-resource.ts';
import type { PaymentIntentsError } from './error.ts';
import type { Event } from './event.ts';

/** Where to begin watching, and when to stop. */
export interface WatchEvents {
  /**
   * Where to go on: the last `position` that you have stored, or the id of the last event that you have handled. Leave
   * it out to begin now.
   */
  after?: string | undefined;
  /** Ends the watch, which throws the signal's reason. */
  signal?: AbortSignal | undefined;
  /** Called each time the stream is lost, before it is opened again; for your log. */
  onInterruption?: ((error: PaymentIntentsError) => void) | undefined;
}

/** A message of the stream. */
export interface WatchedEvent extends ApiResource {
  /** What has happened. Undefined in the first message of each stream, and about every 30 s while nothing happens. */
  event: Event | undefined;
  /** Store it once you have handled the event, also if there is none: `after` for the watch that goes on from here. */
  position: string;
}
