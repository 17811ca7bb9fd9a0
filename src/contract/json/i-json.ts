// A strict reader of I-JSON (RFC 7493). No library, JSON.parse included, refuses duplicate names, keeps a
// number's text apart from the double it rounds to, and limits the nesting.

/** Deepest nesting of objects and arrays, including the outermost. */
const maxNesting = 16;

export type IJsonValue =
  | null
  | boolean
  | number
  | string
  | InexactNumber
  | IJsonValue[]
  | { [name: string]: IJsonValue };

/**
 * A JSON number that a double would change: `9007199254740993`, `1.0000000000000001`, `1e400`. It keeps its
 * text. The code that expects a number decides what to do. No rounded amount is mistaken for the original.
 */
export class InexactNumber {
  readonly text: string;
  readonly #decimal: Decimal;

  constructor(text: string) {
    this.text = text;
    this.#decimal = toDecimal(text);
  }

  get isInteger(): boolean {
    return this.#decimal.exponent >= 0;
  }

  /** Returns the nearest integer within the range. Call it only if `isInteger`. */
  toBigInt(min: bigint, max: bigint): bigint {
    const { negative, digits, exponent } = this.#decimal;
    // Longer than any requested range. This avoids writing out a billion zeros.
    if (digits.length + exponent > 40) return negative ? min : max;
    const value = BigInt(digits) * 10n ** BigInt(exponent) * (negative ? -1n : 1n);
    return value < min ? min : value > max ? max : value;
  }
}

/** Why and where a text is refused, as the end of a sentence. Lines and columns count from 1. */
export class IJsonError extends Error {
  constructor(problem: string, text: string, position: number) {
    const before = text.slice(0, position);
    const line = before.split('\n').length;
    const column = position - before.lastIndexOf('\n');
    super(`is ${problem} at line ${line} column ${column}`);
    this.name = 'IJsonError';
  }
}

/**
 * Parses one JSON value and nothing after it. Throws IJsonError if the text is not JSON, is nested deeper
 * than `maxNesting`, or has a duplicate name in one object. `__proto__` is an ordinary name. Lone surrogates
 * written as escapes pass; the field's reader refuses them with the field's name.
 */
export function parseIJson(text: string): IJsonValue {
  const reader = new Reader(text);
  const result = reader.value(0);
  reader.end();
  return result;
}

/** Reads one text from its beginning to its end. */
class Reader {
  readonly #text: string;
  #at = 0;

  constructor(text: string) {
    this.#text = text;
  }

  /** Throws if anything but whitespace follows. */
  end(): void {
    this.#skipWhitespace();
    if (this.#at < this.#text.length) this.#fail('Unexpected character after the end of the value');
  }

  #fail(problem: string, position = this.#at): never {
    throw new IJsonError(`not valid JSON. ${problem}`, this.#text, position);
  }

  #unexpected(): never {
    this.#fail(this.#at < this.#text.length ? 'Unexpected character' : 'Unexpected end');
  }

  #skipWhitespace(): number {
    for (;;) {
      const char = this.#text.charCodeAt(this.#at);
      if (char !== 0x20 && char !== 0x0a && char !== 0x0d && char !== 0x09) return char;
      this.#at++;
    }
  }

  value(depth: number): IJsonValue {
    const char = this.#skipWhitespace();
    if (char === 0x22) return this.#string();
    if (char === 0x7b) return this.#object(depth + 1);
    if (char === 0x5b) return this.#array(depth + 1);
    if (char === 0x2d || (char >= 0x30 && char <= 0x39)) return this.#number();
    if (char === 0x74) return this.#literal('true', true);
    if (char === 0x66) return this.#literal('false', false);
    if (char === 0x6e) return this.#literal('null', null);
    return this.#unexpected();
  }

  #literal<T>(word: string, meaning: T): T {
    if (!this.#text.startsWith(word, this.#at)) this.#unexpected();
    this.#at += word.length;
    return meaning;
  }

  #object(depth: number): { [name: string]: IJsonValue } {
    const result: { [name: string]: IJsonValue } = {};
    this.#entries(0x7d, depth, () => {
      if (this.#skipWhitespace() !== 0x22) this.#unexpected();
      const nameAt = this.#at;
      const name = this.#string();
      if (Object.hasOwn(result, name)) this.#fail('A name stands twice in one object', nameAt);
      if (this.#skipWhitespace() !== 0x3a) this.#unexpected();
      this.#at++;
      setOwn(result, name, this.value(depth));
    });
    return result;
  }

  #array(depth: number): IJsonValue[] {
    const result: IJsonValue[] = [];
    this.#entries(0x5d, depth, () => result.push(this.value(depth)));
    return result;
  }

  /** Reads the entries between an opening bracket and its closing one. */
  #entries(end: number, depth: number, readOne: () => void): void {
    if (depth > maxNesting) {
      throw new IJsonError(`nested deeper than ${maxNesting} levels`, this.#text, this.#at);
    }
    this.#at++;
    if (this.#skipWhitespace() !== end) {
      readOne();
      while (this.#skipWhitespace() === 0x2c) {
        this.#at++;
        readOne();
      }
      if (this.#skipWhitespace() !== end) this.#unexpected();
    }
    this.#at++;
  }

  #string(): string {
    const start = this.#at;
    stringBeginning.lastIndex = start;
    this.#at += stringBeginning.exec(this.#text)?.[0].length ?? 0;
    const end = this.#text.charCodeAt(this.#at);
    if (end === 0x5c) this.#fail('Unknown escape');
    if (end !== 0x22) this.#unexpected();
    const literal = this.#text.slice(start, ++this.#at);
    return literal.includes('\\') ? JSON.parse(literal) : literal.slice(1, -1);
  }

  #number(): number | InexactNumber {
    numberSyntax.lastIndex = this.#at;
    const match = numberSyntax.exec(this.#text);
    if (match === null) return this.#unexpected();
    const [digits, fraction, exponent] = match;
    this.#at += digits.length;
    const double = Number(digits);
    // Every integer of up to 15 digits is exact as a double. JSON's -0 becomes the integer 0.
    if (digits.length <= 15 && fraction === undefined && exponent === undefined) return double + 0;
    if (!Number.isFinite(double)) return new InexactNumber(digits);
    return sameDecimal(toDecimal(digits), toDecimal(String(double))) ? double + 0 : new InexactNumber(digits);
  }
}

/** A quotation mark and what may follow it in a string. */
const stringBeginning = /"(?:[ !#-[\]-\uffff]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*/y;
const numberSyntax = /-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?/y;

/** `digits` (no zero at either end, or just "0") times ten to the power of `exponent`. */
interface Decimal {
  negative: boolean;
  digits: string;
  exponent: number;
}

function toDecimal(text: string): Decimal {
  const [, sign, whole = '', fraction = '', exponent = '0'] =
    /^(-?)([0-9]+)(?:\.([0-9]+))?(?:[eE]([+-]?[0-9]+))?$/.exec(text) ?? [];
  const written = whole + fraction;
  let first = 0;
  while (first < written.length && written.charCodeAt(first) === 0x30) first++;
  if (first === written.length) return { negative: false, digits: '0', exponent: 0 };
  let end = written.length;
  while (written.charCodeAt(end - 1) === 0x30) end--;
  return {
    negative: sign === '-',
    digits: written.slice(first, end),
    exponent: Number(exponent) - fraction.length + (written.length - end),
  };
}

function sameDecimal(a: Decimal, b: Decimal): boolean {
  return a.digits === b.digits && a.exponent === b.exponent && a.negative === b.negative;
}

/** Sets an own property, even if the name is `__proto__`. */
function setOwn(object: { [name: string]: IJsonValue }, name: string, value: IJsonValue): void {
  if (name !== '__proto__') object[name] = value;
  else Object.defineProperty(object, name, { value, enumerable: true, configurable: true, writable: true });
}
