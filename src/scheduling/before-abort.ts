/** Runs `start`, but rejects with the signal's reason once that aborts. Starts nothing if it already has. */
export function beforeAbort<T>(signal: AbortSignal, start: () => Promise<T>): Promise<T> {
  if (signal.aborted) return Promise.reject(signal.reason);
  return new Promise((resolve, reject) => {
    const abort = () => reject(signal.reason);
    signal.addEventListener('abort', abort, { once: true });
    start()
      .then(resolve, reject)
      .finally(() => signal.removeEventListener('abort', abort));
  });
}
