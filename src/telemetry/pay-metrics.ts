// The metrics of payments by a signature.

import { Counter, Histogram, type Registry } from 'prom-client';

export interface PayMetrics {
  /** Counts from 0 for a chain that payers can pay on by a signature. */
  begin(mode: string, chain: string): void;
  /** Counts an authorization that was stored and given to a facilitator. */
  sent(mode: string, chain: string): void;
  /** Counts one that was refused before, by x402's word. */
  refused(reason: string): void;
  /** Counts what a facilitator has answered. */
  facilitatorAnswered(mode: string, chain: string, isAccepted: boolean): void;
  /** Records how long it took from the signature to the record of its transfer. */
  landed(mode: string, chain: string, ms: number): void;
}

/** In seconds: a block, some blocks, and the time that a request waits. */
const landingBuckets = [1, 2, 3, 5, 8, 13, 20, 25];

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
  const landings = new Histogram({
    name: 'payment_intents_authorization_landing_seconds',
    help: 'Time from a signature to the record of its transfer, of those that were waited for.',
    labelNames,
    buckets: landingBuckets,
    registers,
  });
  return {
    begin(mode, chain) {
      sent.inc({ mode, chain }, 0);
      for (const outcome of ['accepted', 'refused']) answers.inc({ mode, chain, outcome }, 0);
      landings.zero({ mode, chain });
    },
    sent: (mode, chain) => sent.inc({ mode, chain }),
    refused: (reason) => refused.inc({ reason }),
    facilitatorAnswered: (mode, chain, isAccepted) =>
      answers.inc({ mode, chain, outcome: isAccepted ? 'accepted' : 'refused' }),
    landed: (mode, chain, ms) => landings.observe({ mode, chain }, ms / 1_000),
  };
}
