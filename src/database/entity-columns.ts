// Reads and writes rows of entities by prepared statements. MikroORM's own reading takes several times as long.

import type { EntityManager, EntitySchema } from '@mikro-orm/postgresql';

/** Converts between a table and the rows of its entity. */
export interface EntityColumns<Row> {
  /** The columns for a SELECT, of the table or subquery with that alias. */
  of(alias: string): string;
  /** An INSERT of the rows that are `$1`, as JSON. */
  insert: string;
  /** Rows for `json_populate_recordset`. */
  json(rows: readonly Row[]): string;
  /** The entity's row for a result of `pg`. */
  read(result: Readonly<Record<string, unknown>>): Row;
}

export function entityColumns<Row>(em: EntityManager, entity: EntitySchema): EntityColumns<Row> {
  const platform = em.getPlatform();
  const { props, tableName } = em.getMetadata(entity);
  const columns = props.map(({ name, fieldNames: [column = ''], customType, columnTypes: [type = ''] }) => ({
    name,
    column,
    convert: type.startsWith('timestamptz')
      ? dateOf
      : customType
        ? (value: unknown) => customType.convertToJSValue(value, platform)
        : (value: unknown) => value,
    write(value: unknown) {
      if (typeof value === 'bigint') return String(value);
      const isBytes = type === 'bytea' && value != null;
      return isBytes && customType ? customType.convertToDatabaseValue(value, platform) : value;
    },
  }));
  const of = (alias: string) => columns.map(({ column }) => `${alias}."${column}"`).join(', ');
  const names = columns.map(({ column }) => `"${column}"`).join(', ');
  return {
    of,
    insert: `insert into ${tableName} (${names}) select ${of('n')} from json_populate_recordset(null::${tableName}, $1) n`,
    json: (rows) =>
      JSON.stringify(
        rows.map((row) =>
          Object.fromEntries(
            columns.map(({ name, column, write }) => [column, write(row[name as keyof Row])]),
          ),
        ),
      ),
    read(result) {
      const row: Record<string, unknown> = {};
      for (const { name, column, convert } of columns) {
        const value = result[column];
        row[name] = value == null ? null : convert(value);
      }
      return row as Row;
    },
  };
}

/** MikroORM has `pg` return times as text. */
function dateOf(value: unknown): Date {
  return value instanceof Date ? value : new Date(String(value));
}
