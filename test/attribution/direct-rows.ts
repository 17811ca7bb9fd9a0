// The payer calls the token itself.

import { concatHex, type Hex, stringToHex, toHex } from 'viem';
import { formatIdentifier, newUuid } from '../../src/database/identifiers.ts';
import { idBytes } from '../support/settlement.ts';
import {
  amount,
  endedBefore,
  type Intent,
  pays,
  paysPart,
  type Row,
  records,
  type Stage,
  unattributed,
} from './stage.ts';

/** Data of ERC-8021: the codes of an app, their length, the number of the schema, and the marker. */
const erc8021: Hex = concatHex([stringToHex('baseapp'), '0x0700', `0x${'8021'.repeat(8)}`]);

/** Of two equal intents, the first one is named by these bytes after the transfer's arguments. */
const named = (name: string, suffixOf: (id: Hex, intent: Intent) => Hex): Row => ({
  name,
  async pay(stage) {
    const [intent] = await stage.pair();
    await stage.transfer({ to: intent.wallet, suffix: suffixOf(idBytes(intent.id), intent) });
    return [pays(intent)];
  },
});

/** Of two equal intents none is named by these bytes. */
const unnamed = (
  name: string,
  suffixOf: (id: string, other: string, stage: Stage) => Hex | Promise<Hex>,
): Row => ({
  name,
  async pay(stage) {
    const [intent, other] = await stage.pair();
    await stage.transfer({ to: intent.wallet, suffix: await suffixOf(intent.id, other.id, stage) });
    return [unattributed(stage.shop)];
  },
});

/** An id of an intent that cannot be paid by a transfer to this wallet. */
const foreign = (name: string, intentOf: (stage: Stage) => Promise<Intent>): Row =>
  unnamed(`an id of ${name}`, async (_, __, stage) => idBytes((await intentOf(stage)).id));

/** A transfer with the id of an intent that has ended. */
const ended = (
  status: 'canceled' | 'expired' | 'succeeded',
  columns: Record<string, string>,
  expect: (intent: Intent) => ReturnType<typeof pays>,
): Row => ({
  name: `the id of an intent that has ${status === 'succeeded' ? status : `been ${status}`}`,
  async pay(stage) {
    const [intent] = await stage.pair();
    await stage.change(intent, { status: `'${status}'`, ...columns });
    await stage.transfer({ to: intent.wallet, suffix: idBytes(intent.id) });
    return [expect(intent)];
  },
});

export const directRows: Row[] = [
  named('a transfer with the id', (id) => id),
  {
    name: 'a transfer with the id and less than the amount',
    async pay(stage) {
      const [intent] = await stage.pair();
      await stage.transfer({ to: intent.wallet, amountUnits: 1n, suffix: idBytes(intent.id) });
      return [paysPart(intent, 1n)];
    },
  },
  {
    name: 'two transfers of one block with the same id',
    async pay(stage) {
      const [intent] = await stage.pair();
      for (const amountUnits of [amount, 1n]) {
        await stage.transfer({ to: intent.wallet, amountUnits, suffix: idBytes(intent.id) });
      }
      return [pays(intent, { amounts: [amount, 1n], labels: ['overpaid'] })];
    },
  },
  {
    name: 'a second transfer with the id, in a later block',
    async pay(stage) {
      const [intent] = await stage.pair();
      await stage.change(intent, { status: `'processing'`, amount_received_units: 'amount_units' });
      await stage.transfer({ to: intent.wallet, suffix: idBytes(intent.id) });
      return [pays(intent, { receivedUnits: 2n * amount, labels: ['overpaid'] })];
    },
  },
  {
    name: 'the id decides, also against the only intent that expects the amount',
    async pay(stage) {
      const [intent] = await stage.pair({ amountUnits: 5n });
      await stage.intent();
      await stage.transfer({ to: intent.wallet, suffix: idBytes(intent.id) });
      return [pays(intent, { amounts: [amount], labels: ['overpaid'] })];
    },
  },
  named('the id, and data of ERC-8021 after it', (id) => concatHex([id, erc8021])),
  named('the id, and other bytes before it', (id) => concatHex([toHex('order-1001/'), id])),
  named('the id, and characters of an id after it', (id) => concatHex([id, toHex('0123')])),
  named('the id, and what is no id before it', (id, intent) =>
    concatHex([idBytes(intent.id.toUpperCase()), idBytes(intent.id.replace(/^pi_./, 'pi_8')), id]),
  ),
  named('the same id twice', (id) => concatHex([id, id])),
  named('the id after the whole call once more', (id, { wallet, amountUnits }) =>
    concatHex([`0xa9059cbb${wallet.slice(2).padStart(64, '0')}`, toHex(amountUnits, { size: 32 }), id]),
  ),

  unnamed('two ids', (id, other) => concatHex([idBytes(id), idBytes(other)])),
  unnamed('an id cut short', (id) => idBytes(id.slice(0, -1))),
  unnamed('an id cut in two', (id) => concatHex([idBytes(id.slice(0, 10)), '0x00', idBytes(id.slice(10))])),
  unnamed('an id in capital letters', (id) => idBytes(id.toUpperCase())),
  unnamed('an id with a capital prefix', (id) => idBytes(id.replace('pi_', 'PI_'))),
  unnamed('an id with another prefix', (id) => idBytes(id.replace('pi_', 'tr_'))),
  unnamed('an id with a letter that no id has', (id) => idBytes(`${id.slice(0, -1)}u`)),
  unnamed('an id of more than 128 bits', (id) => idBytes(id.replace(/^pi_./, 'pi_8'))),
  unnamed('an id as a string of hexadecimal digits', (id) => toHex(idBytes(id))),
  unnamed('the UUID of an id', (id) => toHex(`pi_${id.slice(3).toUpperCase()}`)),
  unnamed('an id of no intent', () => idBytes(formatIdentifier('pi', newUuid()))),

  foreign('an intent for another wallet', (stage) => stage.intent({ wallet: stage.newWallet() })),
  foreign('an intent for another chain', ({ intent, wallet }) => intent({ wallet, chain: 'polygon' })),
  foreign('an intent for another mode', ({ intent, wallet }) => intent({ wallet, mode: 'mainnet' })),
  foreign('an intent of another merchant for another wallet', async ({ intent, merchant }) =>
    intent({ of: await merchant() }),
  ),
  {
    name: 'an id of an intent for another wallet leaves the only candidate',
    async pay(stage) {
      const [intent, other] = [await stage.intent(), await stage.intent({ wallet: stage.newWallet() })];
      await stage.intent({ amountUnits: 1n });
      await stage.transfer({ to: intent.wallet, suffix: idBytes(other.id) });
      return [pays(intent)];
    },
  },

  ended('canceled', { canceled_at: 'now()' }, (intent) =>
    records(intent, ['after_cancel'], { status: 'canceled' }),
  ),
  ended('expired', endedBefore('expired', '1 hour'), (intent) =>
    records(intent, ['late'], { status: 'expired' }),
  ),
  ended('succeeded', { succeeded_at: 'now()', amount_received_units: 'amount_units' }, (intent) =>
    pays(intent, {
      status: 'succeeded',
      receivedUnits: 2n * amount,
      labels: ['overpaid'],
      events: ['overpaid'],
    }),
  ),

  {
    name: 'transferFrom by another, with an id',
    async pay(stage) {
      const [intent] = await stage.pair();
      const { address: from } = stage.chain.accounts[1];
      await stage.chain.transferFrom({
        from,
        to: intent.wallet,
        amountUnits: amount,
        suffix: idBytes(intent.id),
      });
      return [unattributed(stage.shop)];
    },
  },
  {
    name: 'transferFrom by another, with the whole call of a transfer and an id after it',
    async pay(stage) {
      const [intent] = await stage.pair();
      const { address: from } = stage.chain.accounts[1];
      const suffix = stage.callWithId(intent).data;
      await stage.chain.transferFrom({ from, to: intent.wallet, amountUnits: amount, suffix });
      return [unattributed(stage.shop)];
    },
  },
  {
    name: 'transferFrom by the owner of the money, with an id',
    async pay(stage) {
      const [intent] = await stage.pair();
      const { address: from } = stage.chain.accounts[1];
      const suffix = idBytes(intent.id);
      await stage.chain.transferFrom({ from, to: intent.wallet, amountUnits: amount, by: from, suffix });
      return [unattributed(stage.shop)];
    },
  },
  {
    name: 'an authorization that a relayer submits with an id of its own',
    async pay(stage) {
      const [thief] = await stage.pair();
      const [, , from] = stage.chain.accounts;
      const suffix = idBytes(thief.id);
      await stage.chain.transferWithAuthorization({ from, to: thief.wallet, amountUnits: amount, suffix });
      return [unattributed(stage.shop)];
    },
  },
  {
    name: 'an authorization that a relayer submits with a transfer call and an id of its own',
    async pay(stage) {
      const [thief] = await stage.pair();
      const [, , from] = stage.chain.accounts;
      const suffix = stage.callWithId(thief).data;
      await stage.chain.transferWithAuthorization({ from, to: thief.wallet, amountUnits: amount, suffix });
      return [unattributed(stage.shop)];
    },
  },
  {
    name: 'an authorization that its signer submits with an id',
    async pay(stage) {
      const [intent] = await stage.pair();
      const [, , from] = stage.chain.accounts;
      const suffix = idBytes(intent.id);
      await stage.chain.transferWithAuthorization({
        from,
        to: intent.wallet,
        amountUnits: amount,
        by: from.address,
        suffix,
      });
      return [unattributed(stage.shop)];
    },
  },
];
