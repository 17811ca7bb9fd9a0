/** The sums of refunds are kept like those of intents, by the same triggers and in the same table, under the refund's id. */
export default [
  // No transfer is written between the rows that are summed here and those that the triggers see.
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
