// Merchants and modes do not see each other's keys and intents.

import fc from 'fast-check';
import { expect, test } from 'vitest';
import { type Answer, type Door, doors } from './support/call.ts';
import type { TestMerchant } from './support/service.ts';
import { useService } from './support/use-service.ts';

const service = await useService();

const merchants = [service.merchant, await service.newMerchant()];

const call = fc.record({
  merchant: fc.constantFrom(0, 1),
  mode: fc.constantFrom('testnet' as const, 'mainnet' as const),
  door: fc.constantFrom(0, 1),
  // Few keys, so that they collide.
  idempotencyKey: fc.constantFrom('order-1', 'order-2', 'ORDER-1'),
  amountUnits: fc.constantFrom(1, 2),
});

test('an idempotency key belongs to one merchant and one mode', async () => {
  let run = 0;
  await fc.assert(
    fc.asyncProperty(fc.array(call, { minLength: 2, maxLength: 24 }), async (calls) => {
      run++;
      /** The model: the request of each key, by merchant and mode. */
      const stands = new Map<string, { amountUnits: number; answer: Answer }>();
      for (const { merchant, mode, door, idempotencyKey, amountUnits } of calls) {
        const answer = await service.call(
          'createPaymentIntent',
          { amount_units: amountUnits },
          {
            door: doors[door] as Door,
            apiKey: (merchants[merchant] as TestMerchant).keys[mode].apiKey,
            idempotencyKey: `${run}-${idempotencyKey}`,
          },
        );
        const scope = `${merchant} ${mode} ${idempotencyKey}`;
        const first = stands.get(scope);
        if (first === undefined) {
          expect(answer).toMatchObject({ code: 'ok', replayed: false });
          expect(answer.json).toMatchObject({
            mode,
            amount_units: amountUnits,
            expected_wallet: merchants[merchant]?.wallets[mode].base,
          });
          stands.set(scope, { amountUnits, answer });
        } else if (first.amountUnits === amountUnits) {
          expect(answer).toMatchObject({ code: 'ok', replayed: true, json: first.answer.json });
        } else {
          expect(answer.code).toBe('idempotency_key_reused');
          expect(JSON.stringify(answer)).not.toContain(first.answer.json.id);
        }
      }
      const ids = [...stands.values()].map(({ answer }) => answer.json.id);
      expect(new Set(ids).size).toBe(ids.length);
      const rows = await service.query<{ scope: string }>(
        `select merchant_id || ' ' || mode || ' ' || idempotency_key as scope from payment_intents where idempotency_key like $1`,
        [`${run}-%`],
      );
      const expected = [...stands.keys()].map((scope) => {
        const [merchant, mode, key] = scope.split(' ');
        return `${merchants[Number(merchant)]?.id} ${mode} ${run}-${key}`;
      });
      expect(rows.map(({ scope }) => scope).sort()).toEqual(expected.sort());
    }),
    { numRuns: 100 },
  );
});
