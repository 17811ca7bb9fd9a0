// A few histories; `test/faults/settlement-model.test.ts` has more.

import { testHistories } from './support/check-histories.ts';

testHistories(40);
