// Plays the refund commands of a history, and compares the service's refunds with the expected ones.

import { expect } from 'vitest';
import type { ModelRefund, RefundModel, RefundTruth } from './refund-model.ts';
import { isAsPrepared, refundFalsehoods } from './refund-model.ts';
import { destinations, type ReportedRefund, type WorldRefund } from './refund-world.ts';
import { idBytes } from './settlement.ts';
import type { RefundCommand } from './settlement-histories.ts';
import { confirmationsRequired, isOver, type SettlementModel } from './settlement-model.ts';
import type { SignedTransfer, World, WorldBlock, WorldIntent } from './settlement-world.ts';

/** No intent has or lacks this amount. */
const strayUnits = 7;

export interface RefundStage {
  world: World;
  model: SettlementModel;
  isHonest: boolean;
  intents: readonly WorldIntent[];
  chain: readonly WorldBlock[];
  /** Sends a transfer in the next block. */
  send(transfer: SignedTransfer): void;
}

interface PlayedRefund extends WorldRefund {
  intent: number;
  wallet: string;
  truth: RefundTruth;
  /** How often another wallet than the paid one has sent it. */
  fromOthers: number;
}

type CommandOf<Do extends RefundCommand['do']> = RefundCommand & { do: Do };

export class RefundPlay {
  readonly refunds: PlayedRefund[] = [];
  readonly #stage: RefundStage;
  readonly #sent: SignedTransfer[] = [];
  readonly #strays: SignedTransfer[] = [];
  readonly #seen = new Set<string>();
  /** Transfers that were confirmed by hash, with their refunds. */
  readonly #byHand = new Map<SignedTransfer, PlayedRefund>();

  constructor(stage: RefundStage) {
    this.#stage = stage;
  }

  async perform(command: RefundCommand): Promise<void> {
    const { world, model, isHonest, intents, send } = this.#stage;
    if (command.do === 'refund') return this.#create(command);
    const stray = at(this.#strays, 'transfer' in command ? command.transfer : 0);
    switch (command.do) {
      case 'send astray': {
        const transfer = await world.signOther({ from: undefined, to: world.payoutWallet }, strayUnits);
        this.#strays.push(transfer);
        return send(transfer);
      }
      case 'attribute': {
        const intent = at(
          intents.filter(({ hasOwnWallet }) => !hasOwnWallet),
          command.intent,
        );
        if (stray === undefined || intent === undefined) return;
        const isAccepted = model.attribute(stray, intents.indexOf(intent));
        return expectEqual('the attribution is accepted', await world.attribute(stray, intent), isAccepted);
      }
      case 'detach':
        if (stray === undefined) return;
        return expectEqual('the detachment is accepted', await world.detach(stray), model.detach(stray));
    }
    const refund = at(this.refunds, command.refund);
    if (refund === undefined) return;
    const place = this.refunds.indexOf(refund);
    switch (command.do) {
      case 'send':
        return this.#send(command, refund, place);
      case 'cancel refund': {
        const isAccepted = await world.refunds.cancel(refund);
        if (isHonest)
          expectEqual(
            'the cancellation is accepted',
            isAccepted,
            model.refunds.cancel(modelOf(model.refunds, place)),
          );
        refund.truth.isCanceled ||= isAccepted;
        return;
      }
      case 'confirm': {
        const transfer = at(this.#sent, command.transfer);
        if (transfer === undefined) return;
        const isAccepted = await world.refunds.confirm(refund, transfer.hash);
        if (isHonest)
          expectEqual('the transfer is accepted', isAccepted, model.refunds.confirm(place, transfer));
        if (isAccepted) this.#byHand.set(transfer, refund);
        return this.noteTruth();
      }
    }
  }

  async #create({ amount, ...of }: CommandOf<'refund'>): Promise<void> {
    const { world, model, isHonest, intents } = this.#stage;
    const intent = of.intent % intents.length;
    const { id, wallet } = intents[intent] as WorldIntent;
    const destination = destinations[of.destination] as (typeof destinations)[number];
    const rest = await world.refunds.refundableUnits(id);
    if (isHonest) expectEqual('what can be returned', rest, model.refunds.refundableUnits(intent));
    const units = { 'all of it': rest, 'a part': 40, 'too much': rest + 20 }[amount];
    const isOwn = intents.some((each) => each.wallet === destination);
    const refund = await world.refunds.create(id, destination, amount === 'all of it' ? undefined : units);
    expectEqual('the refund is accepted', refund !== undefined, rest > 0 && units <= rest && !isOwn);
    if (refund === undefined) return;
    expectEqual('the amount of the refund', refund.amountUnits, units);
    const truth = { ...refund, wasSent: false, wasOver: false, isCanceled: false };
    this.refunds.push({ ...refund, intent, wallet, truth, fromOthers: 0 });
    model.refunds.create({ ...refund, intent, wallet });
    this.noteTruth();
  }

  /** Sends as prepared if another transfer would not be seen, or only by a later reading. */
  async #send({ what, by, other }: CommandOf<'send'>, refund: PlayedRefund, place: number): Promise<void> {
    const { world, intents, send } = this.#stage;
    const wallet = intents[refund.intent] as WorldIntent;
    const isFromWallet = wallet.key !== undefined && (what !== 'as prepared' || by === 'the wallet');
    const from = isFromWallet || what === 'without the id' ? wallet : undefined;
    // Further ones would not count, whatever happens to the earlier ones.
    if (from === undefined && ++refund.fromOthers > 2) return;
    const others = this.refunds.filter(({ destination }) => destination !== refund.destination);
    const { destination: to } = (what === 'to another destination' && at(others, other)) || refund;
    const units = refund.amountUnits + (what === 'with another amount' ? 20 : 0);
    // Otherwise the id proves nothing.
    const isOwn = from !== undefined || (to === refund.destination && units === refund.amountUnits);
    const isLookedAt = this.refunds.some(
      (each) => each.destination === to && (each.amountUnits === units || each.wallet === from?.wallet),
    );
    const isSeen = isOwn && isLookedAt;
    const transfer = await world.signOther(
      { from, to: isSeen ? to : refund.destination, named: what === 'without the id' ? undefined : place },
      isSeen ? units : refund.amountUnits,
      idBytes(refund.id),
    );
    this.#sent.push(transfer);
    send(transfer);
  }

  /** Records the truth about the current chain, which a watcher may read now. */
  noteTruth(): void {
    const { chain } = this.#stage;
    const deep = chain.slice(0, Math.max(0, chain.length - confirmationsRequired + 1));
    for (const refund of this.refunds) {
      const { truth } = refund;
      truth.wasOver ||= isOver(chain, truth.expiresAt);
      truth.wasSent ||= deep.some(({ transfers }) =>
        transfers.some((each) => this.#ownerOf(each) === refund && isAsPrepared(each, refund)),
      );
    }
  }

  #ownerOf(transfer: SignedTransfer): PlayedRefund | undefined {
    return this.#byHand.get(transfer) ?? this.refunds[transfer.way?.named ?? -1];
  }

  async compare(): Promise<void> {
    const { world, model, isHonest } = this.#stage;
    const stored = await world.refunds.stored(this.refunds);
    for (const { status, labels, events } of stored.flatMap((each) => each ?? [])) {
      for (const each of [status, ...labels, ...events.map((type) => `.${type}`)])
        this.#seen.add(`refund ${each}`);
    }
    if (isHonest)
      expect(stored).toEqual(model.refunds.refunds.map((_, place) => storedForm(model.refunds, place)));
    else {
      const problems = stored.map((refund, place) =>
        refundFalsehoods(refund?.status, (this.refunds[place] as PlayedRefund).truth),
      );
      expect(problems, 'of each refund').toEqual(this.refunds.map(() => []));
    }
    expect(await world.refunds.broken()).toEqual([]);
  }

  /** Returns the statuses, labels and events that occurred. */
  async expectEnd(): Promise<string[]> {
    const { world, isHonest } = this.#stage;
    await this.compare();
    for (const [place, refund] of this.refunds.entries()) {
      const reported = await world.refunds.get(refund);
      const said = await world.refunds.lastEvent(refund);
      if (said !== undefined)
        expect(essenceOf(said), `the last event of refund #${place}`).toEqual(essenceOf(reported));
      if (isHonest) continue;
      const context = `of refund #${place}: ${JSON.stringify(reported, null, 2)}`;
      expect(this.#lastingFalsehoods(reported, refund), context).toEqual([]);
    }
    return [...this.#seen];
  }

  /** Returns what is wrong once nodes are honest and everything was read twice and has its confirmations. */
  #lastingFalsehoods(
    { status, transfers = [], labels = [] }: ReportedRefund,
    refund: PlayedRefund,
  ): string[] {
    const { chain } = this.#stage;
    const own = chain.flatMap(({ transfers }) => transfers).filter((each) => this.#ownerOf(each) === refund);
    const onChain = transfers.filter((each) => each.status !== 'reorged');
    const hashesOf = (hashes: string[]) => hashes.sort().join();
    const isSame =
      hashesOf(onChain.map((each) => each.transaction_hash)) === hashesOf(own.map(({ hash }) => hash));
    return [
      ...refundFalsehoods(status, refund.truth),
      ...(isSame ? [] : ['its transfers are not those on the chain']),
      ...(onChain.every((each) => each.status === 'confirmed') ? [] : ['a transfer is not confirmed']),
      ...(status === 'processing' ? ['it is still processing'] : []),
      ...(status === 'requires_transfer' && isOver(chain, refund.expiresAt) ? ['its time is over'] : []),
      ...(status === 'requires_transfer' && labels.length === 0 && own.length > 0 ? ['it was sent'] : []),
    ];
  }
}

const at = <T>(list: readonly T[], place: number): T | undefined => list[place % list.length];

function expectEqual<T>(what: string, actual: T, expected: T): void {
  expect(actual, what).toBe(expected);
}

const modelOf = (model: RefundModel, place: number) => model.refunds[place] as ModelRefund;

function storedForm(model: RefundModel, place: number) {
  const refund = modelOf(model, place);
  const own = [...model.transfers].filter(([, each]) => each.refund === place);
  return {
    status: refund.status,
    labels: model.labelsOf(refund),
    events: refund.events,
    transfers: own
      .map(([transfer, { height, isConfirmed, counts, labels }]) => ({
        hash: (transfer as SignedTransfer).hash,
        units: transfer.amountUnits,
        state: height === undefined ? 'reorged' : isConfirmed ? 'confirmed' : 'pending',
        counts,
        labels,
      }))
      .sort((a, b) => (a.hash < b.hash ? -1 : 1)),
  };
}

const essenceOf = ({ status, labels, transfers }: ReportedRefund) => ({
  status,
  labels,
  count: transfers?.length,
});
