// The request of an operation in several languages: with our packages in TypeScript, and with standard tools
// elsewhere. A sample reads the address and the key from the environment and runs unchanged.

import * as openapi from './document.ts';

/** What the samples of an operation have in common. */
type SampleRequest = ReturnType<typeof requestOf>;

/** The samples by language, in the order in which they are offered. */
export function samplesOf(document: openapi.OpenApiDocument, route: openapi.Route): Record<string, string> {
  const request = requestOf(document, route);
  return { TypeScript: typescript(request), curl: curl(request), Python: python(request), Go: go(request) };
}

/** Returns a parameter's example, if it has one. Throws if a required one has none. */
export function exampleOfParameter(parameter: openapi.Parameter): string | undefined {
  const value = parameter.example ?? parameter.schema.examples?.[0];
  if (value === undefined && parameter.required) throw new Error(`${parameter.name} has no example`);
  return value === undefined ? undefined : String(value);
}

const jsonHeader: [string, string] = ['Content-Type', 'application/json'];

const credentials = {
  apiKey: { variable: 'PAYMENTS_API_KEY', label: 'Testnet API key', placeholder: 'sk_testnet_…' },
  clientSecret: { variable: 'CLIENT_SECRET', label: 'Client secret', placeholder: 'pi_…_secret_…' },
} as const;

/** What authenticates an operation; undefined if nothing does. */
export function credentialOf(document: openapi.OpenApiDocument, operation: openapi.Operation) {
  const [scheme = {}] = operation.security ?? document.security ?? [];
  const [name] = Object.keys(scheme);
  if (name === undefined) return undefined;
  return name === 'client_secret' ? credentials.clientSecret : credentials.apiKey;
}

function requestOf(document: openapi.OpenApiDocument, route: openapi.Route) {
  const { operationId, parameters = [], requestBody } = route.operation;
  const given = (place: openapi.Parameter['in']) =>
    parameters
      .filter((parameter) => parameter.in === place)
      // Readers should think before they copy a filter.
      .filter(({ required }) => place !== 'query' || required === true)
      .map((parameter): [string, string] => [parameter.name, exampleOfParameter(parameter) ?? ''])
      .filter(([, value]) => value !== '');
  const values = Object.fromEntries(given('path'));
  const filled = route.path.replace(/\{(\w+)\}/g, (_, name) => encodeURIComponent(values[name] ?? ''));
  const query = new URLSearchParams(given('query')).toString();
  const media = openapi.jsonOf(requestBody?.content);
  const example = openapi.exampleOf(document, media);
  const isEmpty = Object.keys(example ?? {}).length === 0;
  // A change needs something to change.
  const change =
    route.method === 'PATCH' ? openapi.exampleOf(document, media && { schema: media.schema }) : undefined;
  const body = isEmpty && requestBody?.required !== true ? change : example;
  const schema = openapi.jsonOf(openapi.successesOf(route.operation)[0]?.[1].content)?.schema;
  const headers = [...(body === undefined ? [] : [jsonHeader]), ...given('header')];
  return {
    ...{ operationId, method: route.method, headers, body, pathValues: Object.values(values) },
    quotedHeaders: headers.map((header) => header.map((text) => JSON.stringify(text))),
    /** With its parameters' examples filled in. */
    path: query === '' ? filled : `${filled}?${query}`,
    /** The environment variable with what authenticates the request. */
    credential: credentialOf(document, route.operation)?.variable,
    /** The fields of the answer; undefined for an answer without a body. */
    answer: schema && Object.keys(openapi.resolve(document, schema).properties ?? {}),
  };
}

/** The call of our client, named after the operation. Payers' operations are in the checkout's package. */
function typescript({ operationId, pathValues, headers, body, credential, answer }: SampleRequest): string {
  const method = operationId.replace(/^get/, 'retrieve');
  const isForPayers = credential === credentials.clientSecret.variable;
  const option = (name: string, variable: string) => `  ${name}: process.env.${variable} ?? '',\n`;
  const options = `{\n${option('baseUrl', 'PAYMENTS_URL')}${isForPayers ? option('clientSecret', 'CLIENT_SECRET') : option('apiKey', 'PAYMENTS_API_KEY')}}`;
  const key = headers.find(([name]) => name === 'Idempotency-Key')?.[1];
  const camelCased = (name: string) => name.replace(/_(\w)/g, (_, letter) => letter.toUpperCase());
  const fields = Object.entries(body ?? {}).map(([name, value]) => [camelCased(name), value]);
  const given = [
    ...pathValues.map((value) => typescriptLiteral(value)),
    ...(body === undefined ? [] : [typescriptLiteral(Object.fromEntries(fields))]),
    ...(key === undefined ? [] : [`{ idempotencyKey: ${typescriptLiteral(key)} }`]),
  ];
  const isLong = given.length > 1 && given.some((value) => value.includes('\n'));
  const lines = given.map((value) => `  ${value.replaceAll('\n', '\n  ')},\n`);
  const call = isForPayers
    ? `${method}(${options})`
    : `payments.${method}(${isLong ? `\n${lines.join('')}` : given.join(', ')})`;
  const head = isForPayers
    ? `import { ${method} } from 'payment-intents-checkout';`
    : `import { createPaymentIntentsClient } from 'payment-intents-client';\n\nconst payments = createPaymentIntentsClient(${options});`;
  if (!answer?.length) return `${head}\n\nawait ${call};`;
  return answer.includes('next_page_token')
    ? `${head}\n\nfor await (const item of ${call}) {\n  console.log(JSON.stringify(item, null, 2));\n}`
    : `${head}\n\nconst answer = await ${call};\nconsole.log(JSON.stringify(answer, null, 2));`;
}

function curl({ method, path, headers, body, credential }: SampleRequest): string {
  const inShell = (text: string) => `'${text.replaceAll("'", "'\\''")}'`;
  const isDefault = method === (body === undefined ? 'GET' : 'POST');
  return [
    `curl --fail-with-body "$PAYMENTS_URL${path.replace(/["$`\\]/g, '\\$&')}"`,
    ...(isDefault ? [] : [`-X ${method}`]),
    ...(credential ? [`-H "Authorization: Bearer $${credential}"`] : []),
    ...headers.map(([name, value]) => `-H ${inShell(`${name}: ${value}`)}`),
    ...(body === undefined ? [] : [`-d ${inShell(JSON.stringify(body, null, 2))}`]),
  ].join(' \\\n  ');
}

function python({ method, path, quotedHeaders, body, credential, answer }: SampleRequest): string {
  return [
    ...(body === undefined && answer === undefined ? [] : ['import json']),
    'import os\nimport urllib.error\nimport urllib.request\n',
    'request = urllib.request.Request(',
    `    os.environ["PAYMENTS_URL"] + ${JSON.stringify(path)},`,
    `    method="${method}",`,
    '    headers={',
    ...(credential ? [`        "Authorization": "Bearer " + os.environ["${credential}"],`] : []),
    ...quotedHeaders.map((header) => `        ${header.join(': ')},`),
    '    },',
    ...(body === undefined ? [] : [`    data=json.dumps(${pythonLiteral(body)}).encode(),`]),
    ')\ntry:',
    '    with urllib.request.urlopen(request, timeout=10) as answer:',
    answer ? '        print(json.dumps(json.load(answer), indent=2))' : '        print(answer.status)',
    'except urllib.error.HTTPError as error:',
    '    raise SystemExit(f"{error.code} {error.read().decode()}")',
  ].join('\n');
}

function go({ method, path, quotedHeaders, body, credential }: SampleRequest): string {
  const json = body === undefined ? undefined : JSON.stringify(body, null, 2);
  // A raw string cannot contain a backquote.
  const literal = json?.includes('`') ? JSON.stringify(json) : `\`${json}\``;
  const imports = ['fmt', 'io', 'log', 'net/http', 'os', ...(json === undefined ? [] : ['strings']), 'time'];
  const failure = '\tif err != nil {\n\t\tlog.Fatal(err)\n\t}';
  return [
    'package main\n\nimport (',
    ...imports.map((name) => `\t"${name}"`),
    ')\n\nfunc main() {',
    ...(json === undefined ? [] : [`\tbody := strings.NewReader(${literal})`]),
    `\trequest, err := http.NewRequest("${method}", os.Getenv("PAYMENTS_URL")+${JSON.stringify(path)}, ${json === undefined ? 'nil' : 'body'})`,
    failure,
    ...(credential ? [`\trequest.Header.Set("Authorization", "Bearer "+os.Getenv("${credential}"))`] : []),
    ...quotedHeaders.map((header) => `\trequest.Header.Set(${header.join(', ')})`),
    '\n\tclient := http.Client{Timeout: 10 * time.Second}\n\tanswer, err := client.Do(request)',
    failure,
    '\tdefer answer.Body.Close()\n\ttext, err := io.ReadAll(answer.Body)',
    failure,
    '\tif answer.StatusCode >= 300 {\n\t\tlog.Fatalf("%s %s", answer.Status, text)\n\t}',
    '\tfmt.Println(string(text))\n}',
  ].join('\n');
}

function typescriptLiteral(value: unknown): string {
  return literal(value, 2, (token) => {
    const [, name] = /^"([A-Za-z_$][\w$]*)":$/.exec(token) ?? [];
    return name === undefined ? token.replace(/^"([^'\\]*)"/, "'$1'") : `${name}:`;
  });
}

function pythonLiteral(value: unknown): string {
  const words: Readonly<Record<string, string>> = { null: 'None', true: 'True', false: 'False' };
  return literal(value, 4, (token) => words[token] ?? token).replaceAll('\n', '\n    ');
}

/** Multi-line JSON with a comma after each entry. `write` returns its strings, names and words. */
function literal(value: unknown, indent: number, write: (token: string) => string): string {
  return JSON.stringify(value, null, indent)
    .replace(/"(?:[^"\\]|\\.)*":?|null|true|false/g, write)
    .replace(/(?<=[^,{[\s])(?=\n *[\]}])/g, ',');
}
