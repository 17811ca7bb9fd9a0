import type { PaymentIntentsError } from './error.ts';

export type { WatchEventsResponse as WatchedEvent } from './gen/resources.ts';

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
