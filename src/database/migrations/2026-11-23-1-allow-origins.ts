/** The origins of a merchant's pages, to which the checkout returns and sends messages. */
export default [
  `
      create table checkout_settings (
        merchant_id     uuid           not null,
        mode            text           not null,
        allowed_origins text[]         not null,
        updated_at      timestamptz(3) not null,
        primary key (merchant_id, mode),
        constraint checkout_settings_merchant_id_foreign foreign key (merchant_id) references merchants (id),
        constraint checkout_settings_mode_check check (mode in ('testnet', 'mainnet'))
      )`,
];
