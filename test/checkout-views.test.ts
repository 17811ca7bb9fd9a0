// The view of the checkout page as a function of its state; above all, when it offers to pay.

import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import type { Checkout } from '../checkout/page/checkout.ts';
import {
  type Facts,
  factsAtFirst,
  hasArrived,
  isReleased,
  noticesOf,
  offeringViews,
  viewOf,
} from '../checkout/page/state.ts';
import { intent } from './support/checkout-states.ts';

const expiresAtMs = Date.parse('2026-11-22T12:30:00.000Z');
const ownHash = `0x${'ab'.repeat(32)}`;
const otherHash = `0x${'cd'.repeat(32)}`;
const payer = '0xb3dCfD0Ec24729637512CA9eA8093D71838705C8';
const wallet = { id: 'io.example', name: 'Example' };

const checkoutOf = (fields: Partial<Checkout> = {}): Checkout => ({
  ...(intent as Checkout),
  amount_units: 100,
  expires_at: new Date(expiresAtMs).toISOString(),
  gasless: false,
  allowed_origins: [],
  ...fields,
});

type Payment = NonNullable<Checkout['payments']>[number];
const paymentOf = (fields: Partial<Payment> = {}): Payment => ({
  transaction_hash: otherHash,
  log_index: 0,
  block_number: 100,
  block_hash: `0x${'ef'.repeat(32)}`,
  block_time: '2026-11-22T12:20:00.000Z',
  from_address: payer,
  to_address: '0xDDf6EDe5C9525Bd7A5BF244C600195c559358Ab2',
  token_address: '0x036CbD53842c5426634e7929541eC2318f3dCF7e',
  amount_units: 40,
  confirmations: 1,
  status: 'pending',
  counts: fields.status !== 'reorged' && fields.labels === undefined,
  ...fields,
});

const factsOf = (fields: Partial<Facts> = {}): Facts => ({
  ...factsAtFirst,
  checkout: checkoutOf(),
  nowMs: expiresAtMs - 600_000,
  shop: 'done',
  wallets: [wallet],
  hasLooked: true,
  ...fields,
});

type Connected = Extract<Facts['session'], { step: 'connected' }>;
const connected = (fields: Partial<Connected> = {}): Connected => ({
  step: 'connected',
  wallet,
  account: payer,
  chainId: 84532,
  funds: { kind: 'enough' },
  ...fields,
});
const transfer = { from: payer, wallet: 'io.example', askedAtMs: expiresAtMs - 700_000 };
const sent = { ...transfer, hash: ownHash };
const submitted = {
  status: 'submitted',
  expires_at: new Date(expiresAtMs).toISOString(),
  transaction_hash: '',
} as const;

describe('the view', () => {
  test.each<[string, Partial<Facts>, string]>([
    ['before the first answer', { checkout: undefined }, 'loading'],
    ['before the first answer, offline', { checkout: undefined, connection: 'offline' }, 'unreachable'],
    ['a known answer, offline', { connection: 'offline' }, 'choose-wallet'],
    ['a popup whose shop creates the intent', { checkout: undefined, shop: 'working' }, 'waiting-for-shop'],
    ['a popup whose shop has failed', { checkout: undefined, shop: 'failed' }, 'shop-failed'],
    [
      'a status of a newer service',
      { checkout: checkoutOf({ status: 'on_hold' as 'processing' }) },
      'outdated',
    ],
    [
      'a chain of a newer service',
      { checkout: checkoutOf({ chain_id: 42_161 }), lane: 'manual' },
      'outdated',
    ],
    [
      'an authorization with a status of a newer service',
      { checkout: checkoutOf({ authorization: { ...submitted, status: 'replaced' as 'submitted' } }) },
      'signed',
    ],
    ['an unknown secret', { checkout: undefined, isInvalid: true }, 'invalid'],
    ['wallets', {}, 'choose-wallet'],
    ['wallets that had no time to announce themselves', { wallets: [], hasLooked: false }, 'loading'],
    ['no wallets', { wallets: [] }, 'no-wallet'],
    ['a chain of this machine', { isLocal: true }, 'test-wallet'],
    ['an intent for payment by hand', { checkout: checkoutOf({ lane: 'manual' }) }, 'manual'],
    [
      'an intent for payment by hand, and a payer who has a wallet',
      { checkout: checkoutOf({ lane: 'manual' }), lane: 'wallet' },
      'choose-wallet',
    ],
    ['a payer who pays by hand', { lane: 'manual' }, 'manual'],
    ['a wallet that is connecting', { session: { step: 'connecting', wallet } }, 'connecting'],
    [
      'an account whose funds are being read',
      { session: connected({ funds: { kind: 'unknown' } }) },
      'connecting',
    ],
    ['another chain', { session: connected({ chainId: 1 }) }, 'wrong-chain'],
    ['an account that can pay', { session: connected() }, 'ready'],
    [
      'an account that can sign',
      { session: connected(), checkout: checkoutOf({ gasless: true }) },
      'ready-to-sign',
    ],
    [
      'an account that can sign, but cannot pay the fee',
      { session: connected({ funds: { kind: 'too-little-gas' } }), checkout: checkoutOf({ gasless: true }) },
      'ready-to-sign',
    ],
    [
      'too little time for a signature',
      { session: connected(), checkout: checkoutOf({ gasless: true }), nowMs: expiresAtMs - 120_000 },
      'ready',
    ],
    [
      'a wallet that is asked for an outdated amount',
      {
        transfer: { ...transfer, amountUnits: 100 },
        transferPhase: 'asking',
        checkout: checkoutOf({ amount_received_units: 40 }),
      },
      'reject-in-wallet',
    ],
    ['a wallet that is asked to sign', { signing: 'asking' }, 'sign-in-wallet'],
    ['a signature that is being sent to the service', { signing: 'sending' }, 'signed'],
    [
      'a signature that can still be used, in the manual lane and after the expiry',
      {
        checkout: checkoutOf({ authorization: submitted }),
        lane: 'manual',
        nowMs: expiresAtMs + 1,
      },
      'signed',
    ],
    [
      'too little USDC',
      { session: connected({ funds: { kind: 'too-little-token', balanceUnits: 1n } }) },
      'too-little-token',
    ],
    [
      'too little for the fee',
      { session: connected({ funds: { kind: 'too-little-gas' } }) },
      'too-little-gas',
    ],
    [
      'a token that refuses',
      { session: connected({ funds: { kind: 'refused', reason: 'paused' } }) },
      'refused-by-token',
    ],
    ['a wallet that is asked', { transfer, transferPhase: 'asking' }, 'confirm-in-wallet'],
    ['a wallet that another tab asks', { transfer, transferPhase: 'asking-elsewhere' }, 'paying-elsewhere'],
    ['a wallet whose answer was lost', { transfer }, 'unknown'],
    ['a transfer that is in no block yet', { transfer: sent, transferPhase: 'sent' }, 'sent'],
    [
      'a transfer that another payment has overtaken',
      { transfer: sent, transferPhase: 'sent', checkout: checkoutOf({ payments: [paymentOf()] }) },
      'sent',
    ],
    [
      'a transfer that paid only a part',
      {
        transfer: sent,
        transferPhase: 'sent',
        checkout: checkoutOf({
          amount_received_units: 40,
          payments: [paymentOf({ transaction_hash: ownHash })],
        }),
      },
      'choose-wallet',
    ],
    [
      'a payment that was reorged',
      { checkout: checkoutOf({ payments: [paymentOf({ status: 'reorged' })] }) },
      'taken-back',
    ],
    [
      'a payment that was reorged, and that the payer has given up',
      { checkout: checkoutOf({ payments: [paymentOf({ status: 'reorged' })] }), givenUp: [otherHash] },
      'choose-wallet',
    ],
    ['after the expiry, by the clock alone', { nowMs: expiresAtMs + 1 }, 'time-is-up'],
    [
      'after the expiry, while a wallet is asked',
      { nowMs: expiresAtMs + 1, transfer, transferPhase: 'asking' },
      'time-is-up',
    ],
    [
      'after the expiry, with a wallet whose answer was lost',
      { nowMs: expiresAtMs + 1, transfer },
      'time-is-up',
    ],
  ])('%s', (_, fields, view) => {
    expect(viewOf(factsOf(fields))).toBe(view);
  });

  test.each<Checkout['status']>(['processing', 'succeeded', 'expired', 'canceled'])(
    'an intent that is %s, whatever a wallet does',
    (status) => {
      const facts = { checkout: checkoutOf({ status }), session: connected(), transfer };
      expect(viewOf(factsOf({ ...facts, transferPhase: 'asking' }))).toBe(status);
    },
  );
});

test('no payment is offered while a transfer may still arrive, or would arrive too late', () => {
  const anyPayment = fc.record({
    transaction_hash: fc.constantFrom(ownHash, otherHash),
    status: fc.constantFrom<Payment['status']>('pending', 'confirmed', 'reorged'),
    amount_units: fc.integer({ min: 1, max: 200 }),
  });
  const anyCheckout = fc
    .record({
      status: fc.oneof(
        fc.constant<Checkout['status']>('requires_payment'),
        fc.constantFrom<Checkout['status']>('processing', 'succeeded', 'expired', 'canceled'),
      ),
      lane: fc.constantFrom<Checkout['lane']>('sdk', 'manual'),
      amount_received_units: fc.integer({ min: 0, max: 99 }),
      payments: fc.array(anyPayment.map(paymentOf), { maxLength: 3 }),
    })
    .map(checkoutOf);
  const anyFacts = fc
    .record({
      checkout: anyCheckout,
      nowMs: fc.integer({ min: expiresAtMs - 100, max: expiresAtMs + 100 }),
      isLocal: fc.boolean(),
      lane: fc.constantFrom<Facts['lane']>(undefined, 'manual', 'wallet'),
      session: fc.constantFrom<Facts['session']>({ step: 'none' }, connected(), connected({ chainId: 1 })),
      transfer: fc.constantFrom(undefined, transfer, sent),
      transferPhase: fc.constantFrom<Facts['transferPhase']>('asking', 'asking-elsewhere', 'unknown', 'sent'),
      connection: fc.constantFrom<Facts['connection']>('ok', 'offline', 'unreachable'),
    })
    .map(factsOf);
  let offered = 0;
  fc.assert(
    fc.property(anyFacts, (facts) => {
      const { status, payments = [] } = facts.checkout as Checkout;
      const hasArrived = payments.some(({ transaction_hash }) => transaction_hash === facts.transfer?.hash);
      const mayArrive =
        (facts.transfer !== undefined && !hasArrived) || payments.some(({ status }) => status === 'reorged');
      const mayOffer = status === 'requires_payment' && !mayArrive && facts.nowMs <= expiresAtMs;
      const isOffered = offeringViews.includes(viewOf(facts));
      expect(isOffered).toBe(mayOffer);
      if (isOffered) offered++;
    }),
    { numRuns: 2_000 },
  );
  expect(offered).toBeGreaterThan(50);
});

test.each<[string, Partial<Facts>, readonly string[]]>([
  ['nothing to say', {}, []],
  [
    'part of the amount',
    { checkout: checkoutOf({ amount_received_units: 40, payments: [paymentOf()] }) },
    ['partly-paid'],
  ],
  [
    'a wallet that still asks although it is paid',
    {
      checkout: checkoutOf({ status: 'processing', amount_received_units: 100 }),
      transfer,
      transferPhase: 'asking',
    },
    ['wallet-still-asks'],
  ],
  [
    'a wallet that still asks although another device has signed',
    { checkout: checkoutOf({ authorization: submitted }), transfer, transferPhase: 'asking' },
    ['wallet-still-asks'],
  ],
  [
    'a wallet that still asks although the intent has expired',
    { nowMs: expiresAtMs + 1, transfer, transferPhase: 'asking' },
    ['wallet-still-asks'],
  ],
  ['too much', { checkout: checkoutOf({ status: 'succeeded', labels: ['overpaid'] }) }, ['overpaid']],
  [
    'late money',
    { checkout: checkoutOf({ status: 'expired', payments: [paymentOf({ labels: ['late'] })] }) },
    ['late'],
  ],
  [
    'money in time that was found late',
    {
      checkout: checkoutOf({
        status: 'expired',
        labels: ['late', 'found_late'],
        payments: [paymentOf({ labels: ['late', 'found_late'] })],
      }),
    },
    ['found-late'],
  ],
  [
    'late money besides money that was found late',
    {
      checkout: checkoutOf({
        status: 'expired',
        labels: ['late', 'found_late'],
        payments: [paymentOf({ labels: ['late', 'found_late'] }), paymentOf({ labels: ['late'] })],
      }),
    },
    ['late', 'found-late'],
  ],
  [
    'money in time that was found late and returned',
    {
      checkout: checkoutOf({
        status: 'expired',
        labels: ['late', 'found_late'],
        refunds: [paymentOf({ status: 'confirmed' })],
      }),
    },
    ['returned'],
  ],
  [
    'another token',
    { checkout: checkoutOf({ payments: [paymentOf({ labels: ['wrong_token'] })] }) },
    ['wrong-token'],
  ],
  [
    'less than the price, at the end',
    { checkout: checkoutOf({ status: 'expired', amount_received_units: 40, labels: ['underpaid'] }) },
    ['underpaid'],
  ],
  [
    'money that is being returned, and money that was',
    {
      checkout: checkoutOf({
        status: 'succeeded',
        refunds: [paymentOf({ status: 'confirmed' }), paymentOf({ status: 'pending' })],
      }),
    },
    ['returning', 'returned'],
  ],
  [
    'a return that was reorged',
    { checkout: checkoutOf({ status: 'succeeded', refunds: [paymentOf({ status: 'reorged' })] }) },
    [],
  ],
  ['the last minute', { nowMs: expiresAtMs - 30_000 }, ['hurry']],
  ['a refusal', { failure: 'rejected' }, ['rejected']],
  [
    'a refusal before the payment came from elsewhere',
    { failure: 'rejected', checkout: checkoutOf({ status: 'processing' }) },
    [],
  ],
  ['no network', { connection: 'offline' }, ['offline']],
])('the notices of the page: %s', (_, fields, notices) => {
  const facts = factsOf(fields);
  expect(noticesOf(facts, viewOf(facts))).toEqual(notices);
});

test.each<[string, boolean, Partial<Payment>]>([
  ['by its hash', true, { transaction_hash: ownHash, amount_units: 1 }],
  ['sped up in the wallet', true, {}],
  ['reverted', false, { transaction_hash: ownHash, status: 'reorged' }],
  ['of another account', false, { from_address: `0x${'11'.repeat(20)}` }],
  ['of another amount, which the account has sent by hand', false, { amount_units: 40 }],
  ['of another token, which the account has sent by hand', false, { labels: ['wrong_token'] }],
  ['from before it was asked for', false, { block_time: '2026-11-22T12:00:00.000Z' }],
])('a transfer has arrived with a payment %s: %s', (_, expected, fields) => {
  const asked = { ...sent, askedAtMs: expiresAtMs - 700_000, amountUnits: 100 };
  const payments = [paymentOf({ amount_units: 100, ...fields })];
  expect(hasArrived(asked, checkoutOf({ payments }))).toBe(expected);
});

test.each<[string, boolean, Partial<Checkout>]>([
  ['is gone', true, {}],
  ['was never sent', false, { authorization: { ...submitted, status: 'failed' } }],
  ['can still be used', false, { authorization: submitted }],
  ['has paid', false, { status: 'processing' }],
  ['has paid a part', false, { amount_received_units: 40 }],
])('an authorization that %s can no longer arrive: %s', (_, expected, fields) => {
  const before = checkoutOf({ authorization: submitted });
  expect(isReleased(before, checkoutOf(fields))).toBe(expected);
});
