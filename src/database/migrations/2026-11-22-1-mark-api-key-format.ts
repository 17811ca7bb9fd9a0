/** Which API keys end in the CRC-32 of the first release. A process of that release goes on issuing those. */
export default [
  `
      alter table api_keys
        add column format text not null default 'crc32',
        add constraint api_keys_format_check check (format in ('crc32', 'keyed'))`,
];
