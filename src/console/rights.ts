// What a session of the console may call, and for which merchant.

import { Access } from '../contract/access.ts';
import type { ConsoleService } from '../contract/gen/console/v1/console_service_pb.ts';
import { modeWords } from '../contract/gen/words.ts';
import { modeNames, mustBe } from '../contract/words.ts';
import { parseIdentifier } from '../database/identifiers.ts';
import type { FindMerchant } from '../merchants/merchant-identity.ts';
import { invalidBody, ServiceError } from '../requests/errors.ts';
import type { MethodsOf } from '../requests/method.ts';
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

/** Who calls a method of the console's own. */
export interface ConsoleCaller {
  session: Session;
  /** The session's merchant, or the one that an operator names. */
  merchant: Identity | undefined;
}

/** The console's own method of that name. */
export type ConsoleMethod<Name extends keyof (typeof ConsoleService)['method']> = MethodsOf<
  typeof ConsoleService,
  ConsoleCaller
>[Name];

/**
 * Returns whom a call is made for: the session's merchant, or the one that an operator names by `X-Merchant` and
 * `X-Mode`. Throws `invalid_body`.
 */
export async function callerOf(
  session: Session,
  header: RequestHeader,
  find: FindMerchant,
): Promise<ConsoleCaller> {
  const { merchant, typeId: keyTypeId } = session;
  const named = { id: header.get('x-merchant'), mode: header.get('x-mode') };
  const isNamed = named.id !== null || named.mode !== null;
  if (merchant !== undefined) {
    if (isNamed) throw refusedHeader('X-Merchant', "is only read in an operator's session");
    return { session, merchant: { ...(await existing(find, merchant.id, merchant.mode)), keyTypeId } };
  }
  if (!isNamed) return { session, merchant: undefined };
  const id = parseIdentifier('mer', named.id ?? '');
  if (id === undefined) throw noSuchMerchant();
  const mode = modeNames.find((name) => name === named.mode);
  if (mode === undefined) throw refusedHeader('X-Mode', mustBe(modeWords));
  return { session, merchant: { ...(await existing(find, id, mode)), keyTypeId } };
}

/** Throws `invalid_body` if an operator has named no merchant. */
export function merchantOf({ merchant }: ConsoleCaller): Identity {
  if (merchant === undefined) throw noSuchMerchant();
  return merchant;
}

async function existing(find: FindMerchant, ...merchant: Parameters<FindMerchant>) {
  const found = await find(...merchant);
  if (found === undefined) throw noSuchMerchant();
  return found;
}

const refusedHeader = (field: string, message: string) => invalidBody([{ field, message }]);
const noSuchMerchant = () => refusedHeader('X-Merchant', 'must be the id of a merchant');
