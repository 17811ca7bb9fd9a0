// A process that runs the local chain of Base, prints its address, and waits to be killed.

import { pino } from 'pino';
import { startLocalChains } from '../../src/embedded/run-local-chains.ts';

const [dataDir = ''] = process.argv.slice(2);
const local = await startLocalChains({
  dataDir,
  isBusy: () => true,
  logger: pino({ level: 'silent' }),
  chains: ['base'],
});
console.log('missing' in local ? local.missing : local.chains.base?.rpcUrl);
setInterval(() => {}, 1_000);
