// Checks the arguments of every function before anything is done. The messages never show a secret.

/** Returns the address of the service without a slash at its end. Throws a TypeError. */
export function readBaseUrl(baseUrl: unknown): string {
  const url = typeof baseUrl === 'string' ? parseHttpUrl(baseUrl) : undefined;
  if (url === undefined) {
    throw new TypeError('baseUrl must be the address of the payment service, such as "https://pay.example"');
  }
  if (url.search !== '' || url.hash !== '' || url.username !== '' || url.password !== '') {
    throw new TypeError('baseUrl must have no query, no fragment, no user name and no password');
  }
  return url.origin + url.pathname.replace(/\/+$/, '');
}

/** Returns the client secret. Throws a TypeError. */
export function readClientSecret(secret: unknown): string {
  if (typeof secret === 'string') {
    if (/^pi_[0-7][0-9a-hjkmnp-tv-z]{25}_secret_[\w-]+$/.test(secret)) return secret;
    if (secret.trim().startsWith('sk_')) {
      throw new TypeError(
        'clientSecret is an API key (sk_…). An API key never belongs in a browser: revoke this one, and let your backend send only the client_secret of the intent',
      );
    }
  }
  throw new TypeError(
    'clientSecret must be the client_secret of a payment intent, pi_…_secret_…, as your backend got it from the service',
  );
}

/** Returns the address to return to. Default: the current page, without its fragment. Throws a TypeError. */
export function readReturnUrl(returnUrl: unknown): string {
  if (returnUrl === undefined) return location.href.split('#', 1)[0] as string;
  const url = typeof returnUrl === 'string' ? parseHttpUrl(returnUrl, location.href) : undefined;
  if (url === undefined) {
    throw new TypeError('returnUrl must be an address of your shop, such as "https://shop.example/order"');
  }
  return url.href;
}

/** Not `URL.parse`, which browsers of 2023 do not have. */
export function parseHttpUrl(text: string, base?: string): URL | undefined {
  try {
    const url = new URL(text, base);
    return /^https?:$/.test(url.protocol) ? url : undefined;
  } catch {
    return undefined;
  }
}
