export type JsonValue = string | number | boolean | null | JsonObject | JsonValue[];

/** An object of JSON. */
export interface JsonObject {
  [name: string]: JsonValue;
}

/**
 * The part of a type that JSON can hold: not a Date, a bigint, or anything else with methods. The text is what a
 * compiler says of a Date.
 */
export type JsonCompatible<T> = unknown extends T
  ? T
  : T extends JsonValue | undefined
    ? T
    : T extends Date
      ? 'not JSON: send the toISOString() of a Date'
      : T extends bigint | symbol | ((...values: never) => unknown)
        ? never
        : { [Name in keyof T]: JsonCompatible<T[Name]> };

/** What every resource has besides its fields. */
export interface ApiResource {
  /**
   * Returns the resource as the service's JSON has it: `amount_units` a number, moments as texts, what is undefined left
   * out. `JSON.stringify` calls it. It is not enumerable, so a copy made with `{ ...resource }` lacks it.
   */
  toJSON(): JsonObject;
}
