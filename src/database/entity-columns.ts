// Reads rows of prepared statements as their entities. MikroORM's own reading takes several times as long.

import type { EntityManager, EntitySchema } from '@mikro-orm/postgresql';

/** Converts between a table and the rows of its entity. */
export interface EntityColumns<Row> {
  /** The columns for a SELECT, of the table or subquery with that alias. */
  of(alias: string): string;
  /** The entity's row for a result of `pg`. */
  read(result: Readonly<Record<string, unknown>>): Row;
}

export function entityColumns<Row>(em: EntityManager, entity: EntitySchema): EntityColumns<Row> {
  const platform = em.getPlatform();
  const { props } = em.getMetadata(entity);
  const columns = props.map(({ name, fieldNames: [column = ''], customType, columnTypes: [type = ''] }) => ({
    name,
    column,
    convert: type.startsWith('timestamptz')
      ? dateOf
      : customType
        ? (value: unknown) => customType.convertToJSValue(value, platform)
        : (value: unknown) => value,
  }));
  return {
    of: (alias) => columns.map(({ column }) => `${alias}."${column}"`).join(', '),
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
