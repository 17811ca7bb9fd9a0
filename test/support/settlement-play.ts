// Plays a random history in the world, and compares the service with the expected results.

import { expect } from 'vitest';
import { NodeError } from '../../src/settlement/node-answers.ts';
import { AuthorizationPlay } from './authorization-play.ts';
import { RefundPlay } from './refund-play.ts';
import { destinations } from './refund-world.ts';
import type { Command, History, MineCommand, PayCommand, ReorganiseCommand } from './settlement-histories.ts';
import {
  confirmationsRequired,
  falsehoods,
  isOver,
  labelsOf,
  lastingFalsehoods,
  type ModelIntent,
  paidUnits,
  type Report,
  receivedUnits,
  SettlementModel,
  type Truth,
} from './settlement-model.ts';
import {
  blockSeconds,
  type ReportedIntent,
  type SignedTransfer,
  type StoredEvent,
  type World,
  type WorldBlock,
  type WorldIntent,
} from './settlement-world.ts';

/** Blocks that the watcher reads one by one before it confirms. With honest nodes it never has more to read. */
const maxUnread = 20;
/** An honest node must be read within this many failures in a row. */
const maxFailures = 5;

/** Plays one history. Rejects if the service is wrong. Returns the occurring statuses, labels and events. */
export async function play(
  world: World,
  { liar, isReadAtOnce, commands }: History,
): Promise<ReadonlySet<string>> {
  const startsAt = await world.begin();
  const model = new SettlementModel(world.payoutWallet);
  const intents: WorldIntent[] = [];
  const truths: Truth[] = [];
  /** The blocks since the beginning, oldest first. */
  const chain: WorldBlock[] = [];
  /** The transfers of the next block. */
  let waiting: SignedTransfer[] = [];
  /** Transfers that reorganisations have removed. */
  let removed: SignedTransfer[] = [];
  let watcher = world.watcher(liar);

  const isHonest = liar === 'nobody';
  const send = (transfer: SignedTransfer) => void waiting.push(transfer);
  const stage = { world, model, isHonest, intents, chain, startsAt, send };
  const refunds = new RefundPlay(stage);
  const authorizations = new AuthorizationPlay(stage);
  const placeOf = (intent: number) => intent % intents.length;
  const at = <T>(list: readonly T[], intent: number): T => list[placeOf(intent)] as T;

  const perform = async (command: Command): Promise<void> => {
    switch (command.do) {
      case 'create':
        return create(liar === 'nobody' ? command.wallet : 'own');
      case 'pay':
        return pay(command);
      case 'mine':
        return mine(command);
      case 'reorganise':
        return reorganise(command);
      case 'cancel':
        return cancel(command.intent);
      case 'restart': {
        const before = watcher;
        if (command.how === 'stopped') await before.release();
        else await world.endLease();
        watcher = world.watcher(liar);
        await read();
        // With a node that lies, the next watcher may have failed to take the lease.
        if (command.how === 'stopped' || !isHonest || world.losesCommits) return;
        const changes = before.changes.length;
        await before.follow();
        expect(before.changes.length, 'changes by a watcher without a lease').toBe(changes);
        return read();
      }
      case 'read again':
        await read();
        if (mayReadAgain()) await watcher.readAllAgain().catch(expectNodeError);
        return compare();
      case 'lie':
        return world.node.lieInTurn(
          command.lies.map((lie) => ({ ...lie, transfer: invented(intents[0] as WorldIntent) })),
        );
      case 'be honest':
        return world.node.lie(undefined);
      case 'sign':
      case 'send signed':
        await authorizations.perform(command);
        return compare();
      default:
        await refunds.perform(command);
        return compare();
    }
  };

  const create = async (wallet: (Command & { do: 'create' })['wallet']) => {
    const isTaken = wallet === 'destination' && intents.some((each) => each.wallet === destinations[0]);
    const intent = await world.createIntent(isTaken ? 'own' : wallet);
    intents.push(intent);
    truths.push({ ...intent, wasPaid: false, wasOver: false, isCanceled: false });
    model.create(intent);
    noteTruth();
  };

  const pay = async ({ intent: number, amount, way }: PayCommand) => {
    const intent = at(intents, number);
    const missing = intent.amountUnits - receivedUnits(at(model.intents, number));
    const units = {
      'a part': 40,
      'what is missing': missing > 0 ? missing : intent.amountUnits,
      'the whole amount': intent.amountUnits,
      'too much': intent.amountUnits + 20,
    }[amount];
    send(await world.sign(placeOf(number), intent, units, way));
  };

  const cancel = async (intent: number) => {
    const isCanceled = await world.cancelIntent(at(intents, intent));
    const modelled = at(model.intents, intent);
    if (isHonest) expect(isCanceled, 'the cancellation is accepted').toBe(model.cancel(modelled));
    at(truths, intent).isCanceled = isCanceled;
    await compare();
  };

  /** Adds a block to the chain. */
  const addBlock = async (transfers: readonly SignedTransfer[], time = nextTime()) => {
    // A block after the end of an authorization does not include it.
    const block = { time, transfers: transfers.filter(({ validBefore = Infinity }) => time < validBefore) };
    await world.mine(block);
    chain.push(block);
    noteTruth();
  };

  const addEmptyBlocks = async (count: number) => {
    if (count === 0) return;
    // Its time is set, because anvil would choose another one after a reorganisation.
    await addBlock([]);
    if (count === 1) return;
    await world.mineEmpty(count - 1);
    for (let i = 1; i < count; i++) {
      chain.push({ time: nextTime(), transfers: [] });
      noteTruth();
    }
  };

  const nextTime = () => (chain.at(-1)?.time ?? startsAt) + blockSeconds;

  const mine = async ({ blocks, time, intent, withRemoved, isRead }: MineCommand) => {
    if (isHonest && model.unreadBlocks(chain) > maxUnread) await read();
    const ofRefund = time.endsWith('refund') ? refunds.refunds[intent % refunds.refunds.length] : undefined;
    const wanted = (ofRefund ?? at(intents, intent)).expiresAt + (time.startsWith('too late') ? 1 : 0);
    const transfers = [...waiting, ...(withRemoved ? removed : [])];
    waiting = [];
    if (withRemoved) removed = [];
    await addBlock(transfers, time === 'next' ? nextTime() : Math.max(wanted, nextTime()));
    await addEmptyBlocks(blocks - 1);
    if (isRead) await read();
  };

  const reorganise = async ({ depth, more, returning, what, isRead }: ReorganiseCommand) => {
    const gone = Math.min(depth, chain.length);
    if (gone === 0) return;
    await world.rollBack(gone);
    removed.push(...chain.splice(-gone).flatMap(({ transfers }) => transfers));
    const blocks = gone + more;
    const place = { nowhere: blocks, 'in the first': 0, 'in the last': Math.max(0, blocks - 1) }[returning];
    await addEmptyBlocks(place);
    if (place < blocks) {
      const isBack = ({ way }: SignedTransfer) => what === 'everything' || way !== undefined;
      const transfers = removed.filter(isBack);
      removed = removed.filter((transfer) => !isBack(transfer));
      await addBlock(transfers);
      await addEmptyBlocks(blocks - place - 1);
    }
    if (isRead) await read();
  };

  /** Records the truth about the current chain, which a watcher may read now. */
  const noteTruth = () => {
    for (const [place, truth] of truths.entries()) {
      truth.wasPaid ||= paidUnits(chain, place, truth, confirmationsRequired) >= truth.amountUnits;
      truth.wasOver ||= isOver(chain, truth.expiresAt);
    }
    refunds.noteTruth();
  };

  const read = async () => {
    if (!isHonest) return readWhatIsSaid();
    if (world.losesCommits) await untilUnderstood(watcher.catchUp);
    // A single answer reverts nothing.
    else if (model.isReorganised(chain)) await expect(watcher.catchUp()).rejects.toThrow('asked again');
    await watcher.catchUp();
    model.read(chain);
    await compare();
  };

  /** Reads like a process that goes on after each failure. */
  const readWhatIsSaid = async () => {
    for (let turn = 0; turn < 2; turn++) {
      const reading = watcher.follow().catch(expectNodeError);
      if (!isReadAtOnce) await reading;
      if (mayReadAgain()) await watcher.verify().catch(expectNodeError);
      await reading;
    }
    await compare();
  };

  /**
   * A transfer that the only node hides at both readings stays hidden: no other node can show it. With honest
   * nodes, only what was read before: these chains revert final blocks, and no real one does.
   */
  const mayReadAgain = () =>
    isHonest ? !model.isBehind(chain) : liar !== 'the only node' || world.node.isHonest();

  const compare = async () => {
    const stored = await world.stored(intents);
    await refunds.compare();
    await authorizations.compare();
    expect(await world.wrongFigures()).toEqual([]);
    if (isHonest) {
      const refunded = (place: number) => model.refunds.refundedUnits(place);
      expect(stored).toEqual(
        model.intents.map((intent, place) => ({ ...storedForm(intent), refundedUnits: refunded(place) })),
      );
      return;
    }
    const problems = stored.map((intent, place) =>
      falsehoods({ status: intent?.status ?? '' }, at(truths, place)),
    );
    expect(problems, 'of each intent').toEqual(intents.map(() => []));
  };

  /** The nodes are honest again, and everything gets its confirmations. */
  const settle = async () => {
    world.node.lie(undefined);
    await addEmptyBlocks(confirmationsRequired + 2);
    await untilUnderstood(watcher.catchUp);
    await untilUnderstood(watcher.readAllAgain);
    // Confirms the transfers that the second reading has found.
    await watcher.catchUp();
  };

  const untilUnderstood = async (work: () => Promise<void>) => {
    for (let failures = 0; ; failures++) {
      const fault = await work().then(() => undefined, expectNodeError);
      if (fault === undefined) return;
      if (failures === maxFailures) throw fault;
    }
  };

  const expectEnd = async () => {
    expect(await world.headTime(), 'time of the newest block').toBe(chain.at(-1)?.time ?? startsAt);
    if (isHonest) await read();
    else await settle();
    const { figures, exported } = await world.sumsOfMoney();
    expect(figures, 'what the lines of the export sum up to').toEqual(exported);
    for (const each of await refunds.expectEnd()) seen.add(each);
    for (const each of await authorizations.expectEnd()) seen.add(each);
    const signed = [...chain.flatMap(({ transfers }) => transfers), ...removed, ...waiting];
    for (const [place, intent] of intents.entries()) {
      const reported = await world.getIntent(intent);
      const events = await world.eventsOf(intent);
      expect(brokenEvents(events, reported), `events of intent #${place}`).toEqual([]);
      if (isHonest) {
        const modelled = model.intents[place] as ModelIntent;
        expect(paymentsOf(reported), `payments of intent #${place}`).toEqual(
          paymentsOfModel(model, modelled),
        );
      } else {
        const report = reportOf(reported, signed);
        const problems = lastingFalsehoods(report, chain, place, truths[place] as Truth);
        expect(problems, `of intent #${place}: ${JSON.stringify(reported, null, 2)}`).toEqual([]);
      }
      for (const each of [
        reported.status,
        ...(reported.labels ?? []),
        ...events.map(({ type }) => `.${type}`),
      ]) {
        seen.add(each);
      }
    }
  };

  const seen = new Set<string>();
  await create('own');
  for (const command of commands) await perform(command);
  await expectEnd();
  return seen;
}

/** Returns the error of a node. Any other error is a fault of the watcher. */
function expectNodeError(reason: unknown): NodeError {
  if (reason instanceof NodeError) return reason;
  throw reason;
}

function invented({ wallet: to, token, amountUnits }: WorldIntent) {
  return { token, to, amountUnits: BigInt(amountUnits) };
}

const storedForm = (intent: ModelIntent) => ({
  status: intent.status,
  receivedUnits: receivedUnits(intent),
  paymentsCount: intent.payments.size,
  labels: labelsOf(intent),
  events: intent.events,
});

const byHash = ([a]: [string, unknown], [b]: [string, unknown]) => (a < b ? -1 : 1);

/** The payments, in the order of their transaction hashes. */
function paymentsOf({ payments = [] }: ReportedIntent) {
  return payments
    .map(({ transaction_hash, amount_units, status, confirmations, labels = [] }): [string, unknown] => [
      transaction_hash,
      { amount_units, status, confirmations, labels: [...labels].sort() },
    ])
    .sort(byHash);
}

function paymentsOfModel(model: SettlementModel, intent: ModelIntent) {
  return [...intent.payments]
    .map(([transfer, payment]): [string, unknown] => [
      (transfer as SignedTransfer).hash,
      {
        amount_units: transfer.amountUnits,
        status: payment.height === undefined ? 'reorged' : payment.isConfirmed ? 'confirmed' : 'pending',
        confirmations: model.confirmationsOf(payment),
        labels: payment.labels,
      },
    ])
    .sort(byHash);
}

function reportOf(
  { status, amount_received_units, labels = [], payments = [] }: ReportedIntent,
  signed: readonly SignedTransfer[],
): Report {
  return {
    status,
    receivedUnits: amount_received_units,
    labels,
    payments: payments.map(({ transaction_hash, amount_units, status, labels = [] }) => ({
      transfer: signed.find(
        ({ hash, amountUnits }) => hash === transaction_hash && amountUnits === amount_units,
      ),
      isConfirmed: status === 'confirmed',
      isReorged: status === 'reorged',
      labels,
    })),
  };
}

const mayFollow: Record<string, readonly string[]> = {
  requires_payment: ['processing', 'expired', 'canceled'],
  processing: ['succeeded', 'requires_payment'],
};

/** Returns what is wrong with an intent's events: their sequence, their statuses, and the last one. */
function brokenEvents(events: readonly StoredEvent[], reported: ReportedIntent): string[] {
  const problems: string[] = [];
  let status = 'requires_payment';
  for (const [i, { type, sequence, data }] of events.entries()) {
    const next = data.payment_intent.status;
    if (sequence !== i + 1) problems.push(`event ${i + 1} has the sequence ${sequence}`);
    if (next !== status && !mayFollow[status]?.includes(next)) problems.push(`${status} became ${next}`);
    const isNamed = ['processing', 'succeeded', 'expired', 'canceled'].includes(type);
    if (isNamed && type !== next) problems.push(`${type} reports ${next}`);
    status = next;
  }
  const last = events.at(-1)?.data.payment_intent;
  if (last === undefined) return problems;
  for (const field of ['status', 'amount_received_units', 'payments_count', 'labels'] as const) {
    if (JSON.stringify(last[field]) !== JSON.stringify(reported[field]))
      problems.push(`the last event has another ${field}`);
  }
  return problems;
}
