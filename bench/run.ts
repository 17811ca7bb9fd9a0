// `npm run bench` compares our doors with hand-written alternatives. Options answer further questions:
//
//   --rows            does a create stay fast as the table grows
//   --reads           how fast are reads of a large table, compared with a hand-written alternative
//   --cancels         what does a cancel cost, compared with a create and with a hand-written alternative
//   --webhooks        how many deliveries a second, and how late while other endpoints never answer
//   --beside          do creates stay fast while deliveries fail and intents expire
//   --removal         how fast are old events removed, and do new ones get their positions as fast
//   --money           is an order found among many, exported, and returned without cost
//   --console         how fast are the console's views, and what does polling cost
//   --checkouts       do creates stay fast while checkouts are open
//   --soak            does memory stay flat
//   --settlement      how fast is a chain followed, what does it cost, and do creates notice
//   --hostile-blocks  does a block that a stranger has filled cost more than its size
//   --local-chains    how much memory and disk do the local chains take
//   --inserts         which statement inserts fastest
//   --schema          what do the rules of a row cost
//   --indexes         what does each index cost, and what is it for
//   --create-indexes  what do the indexes of an intent's life cost a create
//   --cost            processor time per answer; the only report that is not also written beside this file
//   --authorizations  how many payments by signature a second, and do creates notice

import { parseArgs } from 'node:util';
import { measureAuthorizations } from './authorizations.ts';
import { compareBeside } from './beside.ts';
import { compareCancels } from './cancels.ts';
import { compareCheckouts } from './checkouts.ts';
import { compareContenders } from './compare.ts';
import { measureConsole } from './console.ts';
import { compareCosts } from './cost.ts';
import { compareCreateIndexes } from './create-indexes.ts';
import { measureHostileBlocks } from './hostile-blocks.ts';
import { compareIndexes } from './indexes.ts';
import { compareInserts } from './inserts.ts';
import { measureLocalChains } from './local-chains.ts';
import { measureMoney } from './money.ts';
import { compareReads } from './reads.ts';
import { measureRemoval } from './removal.ts';
import { growTable } from './rows.ts';
import { compareSchemas } from './schema.ts';
import { measureSettlement } from './settlement.ts';
import { soak } from './soak.ts';
import { measureWebhooks } from './webhooks.ts';

const { values } = parseArgs({
  options: {
    rows: { type: 'boolean' },
    soak: { type: 'boolean' },
    inserts: { type: 'boolean' },
    cost: { type: 'boolean' },
    schema: { type: 'boolean' },
    reads: { type: 'boolean' },
    cancels: { type: 'boolean' },
    webhooks: { type: 'boolean' },
    beside: { type: 'boolean' },
    removal: { type: 'boolean' },
    money: { type: 'boolean' },
    console: { type: 'boolean' },
    checkouts: { type: 'boolean' },
    indexes: { type: 'boolean' },
    'create-indexes': { type: 'boolean' },
    settlement: { type: 'boolean' },
    'hostile-blocks': { type: 'boolean' },
    authorizations: { type: 'boolean' },
    'local-chains': { type: 'boolean' },
    /** How often each measurement is repeated. */
    rounds: { type: 'string', default: '5' },
    /** How long each measurement takes. */
    seconds: { type: 'string' },
    /** How many rows a table has, in millions. */
    million: { type: 'string' },
    /** How long `--soak` and `--local-chains` take. */
    minutes: { type: 'string', default: '10' },
  },
});
const rounds = Number(values.rounds);
// A large table is measured for longer: after a checkpoint every page is written in full once, and it has
// more pages. Attempts that hang take ten seconds, and what follows them has to be measured too.
const usualSeconds = values.webhooks || values.beside ? 20 : values.rows || values.settlement ? 8 : 4;
const seconds = Number(values.seconds ?? usualSeconds);
const rows =
  Number(values.million ?? (values.beside || values.indexes || values['create-indexes'] ? 1 : 10)) *
  1_000_000;

if (values.rows) await growTable({ rounds, seconds, rows });
else if (values.soak) await soak({ minutes: Number(values.minutes) });
else if (values.settlement) await measureSettlement({ rounds, seconds });
else if (values['hostile-blocks']) await measureHostileBlocks({ rounds });
else if (values['local-chains']) await measureLocalChains({ minutes: Number(values.minutes) });
else if (values.inserts) await compareInserts({ rounds });
else if (values.schema) await compareSchemas({ rounds, seconds });
else if (values.reads) await compareReads({ rounds, seconds, rows });
else if (values.cancels) await compareCancels({ rounds, seconds });
else if (values.webhooks) await measureWebhooks({ rounds, seconds });
else if (values.beside) await compareBeside({ rounds, seconds, rows, waiting: 100_000 });
else if (values.authorizations) await measureAuthorizations({ rounds, seconds });
else if (values.money) await measureMoney({ rounds, seconds, rows });
else if (values.console) await measureConsole({ rounds, rows });
else if (values.removal) await measureRemoval({ rounds });
else if (values.checkouts) await compareCheckouts({ rounds, seconds });
else if (values.indexes) await compareIndexes({ rounds, seconds, rows });
else if (values['create-indexes']) await compareCreateIndexes({ rounds, seconds, rows });
else if (values.cost) await compareCosts({ rounds, seconds });
else await compareContenders({ rounds, seconds });
