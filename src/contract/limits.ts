// Limits of every request, and what is said to whoever exceeds them.

/** Largest request body or message, in bytes. */
export const maxBodyBytes = 64 * 1024;

/** Said to whoever sends a request too slowly. */
export const requestIsLate = 'The request did not arrive in time. Send all of it at once.';

/** Said to whoever expects what is not known here. */
export const expectationFailed =
  'The Expect header asks for something that is not known here. Send 100-continue or none.';
