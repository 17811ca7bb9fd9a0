// Plays the authorization commands of a history. The facilitator always refuses; somebody else may send.

import { expect } from 'vitest';
import type { RefundStage } from './refund-play.ts';
import type { AuthorizationCommand } from './settlement-histories.ts';
import { receivedUnits } from './settlement-model.ts';
import type { SignedTransfer, WorldIntent } from './settlement-world.ts';

export interface AuthorizationStage extends RefundStage {
  startsAt: number;
}

/** An authorization that the service has taken. */
interface Taken {
  intent: number;
  transfer: SignedTransfer;
  validBefore: number;
  isSent: boolean;
}

/** The shortest validity that the service accepts. */
const minValidSeconds = 15;
/** The time of the newest block may be one block later for a call. */
const doubtfulSeconds = 4;

export class AuthorizationPlay {
  readonly #stage: AuthorizationStage;
  readonly #taken: Taken[] = [];

  constructor(stage: AuthorizationStage) {
    this.#stage = stage;
  }

  async perform(command: AuthorizationCommand): Promise<void> {
    if (command.do === 'sign') return this.#sign(command);
    const unsent = this.#taken.filter(({ isSent }) => !isSent);
    const one = unsent[command.authorization % unsent.length];
    if (one === undefined) return;
    one.isSent = true;
    this.#stage.send(one.transfer);
  }

  async #sign({ intent: number, valid, nonce }: AuthorizationCommand & { do: 'sign' }): Promise<void> {
    const { world, model, isHonest, intents, chain, startsAt } = this.#stage;
    const place = number % intents.length;
    const intent = intents[place] as WorldIntent;
    const missing = await world.missingUnits(intent);
    if (missing <= 0) return;
    const headTime = chain.at(-1)?.time ?? startsAt;
    const validBefore = valid === 'as long as the intent' ? intent.expiresAt : headTime + 20;
    if (Math.abs(validBefore - headTime) <= doubtfulSeconds) return;
    const { isTaken, transfer } = await world.authorize(place, intent, {
      units: missing,
      validBefore,
      nonce,
    });
    if (isHonest) {
      const isInTime =
        validBefore <= intent.expiresAt &&
        validBefore > headTime &&
        validBefore >= (model.readTime ?? 0) + minValidSeconds;
      const modelled = model.intents[place];
      const isOpen = modelled?.status === 'requires_payment' && !model.authorizations.isOccupied(place);
      expect(isTaken, 'the authorization is taken').toBe(isOpen && isInTime);
      expect(missing).toBe(intent.amountUnits - receivedUnits(modelled as never));
    }
    if (!isTaken) return;
    // Whatever the nodes say, earlier authorizations that landed are counted, and none can still be used.
    const others = this.#taken.filter((each) => each.intent === place);
    const landed = others.filter((each) => chain.some(({ transfers }) => transfers.includes(each.transfer)));
    const landedUnits = landed.reduce((sum, each) => sum + each.transfer.amountUnits, 0);
    expect(landedUnits + missing, 'units of all authorizations').toBeLessThanOrEqual(intent.amountUnits);
    const usable = others.filter((each) => !landed.includes(each) && headTime < each.validBefore);
    expect(usable, 'earlier authorizations').toEqual([]);
    this.#taken.push({ intent: place, transfer, validBefore, isSent: false });
    if (isHonest) model.authorizations.sign({ intent: place, transfer, validBefore });
  }

  async compare(): Promise<void> {
    const { world, model, isHonest } = this.#stage;
    const statuses = await world.authorizationStatuses();
    if (isHonest) expect(statuses).toEqual(model.authorizations.all.map(({ status }) => status));
    expect(statuses).toHaveLength(this.#taken.length);
  }

  /** Returns the final statuses. */
  async expectEnd(): Promise<string[]> {
    await this.compare();
    return (await this.#stage.world.authorizationStatuses()).map((status) => `authorization ${status}`);
  }
}
