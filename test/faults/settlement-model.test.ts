// `HISTORIES=100000 npm run test:faults -- settlement-model` is the soak.

import { testHistories } from '../support/check-histories.ts';

testHistories(1_000);
