// Runs a few histories. `test/faults/settlement-model.test.ts` runs more.

import { testHistories } from './support/check-histories.ts';

testHistories(40);
