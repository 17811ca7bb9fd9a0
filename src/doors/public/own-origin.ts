import type { NodeRequest } from '../node-headers.ts';

/**
 * True if the origin is that of a page of this port on this machine: its scheme, its port, and `localhost`,
 * `127.0.0.1` or the address that the connection was made to. A comparison with the `Host` header would let
 * any origin match by DNS rebinding.
 */
export function isOwnOrigin(origin: string, { socket }: NodeRequest, scheme: 'http' | 'https'): boolean {
  const { localAddress = '', localPort } = socket;
  const address = localAddress.replace(/^::ffff:(?=[\d.]+$)/, '');
  const hosts = ['localhost', '127.0.0.1', address.includes(':') ? `[${address}]` : address];
  // Origins omit the default port of their scheme.
  const isDefaultPort = localPort === (scheme === 'http' ? 80 : 443);
  const port = isDefaultPort ? '' : `:${localPort}`;
  return hosts.some((host) => origin === `${scheme}://${host}${port}`);
}
