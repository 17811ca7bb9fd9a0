// A facilitator for the local chains: x402's own packages, with an account that has coins for fees. It
// listens on its own port, which only this machine reaches. The packages are development dependencies.

import { once } from 'node:events';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { json } from 'node:stream/consumers';
import type { ChainNodes } from '../config/config.ts';
import { networkName } from '../contract/x402.ts';
import { createChainClient } from './chain-client.ts';
import { issuerAddress } from './contracts.ts';

/** Rejects if the packages are not installed. */
export async function startFacilitator({ chainId, urls: [rpcUrl] }: ChainNodes) {
  const [{ x402Facilitator }, { ExactEvmScheme }, { toFacilitatorEvmSigner }] = await Promise.all([
    import('@x402/core/facilitator'),
    import('@x402/evm/exact/facilitator'),
    import('@x402/evm'),
  ]);
  const client = createChainClient(rpcUrl);
  const account = issuerAddress;
  const signer = toFacilitatorEvmSigner({
    address: account,
    getCode: (call) => client.getCode(call),
    readContract: (call) => client.readContract(call as never),
    verifyTypedData: (call) => client.verifyTypedData(call as never),
    writeContract: (call) => client.writeContract({ ...call, account, chain: null } as never),
    sendTransaction: (call) => client.sendTransaction({ ...call, account, chain: null }),
    waitForTransactionReceipt: (call) => client.waitForTransactionReceipt(call),
  });
  const name = networkName(chainId) as `${string}:${string}`;
  const facilitator = new x402Facilitator().register(name, new ExactEvmScheme(signer));
  const answerTo = async (request: IncomingMessage): Promise<object | undefined> => {
    if (request.url === '/supported') return facilitator.getSupported();
    const { paymentPayload, paymentRequirements } = (await json(request)) as {
      paymentPayload: Parameters<typeof facilitator.verify>[0];
      paymentRequirements: Parameters<typeof facilitator.verify>[1];
    };
    if (request.url === '/verify') return facilitator.verify(paymentPayload, paymentRequirements);
    if (request.url === '/settle') return facilitator.settle(paymentPayload, paymentRequirements);
    return undefined;
  };
  const serve = async (request: IncomingMessage, response: ServerResponse) => {
    const answer = await answerTo(request).catch((reason) => ({ error: String(reason) }));
    const status = answer === undefined ? 404 : 'error' in answer ? 400 : 200;
    response.writeHead(status, { 'Content-Type': 'application/json' }).end(JSON.stringify(answer ?? {}));
  };
  const server = createServer((request, response) => void serve(request, response));
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    async stop() {
      server.closeAllConnections();
      server.close();
    },
  };
}
