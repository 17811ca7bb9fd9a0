// The console: who is signed in, whose business is looked at, and the view of the path.

import { render } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import type { Merchant } from '../../src/contract/gen/console/v1/console_service_pb.ts';
import type { Mode } from '../../src/contract/gen/words.ts';
import { callAs, consoleApi } from './api.ts';
import { Export } from './export.tsx';
import { Home } from './home.tsx';
import { Shown, useLoaded } from './loading.tsx';
import { Chains, Merchants } from './operator.tsx';
import { Payment } from './payment.tsx';
import { Payments } from './payments.tsx';
import { Refunds } from './refunds.tsx';
import { useLocation } from './routing.tsx';
import { ScopeContext } from './scope.ts';
import { Search } from './search.tsx';
import { chosenMerchant, forgetSession, type NoSession, openSession, type Session } from './session.ts';
import { Shell } from './shell.tsx';
import { UnattributedTransfer, UnattributedTransfers } from './unattributed.tsx';
import { Endpoint, Endpoints } from './webhooks.tsx';

function View({ url, merchants }: { url: URL; merchants: readonly Merchant[] }) {
  const [, section = '', id = ''] = url.pathname.split('/');
  const parameters = url.searchParams;
  switch (section) {
    case 'payments':
      return id === '' ? <Payments parameters={parameters} /> : <Payment id={id} />;
    case 'unattributed':
      return id === '' ? <UnattributedTransfers /> : <UnattributedTransfer id={id} />;
    case 'refunds':
      return <Refunds />;
    case 'webhooks':
      return id === '' ? <Endpoints /> : <Endpoint id={id} />;
    case 'export':
      return <Export />;
    case 'chains':
      return <Chains />;
    case 'merchants':
      return <Merchants merchants={merchants} />;
    case 'search':
      return <Search text={parameters.get('q') ?? ''} />;
    default:
      return <Home parameters={url.searchParams} />;
  }
}

interface Chosen {
  id: string;
  mode: Mode;
}

/** What an operator looked at before, if it is still there. */
function chosenOf(merchants: readonly Merchant[]): Chosen | undefined {
  const [id, mode] = chosenMerchant.get().split(' ');
  const found = merchants.find((merchant) => merchant.id === id) ?? merchants[0];
  return found && { id: found.id, mode: mode === 'mainnet' ? 'mainnet' : 'testnet' };
}

function SignedIn({ session, onEnd }: { session: Session; onEnd: (reason: string) => void }) {
  const url = useLocation();
  const { token } = session;
  callAs({ token, onEnd });
  const merchants = useLoaded('merchants', async () => (await consoleApi.listMerchants({})).merchants, 0);
  const [chosen, setChosen] = useState<Chosen>();
  return (
    <Shown of={merchants}>
      {(all) => {
        const merchant = chosen ?? chosenOf(all);
        if (merchant === undefined) return <p class="state">There is no merchant yet.</p>;
        const choose = (next: Chosen) => {
          chosenMerchant.set(`${next.id} ${next.mode}`);
          setChosen(next);
        };
        const { isReadOnly, isOperator } = session;
        callAs({ token, onEnd, ...(isOperator && { merchant }) });
        const mode = session.mode ?? merchant.mode;
        const scope = { isReadOnly, isOperator, merchant: { id: merchant.id, mode } };
        return (
          <ScopeContext.Provider value={scope}>
            <Shell url={url} session={session} merchants={all} onChoose={choose} onEnd={onEnd}>
              <View key={`${merchant.id} ${mode} ${url.pathname}`} url={url} merchants={all} />
            </Shell>
          </ScopeContext.Provider>
        );
      }}
    </Shown>
  );
}

function App({ opened }: { opened: Session | NoSession }) {
  const [session, setSession] = useState(opened);
  useEffect(() => {
    // A link that is opened in a tab of the console: the address changes, and the page does not.
    const onHash = () => location.hash.startsWith('#cl_') && location.reload();
    addEventListener('hashchange', onHash);
    return () => removeEventListener('hashchange', onHash);
  }, []);
  if ('reason' in session) {
    return (
      <main class="alone">
        <h1>Not signed in</h1>
        <p>{session.reason}</p>
        <p class="soft">
          An operator prints one with <code>npm run -s admin -- console link --for "Your name"</code>.
        </p>
      </main>
    );
  }
  const onEnd = (reason: string) => {
    forgetSession();
    setSession({ reason });
  };
  return <SignedIn session={session} onEnd={onEnd} />;
}

const page = document.getElementById('page') as HTMLElement;
openSession().then((opened) => render(<App opened={opened} />, page));
