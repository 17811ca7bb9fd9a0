// The same histories for each change. `HISTORIES=100000 npm run test:faults -- settlement-model` plays others, as many.

import { testHistories } from '../support/check-histories.ts';

testHistories(200);
