/** Why a checkout could not be retrieved. It holds no secret. */
export class CheckoutError extends Error {
  /**
   * - A code of the service, such as `client_secret_invalid`, `rate_limited` or `unavailable`. Codes may be added;
   * - `network`: no answer came;
   * - `unexpected_answer`: something other than the service answered, such as a proxy, or a server at a wrong `baseUrl`.
   */
  readonly code: string;
  /** Finds the request in the service's logs; undefined if the service did not answer. */
  readonly requestId: string | undefined;
  /** HTTP status of the answer; undefined if none came. */
  readonly httpStatus: number | undefined;

  constructor(
    code: string,
    message: string,
    options: { requestId?: string | undefined; httpStatus?: number | undefined; cause?: unknown } = {},
  ) {
    super(message, options.cause === undefined ? undefined : { cause: options.cause });
    this.name = 'CheckoutError';
    this.code = code;
    this.requestId = options.requestId;
    this.httpStatus = options.httpStatus;
  }
}
