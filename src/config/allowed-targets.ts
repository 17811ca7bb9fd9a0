import { isIP } from 'node:net';

/** Webhook targets that are permitted even if they are not public or not https. */
export interface AllowedTargets {
  /** Names, in lower case. */
  hosts: readonly string[];
  /** In CIDR notation. */
  networks: readonly string[];
}

/** This machine itself, for the embedded mode. */
export const loopbackTargets: AllowedTargets = { hosts: ['localhost'], networks: ['127.0.0.0/8', '::1/128'] };

/** Host names. `127.1`, which a URL reads as 127.0.0.1, is refused below: it would never match. */
const hostName = /^(?=.{1,253}$)[a-z0-9_](?:[a-z0-9_-]*[a-z0-9_])?(?:\.[a-z0-9_](?:[a-z0-9_-]*[a-z0-9_])?)*$/;

/** Parses names, addresses and networks: `receiver,10.0.0.0/8,fd00::/8`. The error quotes a bad entry. */
export function parseAllowedTargets(text: string): AllowedTargets {
  const hosts: string[] = [];
  const networks: string[] = [];
  for (const entry of text.split(',').map((part) => part.trim().toLowerCase())) {
    const [address = '', ...suffix] = entry.split('/');
    const bits = suffix.length === 0 ? undefined : suffix.join('/');
    // A zone, as in `fe80::1%eth0`, would never match.
    const version = address.includes('%') ? 0 : isIP(address);
    const maxBits = version === 4 ? 32 : 128;
    if (version !== 0 && (bits === undefined || (/^\d{1,3}$/.test(bits) && Number(bits) <= maxBits))) {
      networks.push(`${address}/${bits ?? maxBits}`);
    } else if (version === 0 && hostName.test(entry) && URL.parse(`http://${entry}`)?.hostname === entry) {
      hosts.push(entry);
    } else {
      throw new Error(`"${entry}" is no host name, address or network`);
    }
  }
  return { hosts, networks };
}
