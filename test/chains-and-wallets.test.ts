import fc from 'fast-check';
import { base, baseSepolia, polygon, polygonAmoy } from 'viem/chains';
import * as tokens from 'viem/tokens';
import { getAddress, isAddress, toEventSelector, toFunctionSelector } from 'viem/utils';
import { describe, expect, test } from 'vitest';
import {
  bridgedUsdcAddresses,
  chainNamed,
  networkFor,
  networks,
  tokenContractAddresses,
} from '../src/contract/chains.ts';
import * as eip3009 from '../src/contract/eip-3009.ts';
import { parseWalletAddress } from '../src/contract/wallet-address.ts';
import { chainNames, modeNames } from '../src/contract/words.ts';

const viemChains = { mainnet: { base, polygon }, testnet: { base: baseSepolia, polygon: polygonAmoy } };

test('the functions and the event of EIP-3009 are found by the hashes of their signatures', () => {
  const fields = 'address,address,uint256,uint256,uint256,bytes32';
  const functions = ['transferWithAuthorization', 'receiveWithAuthorization'].flatMap((name) =>
    ['uint8,bytes32,bytes32', 'bytes'].map((signature) =>
      toFunctionSelector(`${name}(${fields},${signature})`).slice(2),
    ),
  );
  expect(eip3009.authorizationSelectors).toEqual(functions);
  expect(eip3009.transferWithAuthorization).toBe(`0x${functions[1]}`);
  expect(eip3009.authorizationState).toBe(toFunctionSelector('authorizationState(address,bytes32)'));
  expect(eip3009.authorizationUsedTopic).toBe(toEventSelector('AuthorizationUsed(address,bytes32)'));
});

describe('the table of chains agrees with viem', () => {
  test.each(modeNames.flatMap((mode) => chainNames.map((chain) => [mode, chain] as const)))(
    '%s %s',
    (mode, chain) => {
      const { chainId, tokenAddress, confirmationsRequired } = networkFor(mode, chain);
      expect(chainId).toBe(viemChains[mode][chain].id);
      expect(viemChains[mode][chain].testnet ?? false).toBe(mode === 'testnet');
      expect((tokens.usdc.addresses as Record<number, string>)[chainId]).toBe(tokenAddress);
      expect(isAddress(tokenAddress)).toBe(true);
      expect(confirmationsRequired).toBe(chain === 'base' ? 10 : 12);
      // What a payer's wallet is told of a chain that it does not know.
      const { nativeCurrency, rpcUrls, blockExplorers } = viemChains[mode][chain];
      expect(chainNamed(mode, chain)).toMatchObject({
        feeToken: nativeCurrency.symbol,
        publicRpcUrl: rpcUrls.default.http[0],
        explorer: blockExplorers.default.url,
      });
    },
  );

  test('the token contracts are those of native USDC', () => {
    const { symbol, decimals } = tokens.usdc;
    expect(networks.map((network) => [network.tokenSymbol, network.decimals])).toEqual(
      networks.map(() => [symbol, decimals]),
    );
  });

  test('bridged tokens are not accepted for payment, and are refused as wallets', () => {
    const native = networks.map(({ tokenAddress }) => tokenAddress);
    for (const address of Object.values(bridgedUsdcAddresses)) {
      expect(getAddress(address)).toBe(address);
      expect(native).not.toContain(address);
    }
    expect([...tokenContractAddresses].sort()).toEqual(
      [...native, ...Object.values(bridgedUsdcAddresses)].map((address) => address.toLowerCase()).sort(),
    );
  });
});

const address = fc
  .uint8Array({ minLength: 20, maxLength: 20 })
  .map((bytes) => Buffer.from(bytes).toString('hex'))
  .filter((hex) => BigInt(`0x${hex}`) > 0xffffn);

describe('wallet addresses', () => {
  test('lower-case, upper-case and checksummed forms are the same address, returned with its checksum', () => {
    fc.assert(
      fc.property(address, (hex) => {
        const checksummed = getAddress(`0x${hex}`);
        for (const form of [`0x${hex}`, `0x${hex.toUpperCase()}`, checksummed]) {
          expect(parseWalletAddress(form)).toEqual({ address: checksummed });
        }
      }),
    );
  });

  test('any other mix of upper and lower case is refused', () => {
    fc.assert(
      fc.property(address, fc.array(fc.boolean(), { minLength: 40, maxLength: 40 }), (hex, upper) => {
        const mixed = `0x${[...hex].map((digit, i) => (upper[i] ? digit.toUpperCase() : digit)).join('')}`;
        const accepted = 'address' in parseWalletAddress(mixed);
        expect(accepted).toBe([`0x${hex}`, `0x${hex.toUpperCase()}`, getAddress(`0x${hex}`)].includes(mixed));
      }),
    );
  });

  test('text that is not an address is refused', () => {
    fc.assert(
      fc.property(
        fc.oneof(fc.string(), fc.stringMatching(/^0x[0-9a-fA-F]{38,42}$/), fc.string({ unit: 'binary' })),
        (text) => {
          const parsed = parseWalletAddress(text);
          if ('address' in parsed)
            expect(isAddress(parsed.address) && parsed.address.toLowerCase() === text.toLowerCase()).toBe(
              true,
            );
          else expect(parsed.problem).toMatch(/^(must|has)/);
        },
      ),
    );
  });

  test('addresses that cannot be wallets are refused in every notation', () => {
    for (const hex of [0n, 1n, 0x11n, 0x100n, 0x1010n, 0xffffn].map((n) =>
      n.toString(16).padStart(40, '0'),
    )) {
      expect(parseWalletAddress(`0x${hex}`)).toHaveProperty('problem');
      expect(parseWalletAddress(`0x${hex.toUpperCase()}`)).toHaveProperty('problem');
    }
    expect(parseWalletAddress(`0x${'10000'.padStart(40, '0')}`)).toHaveProperty('address');
  });
});
