import { defineEntity, p } from '@mikro-orm/core';
import { modeNames } from '../../contract/words.ts';
import { modeType } from './network.ts';

/** What the console's figures count. */
const reportKinds = ['received', 'refunded', 'succeeded', 'expired', 'canceled'] as const;
export type ReportKind = (typeof reportKinds)[number];

/** The trigger that books what a table's updates change in the figures. Its function is in the migration `show-figures`. */
export const reportTrigger = (table: 'transfers' | 'payment_intents') => ({
  name: `${table}_reported`,
  timing: 'after' as const,
  events: ['update' as const],
  forEach: 'statement' as const,
  expression:
    `create trigger ${table}_reported after update on ${table} referencing old table as was new table as now ` +
    `for each statement execute function report_${table}()`,
});

/**
 * What a statement has changed in an hour's figures. PostgreSQL writes it, in the statement's transaction. A payment that is reverted or detached is
 * the negative of what was booked. Folded into `report_hours` within seconds.
 */
export const ReportChangeEntity = defineEntity({
  name: 'ReportChange',
  tableName: 'report_changes',
  properties: {
    id: p.uuid().primary(),
    merchantId: p.uuid(),
    mode: p.enum(modeNames).nativeEnumName(modeType),
    hour: p.datetime(3).columnType('timestamptz(3)'),
    chainId: p.integer(),
    kind: p.enum(reportKinds).nativeEnumName('report_kind'),
    count: p.bigint(),
    units: p.decimal().columnType('numeric'),
  },
  indexes: [{ name: 'report_changes_hour_index', properties: ['merchantId', 'mode', 'hour'] }],
});

/** The figures of an hour, without the changes that are not folded yet. Kept for ever. */
export const ReportHourEntity = defineEntity({
  name: 'ReportHour',
  tableName: 'report_hours',
  properties: {
    merchantId: p.uuid().primary(),
    mode: p.enum(modeNames).nativeEnumName(modeType).primary(),
    /** By the blocks of transfers, and by the ends of intents. */
    hour: p.datetime(3).columnType('timestamptz(3)').primary(),
    chainId: p.integer().primary(),
    kind: p.enum(reportKinds).nativeEnumName('report_kind').primary(),
    count: p.bigint(),
    /** Of received and refunded ones, in the token's smallest unit. */
    units: p.decimal().columnType('numeric'),
  },
});
