// The metrics of payments by a signature. When their transfers arrive is counted by the chain's watcher.

import { refusalReasons } from '../contract/x402.ts';
import type { Instruments } from './instruments.ts';

interface ChainName {
  mode: string;
  chain: string;
}

export function createPayMetrics({ counter }: Instruments) {
  const sent = counter(
    'authorizations_sent_total',
    'Signed authorizations that were given to a facilitator.',
    ['mode', 'chain'],
  );
  const refused = counter(
    'authorizations_refused_total',
    'Signed authorizations that were refused before a facilitator was asked, by reason.',
    ['reason'],
  );
  const answers = counter(
    'facilitator_answers_total',
    'Answers of facilitators, by outcome. Nothing follows from them: the chain decides.',
    ['mode', 'chain', 'outcome'],
  );
  return {
    /** Counts from 0 for a chain that payers can pay on by a signature. */
    begin({ mode, chain }: ChainName) {
      for (const reason of refusalReasons) refused.inc({ reason }, 0);
      sent.inc({ mode, chain }, 0);
      for (const outcome of ['accepted', 'refused']) answers.inc({ mode, chain, outcome }, 0);
    },
    /** Counts an authorization that was stored and given to a facilitator. */
    sent: ({ mode, chain }: ChainName) => sent.inc({ mode, chain }),
    /** Counts one that was refused before, by x402's word. */
    refused: (reason: string) => refused.inc({ reason }),
    /** Counts what a facilitator has answered. */
    answered: ({ mode, chain }: ChainName, isAccepted: boolean) =>
      answers.inc({ mode, chain, outcome: isAccepted ? 'accepted' : 'refused' }),
  };
}
