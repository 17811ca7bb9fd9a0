// Standard Webhooks 1.0 (https://www.standardwebhooks.com): a secret is `whsec_` and base64. For each secret,
// `webhook-signature` has `v1,` and base64 of HMAC-SHA256(secret, `<webhook-id>.<webhook-timestamp>.<body>`).

import { createHmac } from 'node:crypto';
import type { KeyRing } from '../config/key-ring.ts';
import { formatIdentifier } from '../database/identifiers.ts';

/** A generation of an endpoint's secret. */
export interface SecretGeneration {
  generation: number;
  /** The version of the key in `WEBHOOK_SECRET_KEYS` that it is derived from. */
  keyVersion: number;
}

/** Returns a secret in base64: an HMAC of the endpoint and the generation, so it is never stored. */
function secretBase64(keys: KeyRing, endpointId: string, { generation, keyVersion }: SecretGeneration) {
  return keys.hmac(keyVersion, `webhook:${formatIdentifier('we', endpointId)}:${generation}`, 'base64');
}

/** Returns the secret as shown to the merchant. Throws if the ring lacks its key. */
export function webhookSecret(keys: KeyRing, endpointId: string, generation: SecretGeneration): string {
  return `whsec_${secretBase64(keys, endpointId, generation)}`;
}

/** The headers of a message, with a signature for each secret. */
export function signedHeaders(
  keys: KeyRing,
  endpointId: string,
  generations: readonly SecretGeneration[],
  { id, body, at }: { id: string; body: string; at: Date },
): Record<string, string> {
  const timestamp = String(Math.floor(at.getTime() / 1000));
  const signatures = generations.map((generation) => {
    const key = Buffer.from(secretBase64(keys, endpointId, generation), 'base64');
    return `v1,${createHmac('sha256', key).update(`${id}.${timestamp}.${body}`).digest('base64')}`;
  });
  return { 'webhook-id': id, 'webhook-timestamp': timestamp, 'webhook-signature': signatures.join(' ') };
}
