// What a session of the console may call, and for which merchant.

import { Access } from '../contract/access.ts';
import { modeWords } from '../contract/gen/words.ts';
import { modeNames, mustBe } from '../contract/words.ts';
import { parseIdentifier } from '../database/identifiers.ts';
import type { FindMerchant } from '../merchants/merchant-identity.ts';
import { invalidBody, ServiceError } from '../requests/errors.ts';
import type { Identity } from '../requests/request-context.ts';
import type { RequestHeader } from '../requests/request-header.ts';
import type { Session } from './sessions.ts';

/** Throws `permission_denied` if the session may not call a method with this access. */
export function assertMay({ isReadOnly, merchant }: Session, access: Access): void {
  if (access === Access.READ) return;
  if (isReadOnly) {
    throw new ServiceError('permission_denied', { message: 'This session is for reading only.' });
  }
  if (access !== Access.CHANGE && merchant !== undefined) {
    throw new ServiceError('permission_denied', { message: "This needs an operator's session." });
  }
}

/**
 * Returns whom a call is made for: the session's merchant, or the one that an operator names by `X-Merchant` and
 * `X-Mode`. Throws `invalid_body`.
 */
export async function callerOf(
  session: Session,
  header: RequestHeader,
  find: FindMerchant,
): Promise<Identity> {
  const { merchant, typeId: keyTypeId } = session;
  const named = { id: header.get('x-merchant'), mode: header.get('x-mode') };
  if (merchant !== undefined) {
    if (named.id !== null || named.mode !== null) {
      throw refusedHeader('X-Merchant', "is only read in an operator's session");
    }
    return { ...(await existing(find, merchant.id, merchant.mode)), keyTypeId };
  }
  const id = parseIdentifier('mer', named.id ?? '');
  if (id === undefined) throw refusedHeader('X-Merchant', 'must be the id of a merchant');
  const mode = modeNames.find((name) => name === named.mode);
  if (mode === undefined) throw refusedHeader('X-Mode', mustBe(modeWords));
  return { ...(await existing(find, id, mode)), keyTypeId };
}

async function existing(find: FindMerchant, ...merchant: Parameters<FindMerchant>) {
  const found = await find(...merchant);
  if (found === undefined) throw refusedHeader('X-Merchant', 'must be the id of a merchant');
  return found;
}

const refusedHeader = (field: string, message: string) => invalidBody([{ field, message }]);
