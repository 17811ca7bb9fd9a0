// What a session of the console may call, and for which merchant.

import type { MessageInitShape, MessageShape } from '@bufbuild/protobuf';
import { Access } from '../contract/access.ts';
import type { ConsoleService } from '../contract/gen/console/v1/console_service_pb.ts';
import { modeWords } from '../contract/gen/words.ts';
import { modeNames, mustBe } from '../contract/words.ts';
import { parseIdentifier } from '../database/identifiers.ts';
import type { FindMerchant } from '../merchants/api-keys.ts';
import { invalidField, ServiceError } from '../requests/errors.ts';
import type { Method } from '../requests/method.ts';
import type { Identity } from '../requests/request-context.ts';
import type { RequestHeader } from '../requests/request-header.ts';
import type { Session } from './sessions.ts';

/** Throws `permission_denied` if the session may not call a method with this access. */
export function assertAccess({ isReadOnly, merchant }: Session, access: Access): void {
  if (access === Access.READ) return;
  if (access !== Access.CHANGE && merchant !== undefined) {
    throw new ServiceError('permission_denied', { message: "This needs an operator's session." });
  }
  if (isReadOnly) {
    throw new ServiceError('permission_denied', { message: 'This session is read-only.' });
  }
}

/** The caller of a console method. */
export interface ConsoleCaller {
  session: Session;
  /** The session's merchant, or the one that an operator names. */
  merchant: Identity | undefined;
}

type Methods = (typeof ConsoleService)['method'];

/** The console's own method of that name. It returns fields, from which its door makes a message. */
export type ConsoleMethod<Name extends keyof Methods> = Method<
  MessageShape<Methods[Name]['input']>,
  MessageInitShape<Methods[Name]['output']>,
  ConsoleCaller
>;

/** Returns the caller: for the session's merchant, or by `X-Merchant` and `X-Mode`. Throws `invalid_body`. */
export async function callerOf(
  session: Session,
  header: RequestHeader,
  find: FindMerchant,
): Promise<ConsoleCaller> {
  const [named, namedMode] = [header.get('x-merchant'), header.get('x-mode')];
  let { merchant } = session;
  if (named !== null || namedMode !== null) {
    if (merchant !== undefined) throw invalidField('X-Merchant', "is only read in an operator's session");
    const id = parseIdentifier('mer', named ?? '');
    if (id === undefined) throw noSuchMerchant();
    const mode = modeNames.find((name) => name === namedMode);
    if (mode === undefined) throw invalidField('X-Mode', mustBe(modeWords));
    merchant = { id, mode };
  }
  if (merchant === undefined) return { session, merchant };
  const found = await find(merchant.id, merchant.mode);
  if (found === undefined) throw noSuchMerchant();
  return { session, merchant: { ...found, keyTypeId: session.typeId } };
}

/** Throws `invalid_body` if an operator has named no merchant. */
export function merchantOf({ merchant }: ConsoleCaller): Identity {
  if (merchant === undefined) throw noSuchMerchant();
  return merchant;
}

const noSuchMerchant = () => invalidField('X-Merchant', 'must be the id of a merchant');
