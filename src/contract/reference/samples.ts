// The request of an operation in several languages, using only each language's standard tools. A sample reads the
// address and the key from the environment and runs unchanged.

import {
  exampleOf,
  jsonOf,
  type OpenApiDocument,
  type Operation,
  type Parameter,
  type Route,
} from './document.ts';

export interface Sample {
  /** For the label, and for the choice that all samples share. */
  language: 'curl' | 'TypeScript' | 'Python' | 'Go';
  /** For syntax highlighting. */
  syntax: 'bash' | 'typescript' | 'python' | 'go';
  code: string;
}

interface SampleRequest {
  method: string;
  /** The path with its parameters' examples filled in. */
  path: string;
  headers: [string, string][];
  /** Undefined for a request without a body. */
  body: unknown;
  /** The environment variable with what authenticates the request. */
  credential: string | undefined;
  hasAnswer: boolean;
}

export function samplesOf(document: OpenApiDocument, route: Route): Sample[] {
  const request = requestOf(document, route);
  return [
    { language: 'curl', syntax: 'bash', code: curl(request) },
    { language: 'TypeScript', syntax: 'typescript', code: typescript(request) },
    { language: 'Python', syntax: 'python', code: python(request) },
    { language: 'Go', syntax: 'go', code: go(request) },
  ];
}

/**
 * Returns a parameter's example, or undefined for an optional one without an example. Throws for a required one
 * without.
 */
export function exampleOfParameter({ name, required, example, schema }: Parameter): string | undefined {
  const value = example ?? schema.examples?.[0] ?? schema.example;
  if (value === undefined && required === true) throw new Error(`the parameter ${name} has no example`);
  return value === undefined ? undefined : String(value);
}

const credentials = {
  apiKey: { variable: 'PAYMENTS_API_KEY', label: 'Testnet API key', placeholder: 'sk_testnet_…' },
  clientSecret: { variable: 'CLIENT_SECRET', label: 'Client secret', placeholder: 'pi_…_secret_…' },
} as const;

/** What authenticates an operation; undefined for one that takes nothing. */
export function credentialOf(document: OpenApiDocument, operation: Operation) {
  const [scheme = {}] = operation.security ?? document.security ?? [];
  const [name] = Object.keys(scheme);
  if (name === undefined) return undefined;
  return name === 'client_secret' ? credentials.clientSecret : credentials.apiKey;
}

function requestOf(document: OpenApiDocument, { method, path, operation }: Route): SampleRequest {
  const parameters = operation.parameters ?? [];
  const given = (place: Parameter['in']) =>
    parameters
      .filter((parameter) => parameter.in === place)
      // A filter should not be copied without thought.
      .filter(({ required }) => place !== 'query' || required === true)
      .flatMap((parameter): [string, string][] => {
        const value = exampleOfParameter(parameter);
        return value === undefined ? [] : [[parameter.name, value]];
      });
  const values = Object.fromEntries(given('path'));
  const filled = path.replace(/\{(\w+)\}/g, (_, name) => encodeURIComponent(values[name] ?? ''));
  const query = new URLSearchParams(given('query')).toString();
  const body = exampleOf(document, jsonOf(operation.requestBody?.content));
  const success = Object.entries(operation.responses).find(([status]) => status.startsWith('2'));
  return {
    method,
    path: query === '' ? filled : `${filled}?${query}`,
    headers: [
      ...(body === undefined ? [] : [['Content-Type', 'application/json'] as [string, string]]),
      ...given('header'),
    ],
    body,
    credential: credentialOf(document, operation)?.variable,
    hasAnswer: jsonOf(success?.[1].content) !== undefined,
  };
}

function curl({ method, path, headers, body, credential }: SampleRequest): string {
  const quoted = (text: string) => `'${text.replaceAll("'", "'\\''")}'`;
  const isDefault = method === (body === undefined ? 'GET' : 'POST');
  const lines = [
    `curl --fail-with-body "$PAYMENTS_URL${path.replace(/["$`\\]/g, '\\$&')}"`,
    ...(isDefault ? [] : [`--request ${method}`]),
    // From standard input, because other processes can read a command line.
    ...(credential ? ['--header @-'] : []),
    ...headers.map(([name, value]) => `--header ${quoted(`${name}: ${value}`)}`),
    ...(body === undefined ? [] : [`--data ${quoted(JSON.stringify(body, null, 2))}`]),
  ];
  const command = lines.join(' \\\n  ');
  return credential ? `${command} <<END\nAuthorization: Bearer $${credential}\nEND` : command;
}

function typescript({ method, path, headers, body, credential, hasAnswer }: SampleRequest): string {
  const all = [
    ...(credential ? [['Authorization', `\`Bearer \${process.env.${credential}}\``]] : []),
    ...headers.map(([name, value]) => [name, singleQuoted(value)]),
  ];
  const entries = all.map(([name = '', value]) => `    ${propertyName(name)}: ${value},\n`);
  const url = path.replace(/[`\\]|\$\{/g, '\\$&');
  return [
    `const answer = await fetch(\`\${process.env.PAYMENTS_URL}${url}\`, {`,
    `  method: '${method}',`,
    ...(entries.length > 0 ? [`  headers: {\n${entries.join('')}  },`] : []),
    ...(body === undefined ? [] : [`  body: JSON.stringify(${typescriptLiteral(body, '  ')}),`]),
    '  signal: AbortSignal.timeout(10_000),',
    '});',
    // biome-ignore lint/suspicious/noTemplateCurlyInString: it is a template literal of the sample
    'if (!answer.ok) throw new Error(`${answer.status} ${await answer.text()}`);',
    hasAnswer ? 'console.log(JSON.stringify(await answer.json(), null, 2));' : 'console.log(answer.status);',
  ].join('\n');
}

function python({ method, path, headers, body, credential, hasAnswer }: SampleRequest): string {
  const all = [
    ...(credential ? [['Authorization', `"Bearer " + os.environ["${credential}"]`]] : []),
    ...headers.map(([name, value]) => [name, JSON.stringify(value)]),
  ];
  return [
    ...(body === undefined && !hasAnswer ? [] : ['import json']),
    'import os',
    'import urllib.error',
    'import urllib.request',
    '',
    'request = urllib.request.Request(',
    `    os.environ["PAYMENTS_URL"] + ${JSON.stringify(path)},`,
    `    method="${method}",`,
    '    headers={',
    ...all.map(([name, value]) => `        ${JSON.stringify(name)}: ${value},`),
    '    },',
    ...(body === undefined ? [] : [`    data=json.dumps(${pythonLiteral(body, '    ')}).encode(),`]),
    ')',
    'try:',
    '    with urllib.request.urlopen(request, timeout=10) as answer:',
    hasAnswer ? '        print(json.dumps(json.load(answer), indent=2))' : '        print(answer.status)',
    'except urllib.error.HTTPError as error:',
    '    raise SystemExit(f"{error.code} {error.read().decode()}")',
  ].join('\n');
}

function go({ method, path, headers, body, credential }: SampleRequest): string {
  const json = body === undefined ? undefined : JSON.stringify(body, null, 2);
  // A raw string cannot contain a backquote.
  const literal = json?.includes('`') ? JSON.stringify(json) : `\`${json}\``;
  const all = [
    ...(credential ? [['Authorization', `"Bearer "+os.Getenv("${credential}")`]] : []),
    ...headers.map(([name, value]) => [name, JSON.stringify(value)]),
  ];
  const imports = ['fmt', 'io', 'log', 'net/http', 'os', ...(json === undefined ? [] : ['strings']), 'time'];
  return [
    'package main',
    '',
    'import (',
    ...imports.map((name) => `\t"${name}"`),
    ')',
    '',
    'func main() {',
    ...(json === undefined ? [] : [`\tbody := strings.NewReader(${literal})`]),
    `\trequest, err := http.NewRequest("${method}", os.Getenv("PAYMENTS_URL")+${JSON.stringify(path)}, ${json === undefined ? 'nil' : 'body'})`,
    '\tif err != nil {\n\t\tlog.Fatal(err)\n\t}',
    ...all.map(([name, value]) => `\trequest.Header.Set(${JSON.stringify(name)}, ${value})`),
    '',
    '\tclient := http.Client{Timeout: 10 * time.Second}',
    '\tanswer, err := client.Do(request)',
    '\tif err != nil {\n\t\tlog.Fatal(err)\n\t}',
    '\tdefer answer.Body.Close()',
    '\ttext, err := io.ReadAll(answer.Body)',
    '\tif err != nil {\n\t\tlog.Fatal(err)\n\t}',
    '\tif answer.StatusCode >= 300 {\n\t\tlog.Fatalf("%s %s", answer.Status, text)\n\t}',
    '\tfmt.Println(string(text))',
    '}',
  ].join('\n');
}

function propertyName(name: string): string {
  return /^[A-Za-z_$][\w$]*$/.test(name) ? name : singleQuoted(name);
}

function singleQuoted(text: string): string {
  return `'${JSON.stringify(text).slice(1, -1).replaceAll('\\"', '"').replaceAll("'", "\\'")}'`;
}

function typescriptLiteral(value: unknown, indent: string): string {
  if (typeof value === 'string') return singleQuoted(value);
  return literal(value, indent, '  ', propertyName, typescriptLiteral);
}

function pythonLiteral(value: unknown, indent: string): string {
  if (value === null) return 'None';
  if (typeof value === 'boolean') return value ? 'True' : 'False';
  return literal(value, indent, '    ', JSON.stringify, pythonLiteral);
}

/** A list or an object over several lines; any other value as plain JSON. */
function literal(
  value: unknown,
  indent: string,
  step: string,
  nameOf: (name: string) => string,
  literalOf: (value: unknown, indent: string) => string,
): string {
  if (value === null || typeof value !== 'object') return JSON.stringify(value);
  const isList = Array.isArray(value);
  const inner = indent + step;
  const lines = Object.entries(value).map(
    ([name, entry]) => `${inner}${isList ? '' : `${nameOf(name)}: `}${literalOf(entry, inner)},\n`,
  );
  const [open, close] = isList ? '[]' : '{}';
  return lines.length === 0 ? `${open}${close}` : `${open}\n${lines.join('')}${indent}${close}`;
}
