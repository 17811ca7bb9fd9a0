/**
 * Keeps which authorizations a transfer may have used whose receipt no node serves. Processes of the release before do not know
 * of it: a trigger keeps them from releasing one.
 */
export default [
  'alter table authorizations add column is_doubtful boolean not null default false',
  `
      create function authorizations_keep_doubtful_fn() returns trigger as $$
      begin new.status := old.status; return new; end;
      $$ language plpgsql`,
  `
      create trigger keep_doubtful before update of status on authorizations for each row
      when (new.status = 'released' and new.is_doubtful) execute function authorizations_keep_doubtful_fn()`,
];
