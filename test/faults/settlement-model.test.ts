// The same histories in every run. `HISTORIES=100000 npm run test:faults -- settlement-model` plays others of both kinds.

import { testHistories } from '../support/check-histories.ts';

testHistories(200);
testHistories(60, { losesCommits: true });
