/** The sums of refunds are kept like those of intents: same triggers, same table, with the refund's id. */
export default [
  // Otherwise a transfer written meanwhile could be missed both here and by the triggers.
  'lock table transfers in share row exclusive mode',
  ...['insert', 'update'].flatMap((change) => [
    `
        do $do$ begin
          execute replace(pg_get_functiondef('sum_payments_${change}'::regproc), 't.payment_intent', 'coalesce(t.payment_intent, t.refund)');
        end $do$`,
  ]),
  `
      insert into payment_sums
      select t.refund, t.state, t.counts, coalesce(t.labels, '{}'), count(*), sum(t.amount_units)
        from transfers t join refunds r on r.id = t.refund and r.labels is not null
       group by 1, 2, 3, 4`,
];
