// What the generated files share: the definitions they are made from, and their comments.

import type {
  DescEnum,
  DescEnumValue,
  DescField,
  DescFile,
  DescMessage,
  DescMethod,
} from '@bufbuild/protobuf';
import { getOption } from '@bufbuild/protobuf';
import { getComments } from '@bufbuild/protoplugin';
import { json_method } from '../gen/payments/v1/json_pb.ts';
import { httpRoutesOf } from '../http-routes.ts';

export type Contract = ReturnType<typeof createContract>;

type Described = DescEnum | DescEnumValue | DescField | DescMessage | DescMethod;

/** The parts of the contract in the order of its files. */
export function createContract(files: readonly DescFile[]) {
  const messages = files.flatMap((file) => file.messages);
  const names = new Set(messages.flatMap(({ fields }) => fields.map(({ name }) => name)));
  const routes = files
    .flatMap((file) => file.services)
    .flatMap(httpRoutesOf)
    .filter(({ method }) => !getOption(method, json_method).takesClientSecret);
  const message = (name: string) => {
    const found = messages.find((candidate) => candidate.name === name);
    if (found === undefined) throw new Error(`the contract has no message ${name}`);
    return found;
  };
  const answers = new Set<DescMessage>();
  const add = (desc: DescMessage) => {
    for (const { message } of desc.fields) if (message !== undefined && isOurs(message)) add(message);
    answers.add(desc);
  };
  for (const { method } of routes) add(method.output);
  add(message('WatchEventsResponse'));
  return {
    enums: files.flatMap((file) => file.enums),
    /** The methods that a merchant's key calls over HTTP. */
    routes,
    /** The messages that they return, each after the messages within it. */
    answers: [...answers],
    message,
    paragraphsOf,
    /** A comment in the client's terms, with its names of fields and with dates for moments. */
    clientParagraphsOf: (desc: Described) => paragraphsOf(desc).map((text) => clientText(text, names)),
  };
}

/** A comment, in paragraphs. */
function paragraphsOf(desc: Described): string[] {
  return (getComments(desc).leading ?? '')
    .split(/\n\s*\n/)
    .map((text) => text.replaceAll(/\s+/g, ' ').trim());
}

/** False for Google's messages. */
export const isOurs = ({ typeName }: DescMessage) => !typeName.startsWith('google.');

function clientText(text: string, names: ReadonlySet<string>): string {
  return text
    .replaceAll(/`([a-z]+(?:_[a-z]+)+)`/g, (quoted, name) =>
      names.has(name) ? `\`${camelCase(name)}\`` : quoted,
    )
    .replace(/, in UTC(?: with milliseconds)?(?=\.)/, '')
    .replaceAll(/\bAbsent\b/g, 'Undefined')
    .replace(/^Moment\b/, 'The moment');
}

const camelCase = (name: string) => name.replaceAll(/_([a-z])/g, (_, letter) => letter.toUpperCase());

const lineWidth = 110;

/** A doc comment of these paragraphs, each line indented by that many spaces. */
export function docComment(paragraphs: readonly string[], indent = 0): string {
  const margin = ' '.repeat(indent);
  const [only = ''] = paragraphs;
  if (paragraphs.length === 1 && only.length + indent + 7 <= lineWidth) return `${margin}/** ${only} */\n`;
  const width = lineWidth - indent - 3;
  const lines = paragraphs.flatMap((text, i) => [...(i > 0 ? [''] : []), ...wrapped(text, width)]);
  return `${margin}/**\n${lines.map((line) => `${margin} *${line === '' ? '' : ` ${line}`}\n`).join('')}${margin} */\n`;
}

function wrapped(text: string, width: number): string[] {
  const lines: string[] = [];
  let line = '';
  // A link stays on one line.
  for (const word of text.match(/\{@link [^}]*\}\S*|\S+/g) ?? []) {
    if (line !== '' && line.length + 1 + word.length > width) {
      lines.push(line);
      line = word;
    } else line += (line === '' ? '' : ' ') + word;
  }
  return [...lines, line];
}

/** The first line of a generated file, and its imports. */
export function fileHead(imports: readonly string[]): string {
  const first =
    '// Generated from the contract by src/contract/typescript: change proto/ and run `npm run generate`.';
  return [first, '', ...imports, '', ''].join('\n');
}
