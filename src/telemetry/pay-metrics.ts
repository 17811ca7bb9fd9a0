// The metrics of payments by a signature. When their transfers arrive is counted by the chain's watcher.

import { Counter, type Registry } from 'prom-client';
import { refusalReasons } from '../contract/x402.ts';

interface ChainName {
  mode: string;
  chain: string;
}

export interface PayMetrics {
  /** Counts from 0 for a chain that payers can pay on by a signature. */
  begin(chain: ChainName): void;
  /** Counts an authorization that was stored and given to a facilitator. */
  sent(chain: ChainName): void;
  /** Counts one that was refused before, by x402's word. */
  refused(reason: string): void;
  /** Counts what a facilitator has answered. */
  answered(chain: ChainName, isAccepted: boolean): void;
}

export function createPayMetrics(registry: Registry): PayMetrics {
  const labelNames = ['mode', 'chain'] as const;
  const registers = [registry];
  const sent = new Counter({
    name: 'payment_intents_authorizations_sent_total',
    help: 'Signed authorizations that were given to a facilitator.',
    labelNames,
    registers,
  });
  const refused = new Counter({
    name: 'payment_intents_authorizations_refused_total',
    help: 'Signed authorizations that were refused before a facilitator was asked, by reason.',
    labelNames: ['reason'],
    registers,
  });
  const answers = new Counter({
    name: 'payment_intents_facilitator_answers_total',
    help: 'Answers of facilitators, by outcome. Nothing follows from them: the chain decides.',
    labelNames: [...labelNames, 'outcome'],
    registers,
  });
  return {
    begin({ mode, chain }) {
      for (const reason of refusalReasons) refused.inc({ reason }, 0);
      sent.inc({ mode, chain }, 0);
      for (const outcome of ['accepted', 'refused']) answers.inc({ mode, chain, outcome }, 0);
    },
    sent: ({ mode, chain }) => sent.inc({ mode, chain }),
    refused: (reason) => refused.inc({ reason }),
    answered: ({ mode, chain }, isAccepted) =>
      answers.inc({ mode, chain, outcome: isAccepted ? 'accepted' : 'refused' }),
  };
}
