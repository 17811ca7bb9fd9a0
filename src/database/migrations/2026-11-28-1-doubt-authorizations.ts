/**
 * Marks authorizations that may have been used by a transfer whose receipt no node serves. Processes of the
 * previous release do not know the mark: a trigger keeps them from releasing such an authorization.
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
