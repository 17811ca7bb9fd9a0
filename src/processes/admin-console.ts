// `admin console`: links that open the console for a person, and their sessions.

import { Option } from 'commander';
import { consoleAddress, loadConfig } from '../config/config.ts';
import type { SessionSummary } from '../console/sessions.ts';
import { modeNames } from '../contract/words.ts';
import { AdministrationError } from '../merchants/operator-ids.ts';
import { idOption, parseDuration } from './admin-options.ts';
import type { Row } from './admin-program.ts';
import {
  changing,
  command,
  formatMinute,
  group,
  inSnakeCase,
  peppersOf,
  print,
  withDatabase,
} from './admin-program.ts';

/** Loaded only by commands that run, because it loads the database. */
const loadLinks = () => import('../console/sessions.ts');

export function addConsoleCommands(): void {
  const commands = group('console', 'who may open the console');
  const ofMerchant = idOption('merchant', 'mer', 'only this merchant; without it, an operator');

  command(commands, 'link --for "Anna Meier"')
    .description('print a link that opens the console once, within ten minutes')
    .requiredOption('--for <name>', 'whose session it will be')
    .addOption(ofMerchant.makeOptionMandatory(false))
    .addOption(new Option('--mode <mode>', "the merchant's mode").choices([...modeNames]))
    .option('--read-only', 'nothing can be changed')
    .addOption(
      new Option('--expires-in <duration>', 'how long the session lasts, at most 7d')
        .default(12 * 3_600_000, '12h')
        .argParser(parseDuration),
    )
    .action((options) => {
      const address = addressOfConsole();
      if ((options.merchant === undefined) !== (options.mode === undefined)) {
        throw new AdministrationError('--merchant and --mode go together');
      }
      return changing(async (database) => {
        const { code, ...session } = await (await loadLinks()).createLink(
          database.orm.em,
          await peppersOf(database),
          {
            name: options.for,
            ...(options.merchant && { merchant: { id: options.merchant, mode: options.mode } }),
            isReadOnly: options.readOnly === true,
            lastsMs: options.expiresIn,
          },
        );
        const link = `${address}/#${code}`;
        print({ json: { ...inSnakeCase(session), link }, rows: [{ ...rowOf(session), link }] });
        return { id: session.sessionId };
      });
    });

  command(commands, 'list')
    .description('list the sessions of the last 30 days, newest first')
    .action(() =>
      withDatabase(async ({ orm }) => {
        const sessions = await (await loadLinks()).listSessions(orm.em);
        print(
          { json: sessions.map(inSnakeCase), rows: sessions.map(rowOf) },
          'There are no sessions: "console link" begins one.',
        );
      }),
    );

  command(commands, 'revoke --session cs_…')
    .description('end a session from now on, on every running process, or make its link useless')
    .addOption(idOption('session', 'cs'))
    .action((options) =>
      changing(async ({ orm }) => {
        const session = await (await loadLinks()).revokeSession(orm.em, options.session);
        print({ json: inSnakeCase(session), rows: [rowOf(session)] });
      }),
    );
}

/** Returns the console's address. Throws AdministrationError if the console is off. */
function addressOfConsole(): string {
  const address = consoleAddress(loadConfig(process.env, []));
  if (address === undefined) throw new AdministrationError('the console is off: CONSOLE_PORT turns it on');
  return address;
}

function rowOf({ sessionId, name, merchantId, mode, readOnly, status, expiresAt }: SessionSummary): Row {
  return {
    session: sessionId,
    name,
    sees: merchantId === undefined ? 'all merchants' : `${merchantId} ${mode}`,
    may: readOnly ? 'read' : 'read and change',
    status,
    'until (UTC)': expiresAt ? formatMinute(expiresAt) : '',
  };
}
