// Reads and writes entity rows with prepared statements. MikroORM's own reads take several times as long.

import type { EntityManager, EntitySchema } from '@mikro-orm/postgresql';

export type EntityColumns<Row extends object> = ReturnType<typeof entityColumns<Row>>;

/** Converts between a table and the rows of its entity. With `only`, reads these properties, as `prefix_*`. */
export function entityColumns<Row extends object>(
  em: EntityManager,
  entity: EntitySchema<Row>,
  only?: readonly (keyof Row)[],
  prefix = 'now',
) {
  const platform = em.getPlatform();
  const { props, tableName } = em.getMetadata(entity);
  const read = props.filter(({ name }) => only?.includes(name) ?? true);
  const columns = read.map(({ name, fieldNames: [column = ''], customType, columnTypes: [type = ''] }) => ({
    name,
    column,
    result: only === undefined ? column : `${prefix}_${column}`,
    // MikroORM makes `pg` return times as text.
    convert: type.startsWith('timestamptz')
      ? (value: unknown) => (value instanceof Date ? value : new Date(String(value)))
      : customType
        ? (value: unknown) => customType.convertToJSValue(value, platform)
        : (value: unknown) => value,
    write(value: unknown) {
      if (typeof value === 'bigint') return String(value);
      const isBytes = type === 'bytea' && value != null;
      return isBytes && customType ? customType.convertToDatabaseValue(value, platform) : value;
    },
  }));
  const of = (alias: string) =>
    columns
      .map(({ column, result }) => `${alias}."${column}"${result === column ? '' : ` as "${result}"`}`)
      .join(', ');
  const names = columns.map(({ column }) => `"${column}"`).join(', ');
  return {
    /** The columns for a SELECT, of the table or subquery with that alias. */
    of,
    /** An INSERT of the rows that `$1` holds as JSON. */
    insert: `insert into ${tableName} (${names}) select ${of('n')} from json_populate_recordset(null::${tableName}, $1) n`,
    /** Rows for `json_populate_recordset`. */
    json: (rows: readonly Row[]) =>
      JSON.stringify(
        rows.map((row) =>
          Object.fromEntries(
            columns.map(({ name, column, write }) => [column, write(row[name as keyof Row])]),
          ),
        ),
      ),
    /** Converts a row of `pg` to the entity's. */
    read(found: Readonly<Record<string, unknown>>): Row {
      const row: Record<string, unknown> = {};
      for (const { name, result, convert } of columns) {
        const value = found[result];
        row[name] = value == null ? null : convert(value);
      }
      return row as Row;
    },
  };
}
