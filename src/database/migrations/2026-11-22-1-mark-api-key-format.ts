/** Marks API keys that end in the CRC-32 of the first release. Processes of that release still issue them. */
export default [
  `
      alter table api_keys
        add column format text not null default 'crc32',
        add constraint api_keys_format_check check (format in ('crc32', 'keyed'))`,
];
