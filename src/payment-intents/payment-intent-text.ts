// An intent as public JSON, written straight from what PostgreSQL returns. A page of a list has twenty of them: by way of
// rows and messages they would cost several times what everything else does. `test/payment-intent-text.test.ts` holds
// both ways to the same text.

import { getAddress } from 'viem/utils';
import { networks, usdcDecimals, usdcSymbol } from '../contract/chains.ts';
import { formatIdentifier } from '../database/identifiers.ts';

/** The columns of an intent that are shown, and its merchant. */
const columns = [
  'id',
  'merchant_id',
  'mode',
  'status',
  'network',
  'amount_units',
  'expected_wallet',
  'lane',
  'metadata',
  'created_at',
  'expires_at',
  'amount_received_units',
  'payments_count',
  'labels',
  'succeeded_at',
  'canceled_at',
  'expired_at',
] as const;

/** These columns as `pg` returns them: times, large numbers and the metadata as text. */
export type ShownColumns = Readonly<Record<(typeof columns)[number], unknown>>;

/** The columns for a SELECT, of the table or subquery with that alias. */
export const shownColumns = (alias: string): string =>
  columns
    // Without the cast `pg` would parse it.
    .map((column) => (column === 'metadata' ? `${alias}.metadata::text as metadata` : `${alias}.${column}`))
    .join(', ');

/** What the JSON has of an intent's network: before and behind the amount. */
const networkTexts = new Map(
  networks.map(({ id, mode, chain, chainId, confirmationsRequired, usdcAddress }) => [
    `${id} ${mode}`,
    [
      `"mode":"${mode}","chain":"${chain}","chain_id":${chainId},"confirmations_required":${confirmationsRequired}`,
      `"decimals":${usdcDecimals},"token_symbol":"${usdcSymbol}","token_address":"${usdcAddress}"`,
    ],
  ]),
);

const statuses: ReadonlySet<unknown> = new Set([
  'requires_payment',
  'processing',
  'succeeded',
  'expired',
  'canceled',
]);
const lanes: ReadonlySet<unknown> = new Set(['sdk', 'manual']);

/**
 * The JSON of an intent without its client secret. Undefined for an intent that takes more than its columns, or whose
 * columns are not in the form that is known here: it has to be shown by way of its message, which also throws for a value
 * of a newer version.
 */
export function paymentIntentText(row: ShownColumns): string | undefined {
  const network = networkTexts.get(`${row.network} ${row.mode}`);
  const createdAt = momentOf(row.created_at);
  const expiresAt = momentOf(row.expires_at);
  const minutes = minutesBetween(createdAt, expiresAt);
  if (
    network === undefined ||
    minutes === undefined ||
    row.payments_count !== 0 ||
    !statuses.has(row.status) ||
    !lanes.has(row.lane) ||
    typeof row.metadata !== 'string' ||
    !Buffer.isBuffer(row.expected_wallet)
  ) {
    return undefined;
  }
  const labels = row.labels as readonly string[] | null;
  return (
    `{"id":"${formatIdentifier('pi', row.id as string)}","status":"${row.status}",${network[0]},` +
    `"amount_units":${row.amount_units},${network[1]},` +
    `"expected_wallet":"${getAddress(`0x${row.expected_wallet.toString('hex')}`)}","expires_at":"${expiresAt}",` +
    `"expires_in_minutes":${minutes},"lane":"${row.lane}","metadata":${compact(row.metadata)},` +
    `"created_at":"${createdAt}","amount_received_units":${row.amount_received_units},"payments_count":0` +
    `${labels === null || labels.length === 0 ? '' : `,"labels":${JSON.stringify(labels)}`}` +
    `${moment('succeeded_at', row.succeeded_at)}${moment('canceled_at', row.canceled_at)}` +
    `${moment('expired_at', row.expired_at)}}`
  );
}

/** As PostgreSQL writes a moment where the session's time zone is UTC. */
const utc = /^(\d{4}-\d\d-\d\d) (\d\d:\d\d:\d\d)(?:\.(\d{1,3}))?\+00$/;

/** RFC 3339 in UTC with milliseconds. */
function momentOf(value: unknown): string {
  const [, date, time, fraction = ''] = utc.exec(String(value)) ?? [];
  return time === undefined
    ? new Date(value as string).toISOString()
    : `${date}T${time}.${fraction.padEnd(3, '0')}Z`;
}

function moment(name: string, value: unknown): string {
  return value === null ? '' : `,"${name}":"${momentOf(value)}"`;
}

/** Whole minutes of less than a day; undefined for anything else. */
function minutesBetween(begin: string, end: string): number | undefined {
  const isWhole = begin.slice(16) === end.slice(16);
  const minuteOf = (text: string) => Number(text.slice(11, 13)) * 60 + Number(text.slice(14, 16));
  const minutes = (minuteOf(end) - minuteOf(begin) + 1_440) % 1_440;
  return isWhole && minutes > 0 ? minutes : undefined;
}

/** The text that this service writes has no spaces between its parts; what was written by hand may. */
function compact(json: string): string {
  return /\s/.test(json) ? JSON.stringify(JSON.parse(json)) : json;
}
