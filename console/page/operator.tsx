// What only an operator looks at: the chains, and the merchants with their keys.

import { timestampMs } from '@bufbuild/protobuf/wkt';
import { shownDuration } from '../../checkout/page/time.ts';
import { type Chain, ChainState } from '../../src/contract/gen/console/v1/console_service_pb.ts';
import { api, useScope } from './api.ts';
import { Shown, useLoaded } from './loading.tsx';
import { Facts, Table } from './tables.tsx';
import { Badge, Copyable, chainOf, When } from './values.tsx';
import type { Tone } from './words.ts';

export function Chains() {
  const chains = useLoaded('chains', () => api.listChains({}));
  return (
    <>
      <h1>Chains</h1>
      <Shown of={chains}>
        {({ chains: rows }) => (
          <ul class="cards">
            {rows.map((row) => (
              <ChainCard key={String(row.chainId)} of={row} />
            ))}
          </ul>
        )}
      </Shown>
    </>
  );
}

function ChainCard({ of: chain }: { of: Chain }) {
  const [label, tone, advice] = stateOf(chain);
  const settings = chainOf(chain.chainId);
  const nodes = chain.nodesCount || 'none are configured for this process';
  const cannotPay = 'cannot pay: no facilitator';
  return (
    <li>
      <h2 class="plain">
        {settings?.name} <Badge label={label} tone={tone} />
      </h2>
      {advice !== '' && <p>{advice}</p>}
      {chain.state !== ChainState.UNWATCHED && (
        <Facts
          of={{
            'Read up to': `${chain.readNumber} of ${chain.headNumber}`,
            'That block is of': <When at={chain.readTime} />,
            'Final up to': String(chain.finalizedNumber),
            Nodes: chain.nodesCount === 1 ? 'one: its blocks are not verified' : nodes,
            'Payers without gas': chain.hasFacilitator ? 'can pay by a signature' : cannotPay,
          }}
        />
      )}
    </li>
  );
}

function stateOf({ state, seenAt, rpcVariable }: Chain): [label: string, tone: Tone, advice: string] {
  switch (state) {
    case ChainState.WATCHED:
      return ['Watched', 'good', ''];
    case ChainState.IDLE: {
      const advice = 'No process watches it. Check that one with the role watcher is running, and its log.';
      return ['Stalled', 'bad', advice];
    }
    case ChainState.SILENT: {
      const silent = shownDuration(Date.now() - (seenAt === undefined ? 0 : timestampMs(seenAt)));
      const advice = `Its node has not answered for ${silent}: look at the node, or at ${rpcVariable}.`;
      return ['Stalled', 'bad', advice];
    }
    case ChainState.BEHIND:
      return ['Behind', 'bad', 'Payments are seen late until the blocks in between are read.'];
    default: {
      const advice = `Nobody sees payments here. Set ${rpcVariable} to the addresses of two nodes, and restart.`;
      return ['Not watched', 'over', advice];
    }
  }
}

const keyTones: Readonly<Record<string, Tone>> = { active: 'good', expiring: 'busy', revoked: 'bad' };

export function Merchants() {
  const { merchants, merchant } = useScope();
  const keys = useLoaded(`keys ${merchant.id}`, () => api.listApiKeys({}), 0);
  return (
    <>
      <h1>Merchants and keys</h1>
      <p class="lead">
        Read-only. Create merchants, wallets and keys on the command line; a key is shown there once.
      </p>
      <Table
        rows={merchants}
        keyOf={({ id }) => id}
        columns={{ Merchant: ({ name }) => name, Id: ({ id }) => <Copyable text={id} what="id" /> }}
      />
      <h2>Keys of {merchant.name}</h2>
      <Shown of={keys}>
        {({ apiKeys }) =>
          apiKeys.length === 0 ? (
            <p class="state">It has no key, and can call nothing.</p>
          ) : (
            <Table
              rows={apiKeys}
              keyOf={({ id }) => id}
              columns={{
                Key: ({ hint }) => <code translate={false}>{hint}</code>,
                Mode: ({ mode }) => (mode === 'testnet' ? 'Test' : 'Live'),
                Status: ({ status }) => <Badge label={status} tone={keyTones[status] ?? 'over'} />,
                Id: ({ id }) => <Copyable text={id} what="id" />,
                Made: ({ createdAt }) => <When at={createdAt} />,
              }}
            />
          )
        }
      </Shown>
    </>
  );
}
