// Decides which addresses webhooks may be sent to. A merchant chooses the URL and our servers connect to it:
// without this check, a merchant could reach services in our network (server-side request forgery).

import { isIP } from 'node:net';
import ipaddr from 'ipaddr.js';
import type { AllowedTargets } from '../config/allowed-targets.ts';

type Address = ipaddr.IPv4 | ipaddr.IPv6;

/** Why an address may be reached: it is public, or the operator permits it. */
type Reach = 'public' | 'permitted';

export type AddressPolicy = ReturnType<typeof createAddressPolicy>;

/** Azure's virtual public IP address, which leads to the platform's own services. */
const azurePlatform = '168.63.129.16';
/** RFC 6052: the last four bytes are an IPv4 address. */
const nat64 = ipaddr.IPv6.parseCIDR('64:ff9b::/96');
/** The IPv6 range of public unicast addresses (RFC 4291 and IANA's registry). */
const globalUnicast = ipaddr.IPv6.parseCIDR('2000::/3');

/** Two labels or more, of at most 63 characters each. A trailing dot is allowed. */
const nameOfInternet = /^(?=.{1,253}\.?$)(?:[a-z0-9_-]{1,63}\.)+[a-z0-9_-]{1,63}\.?$/;
/** Names that only mean something on this machine or in its network. */
const nameOfNetwork = /(?:^|\.)(?:localhost|local|internal|home\.arpa)\.?$/;

/** Returns a policy that permits public addresses and those that the operator has allowed. */
export function createAddressPolicy(allowed: AllowedTargets) {
  const networks = allowed.networks.map((network) => ipaddr.parseCIDR(network));
  const hosts = new Set(allowed.hosts);

  const isPermitted = (address: Address) => ipaddr.subnetMatch(address, { networks }, 'none') === 'networks';

  /** Returns why a numeric address may be reached, or undefined if it may not. */
  const reachOf = (text: string): Reach | undefined => {
    if (!ipaddr.isValid(text)) return undefined;
    const address = unwrapped(ipaddr.parse(text));
    if (isPermitted(address)) return 'permitted';
    return isPublic(address) ? 'public' : undefined;
  };

  return {
    reachOf,
    /** True if the operator permits this host name, whatever it resolves to. */
    permitsHost: (hostname: string) => hosts.has(hostname),
    /** Returns why the URL is refused, as the end of a sentence that begins with its name, or undefined. */
    urlProblem(text: string): string | undefined {
      // URL parsers remove some of these characters, so the URL shown would not be the one used.
      if (/[\s\p{Cc}]/u.test(text)) return 'must not contain spaces or control characters';
      const url = URL.parse(text);
      if (url === null) return 'must be a URL, such as https://shop.example/webhooks';
      const { protocol, username, password, hash } = url;
      if (protocol !== 'https:' && protocol !== 'http:') return 'must begin with https://';
      if (username !== '' || password !== '') {
        return 'must not contain a user name or password: verify the signature of the webhook instead';
      }
      if (hash !== '') return 'must not have a fragment (#…), which is never sent';
      const host = hostOf(url);
      const literal = isIP(host) === 0 ? undefined : reachOf(host);
      if (hosts.has(host) || literal === 'permitted') return undefined;
      if (protocol !== 'https:') return 'must begin with https://';
      if (isIP(host) !== 0) return 'must have a name as its host, not an IP address';
      if (!nameOfInternet.test(host) || nameOfNetwork.test(host)) {
        return 'must have a host that is reachable from the internet';
      }
      return undefined;
    },
  };
}

/** The host without IPv6 brackets. The URL parser has already normalised it: `0x7f.1` is `127.0.0.1`. */
const hostOf = ({ hostname }: URL): string => (hostname.startsWith('[') ? hostname.slice(1, -1) : hostname);

/** Returns the IPv4 address in a mapped or translated IPv6 address. */
function unwrapped(address: Address): Address {
  if (!(address instanceof ipaddr.IPv6)) return address;
  if (address.isIPv4MappedAddress()) return address.toIPv4Address();
  if (!address.match(nat64)) return address;
  return new ipaddr.IPv4(address.toByteArray().slice(-4));
}

function isPublic(address: Address): boolean {
  if (address.range() !== 'unicast') return false;
  return address instanceof ipaddr.IPv6 ? address.match(globalUnicast) : address.toString() !== azurePlatform;
}
