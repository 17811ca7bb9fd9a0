/** Keeps a value for each configured key that distinguishes it from another with the same version. */
export default [
  `
      create table key_checks (
        name text not null,
        version smallint not null,
        value text not null,
        primary key (name, version)
      )`,
];
