export type JsonValue = string | number | boolean | null | JsonObject | JsonValue[];

/** An object of JSON. */
export interface JsonObject {
  [name: string]: JsonValue;
}

/** What every resource has besides its fields. */
export interface ApiResource {
  /**
   * Returns the resource as the service's JSON has it: `amount_units` a number, moments as texts, what is undefined left
   * out. `JSON.stringify` calls it. It is not enumerable, so a copy made with `{ ...resource }` lacks it.
   */
  toJSON(): JsonObject;
}
