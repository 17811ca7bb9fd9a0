// Limits of every request, and the messages for exceeding them.

/** Largest request body or message, in bytes. */
export const maxBodyBytes = 64 * 1024;

/** The message for a request that arrives too slowly. */
export const requestIsLate = 'The request did not arrive in time. Send all of it at once.';

/** The message for an unknown expectation. */
export const expectationFailed =
  'The Expect header has an unsupported value. Send 100-continue or omit the header.';
