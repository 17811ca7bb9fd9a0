import { describe, expect, test } from 'vitest';
import { doors, type Request } from './support/call.ts';
import { useService } from './support/use-service.ts';

const service = await useService();

async function countRows(): Promise<number> {
  return Number((await service.query<{ n: string }>('select count(*) as n from payment_intents'))[0]?.n);
}

const deep = (levels: number): unknown => (levels === 0 ? 'bottom' : { in: deep(levels - 1) });
const keys = (count: number) => Object.fromEntries(Array.from({ length: count }, (_, i) => [`k${i}`, i]));

/** Title, body, the faulty fields, and the message for the first of them. */
const refused: [string, Request, string[], RegExp][] = [
  ['no amount', {}, ['amount_units'], /integer from 1 to 9007199254740991/],
  ['an amount of zero', { amount_units: 0 }, ['amount_units'], /from 1/],
  ['a negative amount', { amount_units: -1 }, ['amount_units'], /from 1/],
  ['an amount of 2^53', { amount_units: 9007199254740992 }, ['amount_units'], /to 9007199254740991/],
  ['an unknown chain', { amount_units: 1, chain: 'solana' }, ['chain'], /"base" or "polygon"/],
  ['an unknown lane', { amount_units: 1, lane: 'api' }, ['lane'], /"sdk" or "manual"/],
  ['an unknown token', { amount_units: 1, token: 'DAI' }, ['token'], /"USDC"/],
  ...(
    [
      ['an empty wallet', '', /40 hexadecimal/],
      ['a short wallet', '0x1234', /40 hexadecimal/],
      ['a wallet with 0X', `0X${'1'.repeat(40)}`, /40 hexadecimal/],
      ['a wallet with a space', ` 0x${'1'.repeat(40)}`, /40 hexadecimal/],
      ['a wallet with a line break', `0x${'1'.repeat(40)}\n`, /40 hexadecimal/],
      ['a wallet with NUL', `0x${'1'.repeat(39)}\0`, /40 hexadecimal/],
      ['a name instead of a wallet', 'vitalik.eth', /40 hexadecimal/],
      ['a wrong checksum', '0xd8dA6BF26964aF9D7eEd9e03E53415D37aA96046', /EIP-55/],
      ['one letter in the other case', '0xD8dA6BF26964aF9D7eEd9e03E53415D37aA96045', /EIP-55/],
      ['the zero address', `0x${'0'.repeat(40)}`, /zero address/],
      ['a precompile', `0x${'0'.repeat(39)}9`, /contract built into the chain/],
      ['P256VERIFY', `0x${'0'.repeat(37)}100`, /contract built into the chain/],
      ['USDC on Base', '0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913', /token contract/],
      ['USDC on Polygon in lower case', '0x3c499c542cef5e3811e1192ce70d8cc03d5c3359', /token contract/],
      ['USDC on Base Sepolia', '0x036CbD53842c5426634e7929541eC2318f3dCF7e', /token contract/],
      ['USDC on Amoy', '0x41E94Eb019C0762f9Bfcf9Fb1E58725BfB0e7582', /token contract/],
      ['USDC.e', '0x2791Bca1f2de4661ED88A30C99A7a9449Aa84174', /token contract/],
      ['USDbC', '0xd9aAEc86B65D86f6A7B5B1b0c42FFA531710b6CA', /token contract/],
    ] as const
  ).map(([name, wallet_address, says]): [string, Request, string[], RegExp] => [
    name,
    { amount_units: 1, wallet_address },
    ['wallet_address'],
    says,
  ]),
  ['51 keys of metadata', { amount_units: 1, metadata: keys(51) }, ['metadata'], /at most 50 keys/],
  [
    'a key of 65 characters',
    { amount_units: 1, metadata: { ['k'.repeat(65)]: 1 } },
    ['metadata'],
    /64 characters/,
  ],
  [
    'more than 16 KiB',
    { amount_units: 1, metadata: { k: 'x'.repeat(16 * 1024) } },
    ['metadata'],
    /16384 bytes/,
  ],
  ['NUL in metadata', { amount_units: 1, metadata: { a: [{ b: 'x\0' }] } }, ['metadata'], /NUL/],
  ['NUL in a key', { amount_units: 1, metadata: { a: { 'x\0': 1 } } }, ['metadata'], /NUL/],
  ['2^53 in metadata', { amount_units: 1, metadata: { n: 9007199254740992 } }, ['metadata'], /strings?/],
  ['16 levels of metadata', { amount_units: 1, metadata: deep(16) }, ['metadata'], /deeper than 15 levels/],
  [
    'several faults at once',
    { amount_units: 0, chain: 'x', lane: 'x', token: 'x', wallet_address: 'x', metadata: keys(51) },
    ['amount_units', 'chain', 'lane', 'token', 'wallet_address', 'metadata'],
    /from 1/,
  ],
];

describe.each(doors)('refused over %s', (door) => {
  test.each(refused)('%s', async (name, body, fields, says) => {
    const rowsBefore = await countRows();
    const answer = await service.call('createPaymentIntent', body, { door });
    expect(answer.code).toBe('invalid_body');
    expect(await countRows()).toBe(rowsBefore);
    if (door === 'json' && name === '16 levels of metadata') {
      // JSON of that depth is refused before the metadata is checked.
      expect(answer.message).toMatch(/deeper than 16 levels/);
      return;
    }
    expect(answer.details.map(({ field }) => field).sort()).toEqual([...fields].sort());
    expect(answer.details.find(({ field }) => field === fields[0])?.message).toMatch(says);
  });

  test('neither the request nor the merchant has a wallet', async () => {
    await service.query(
      `delete from payout_wallets where merchant_id = $1 and mode = 'mainnet' and chain = 'polygon'`,
      [service.merchant.id],
    );
    const authorization = `Bearer ${service.merchant.keys.mainnet.apiKey}`;
    const answer = await service.call(
      'createPaymentIntent',
      { amount_units: 1, chain: 'polygon' },
      { door, authorization },
    );
    expect(answer).toMatchObject({ code: 'invalid_body' });
    expect(answer.details).toEqual([
      { field: 'wallet_address', message: expect.stringMatching(/no payout wallet on polygon for mainnet/) },
    ]);
    expect(
      (await service.call('createPaymentIntent', { amount_units: 1, chain: 'base' }, { door, authorization }))
        .code,
    ).toBe('ok');
  });
});

describe.each(doors)('accepted over %s', (door) => {
  test.each<[string, Request]>([
    ['50 keys', { metadata: keys(50) }],
    ['a key of 64 characters beyond the BMP', { metadata: { ['😀'.repeat(64)]: 1 } }],
    ['exactly 16 KiB', { metadata: { k: 'x'.repeat(16 * 1024 - 8) } }],
    ['15 levels of metadata', { metadata: deep(15) }],
    [
      '__proto__ and constructor',
      { metadata: JSON.parse('{"__proto__":{"a":1},"constructor":{"prototype":2}}') },
    ],
    ['an empty key', { metadata: { '': '' } }],
    ['2^53-1 and -(2^53-1)', { metadata: { a: 9007199254740991, b: -9007199254740991 } }],
    ['fractions and tiny numbers', { metadata: { a: 0.1, b: 1e-300, c: 5e-324 } }],
    [
      'null for every optional field',
      {
        chain: null,
        wallet_address: null,
        expires_in_minutes: null,
        lane: null,
        token: null,
        metadata: null,
      },
    ],
  ])('%s', async (_, body) => {
    const answer = await service.call('createPaymentIntent', { amount_units: 1, ...body }, { door });
    expect(answer, answer.message).toMatchObject({ code: 'ok' });
    expect(JSON.stringify(answer.json.metadata)).toBe(JSON.stringify(body.metadata ?? {}));
  });
});
