// Whom a request comes from, to count what has no accepted credential.

import ipaddr from 'ipaddr.js';

/**
 * Returns who sends a request, from the address of its connection and its `X-Forwarded-For`, as a name to count by. A
 * proxy in one of the trusted networks (in CIDR notation) is believed: the client is the last address in the header that
 * is not such a proxy's. An IPv6 client is its /64, within which it can choose any address.
 */
export type ClientAddress = (peer: string | undefined, forwardedFor: string | null) => string;

export function createClientAddress(trustedProxies: readonly string[]): ClientAddress {
  const trusted = trustedProxies.map((network) => ipaddr.parseCIDR(network));
  const isTrusted = (address: Address) =>
    trusted.some(
      ([network, bits]) => network.kind() === address.kind() && address.match([network, bits] as never),
    );
  return (peer, forwardedFor) => {
    let client = addressIn(peer ?? '');
    if (client === undefined) return 'unknown';
    for (const entry of (forwardedFor ?? '').split(',').reverse()) {
      if (!isTrusted(client)) break;
      const before = addressIn(entry.trim());
      if (before === undefined) break;
      client = before;
    }
    return nameOf(client);
  };
}

type Address = ipaddr.IPv4 | ipaddr.IPv6;

/** An IPv4 address that is mapped into IPv6 is an IPv4 address. */
function addressIn(text: string): Address | undefined {
  return ipaddr.isValid(text) ? ipaddr.process(text) : undefined;
}

function nameOf(address: Address): string {
  if (address.kind() === 'ipv4') return address.toString();
  const { parts } = address as ipaddr.IPv6;
  return `${parts
    .slice(0, 4)
    .map((part) => part.toString(16))
    .join(':')}::/64`;
}
