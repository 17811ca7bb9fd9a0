/** The version in package.json. */
const version = '0.1.0';

/** Returns the User-Agent: this client's version and its runtime. */
export function userAgent(): string {
  const { process, navigator } = globalThis as {
    process?: { versions?: { node?: string } };
    navigator?: { userAgent?: string };
  };
  const node = process?.versions?.node;
  // An edge runtime has no Node.js version, but a user agent.
  const runtime = node === undefined ? (navigator?.userAgent ?? '') : `node/${node}`;
  return `payment-intents-client/${version} ${runtime.replaceAll(/[^\x20-\x7e]/g, '')}`.trim();
}
