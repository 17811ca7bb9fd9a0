/** Keeps what tells a key of the configuration from another with the same version. */
export default [
  `
      create table key_checks (
        name text not null,
        version smallint not null,
        value text not null,
        primary key (name, version)
      )`,
];
