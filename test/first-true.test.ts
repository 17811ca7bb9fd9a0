import fc from 'fast-check';
import { expect, test } from 'vitest';
import { firstIndexWhere } from '../src/settlement/reorganisation.ts';

test('finds the first index for which the predicate holds, with fewer calls if it is near', async () => {
  const places = fc.nat(50_000).chain((count) => fc.tuple(fc.constant(count), fc.nat(count)));
  await fc.assert(
    fc.asyncProperty(places, async ([count, first]) => {
      let asked = 0;
      const found = await firstIndexWhere(count, async (place) => {
        expect(place).toBeGreaterThanOrEqual(0);
        expect(place).toBeLessThan(count);
        asked++;
        return place >= first;
      });
      expect(found).toBe(first);
      expect(asked).toBeLessThanOrEqual(2 * Math.log2(first + 1) + 2);
    }),
  );
});
