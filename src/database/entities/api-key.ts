import { defineEntity, type InferEntity, p } from '@mikro-orm/core';
import { modeNames } from '../../contract/words.ts';

/**
 * The format of a key's last six characters: `keyed`, an HMAC that only the service can make, or `crc32`, the
 * checksum of the first release, which anybody can make.
 */
const apiKeyFormats = ['crc32', 'keyed'] as const;
export type ApiKeyFormat = (typeof apiKeyFormats)[number];

/** An API key at rest: a keyed hash and a hint, never the key. */
export const ApiKeyEntity = defineEntity({
  name: 'ApiKey',
  tableName: 'api_keys',
  properties: {
    id: p.uuid().primary(),
    merchantId: p.uuid(),
    /** The mode of every request with this key. Its prefix shows the mode to people. */
    mode: p.enum(modeNames),
    /** Version of the pepper in `API_KEY_PEPPERS` that `keyHash` was made with. */
    pepperVersion: p.smallint(),
    /** HMAC-SHA256 of the whole key under the pepper. */
    keyHash: p.blob(),
    /** The format of its last six characters. Keys issued before there were two formats have the old one. */
    format: p.enum(apiKeyFormats).default('crc32'),
    /** The key's prefix and last four characters, for people to tell keys apart. */
    hint: p.text(),
    createdAt: p.datetime(3),
    /** The key is refused from this moment on; null if it does not expire. */
    expiresAt: p.datetime(3).nullable(),
    revokedAt: p.datetime(3).nullable(),
  },
});

export type ApiKey = InferEntity<typeof ApiKeyEntity>;
