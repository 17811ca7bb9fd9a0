// The words of the contract's enums: the only table of them, for the database, the doors, the clients and the checkout.

import type { DescEnum } from '@bufbuild/protobuf';
import { enumWords } from '../json/field-rules.ts';
import { type Contract, docComment, fileHead, lowerFirst } from './text.ts';

/** The name of the table of an enum's words. */
export const wordsOf = ({ name }: DescEnum) => `${lowerFirst(name)}Words`;

export function wordsSource(contract: Contract): string {
  const sourceOf = (desc: DescEnum) => {
    const words = enumWords(desc);
    const union = words
      .map(({ word, value }) => `${docComment(contract.paragraphsOf(value), 2)}  | '${word}'\n`)
      .join('');
    const table = words.map(({ word, value }) => `  ${word}: ${value.number},\n`).join('');
    return (
      `${docComment(contract.paragraphsOf(desc))}export type ${desc.name} =\n${union.trimEnd()};\n\n` +
      `/** The numbers of a {@link ${desc.name}} in messages. */\n` +
      `export const ${wordsOf(desc)} = {\n${table}} as const satisfies Record<${desc.name}, number>;\n`
    );
  };
  return fileHead([]) + contract.enums.map(sourceOf).join('\n');
}
