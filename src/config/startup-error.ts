/** A problem that stops the process and that its operator can fix. One line: the problem and the remedy. */
export class StartupError extends Error {
  constructor(message: string, options?: ErrorOptions) {
    super(message, options);
    this.name = 'StartupError';
  }
}
