/** The version in package.json. */
export const version = '0.1.0';

/** Says to the service's operators which client called, and on what it runs. */
export function userAgent(): string {
  const { process, navigator } = globalThis as {
    process?: { versions?: { node?: string } };
    navigator?: { userAgent?: string };
  };
  const node = process?.versions?.node;
  // An edge runtime has no Node.js version, but names itself.
  const runtime = node === undefined ? (navigator?.userAgent ?? '') : `node/${node}`;
  return `payment-intents-client/${version} ${runtime.replaceAll(/[^\x20-\x7e]/g, '')}`.trim();
}
