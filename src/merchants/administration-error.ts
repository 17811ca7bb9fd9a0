/** The operator asked for something that cannot be done; the message says what to do. */
export class AdministrationError extends Error {}
