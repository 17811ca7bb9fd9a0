// Identifies the client of a request by address, to count requests without an accepted credential.

import ipaddr from 'ipaddr.js';

/**
 * Returns the name under which a request is counted, from its connection's address and its `X-Forwarded-For`.
 * If the peer is in a trusted network (CIDR notation), the client is the last address in the header that is
 * not in one. An IPv6 client is named by its /64, within which it can choose any address.
 */
type ClientAddress = (peer: string | undefined, forwardedFor: string | null) => string;

export function createClientAddress(trustedProxies: readonly string[]): ClientAddress {
  const trusted = trustedProxies.map((network): [Address, number] => {
    const [address, bits] = ipaddr.parseCIDR(network);
    const isMapped = address instanceof ipaddr.IPv6 && address.isIPv4MappedAddress() && bits >= 96;
    return isMapped ? [address.toIPv4Address(), bits - 96] : [address, bits];
  });
  const isTrusted = (address: Address) => ipaddr.subnetMatch(address, { trusted }, 'other') === 'trusted';
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

/** Converts IPv4-mapped IPv6 addresses to IPv4. Drops the port that some proxies add. */
function addressIn(text: string): Address | undefined {
  const address = text.replace(/^(?:\[(.+)\]|(\d+(?:\.\d+){3}))(?::\d+)?$/, '$1$2');
  return ipaddr.isValid(address) ? ipaddr.process(address) : undefined;
}

function nameOf(address: Address): string {
  if (address.kind() === 'ipv4') return address.toString();
  return `${ipaddr.IPv6.networkAddressFromCIDR(`${address}/64`)}/64`;
}
