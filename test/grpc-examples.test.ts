// The examples of examples/grpc in four languages, built as README.md says and run against a real service, over a
// network that loses a request and an answer before it works.

import { execFile } from 'node:child_process';
import { copyFile, cp, mkdir, mkdtemp, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { startLossyNetwork } from './support/lossy-network.ts';
import { startService, type TestService } from './support/service.ts';
import { succeeds } from './support/succeeds.ts';

const run = promisify(execFile);
const examples = 'examples/grpc';

let service: TestService;
let folder: string;

beforeAll(async () => {
  service = await startService();
  folder = await mkdtemp(join(tmpdir(), 'pi-grpc-examples-'));
});

afterAll(async () => {
  await service.close();
  await rm(folder, { recursive: true, force: true });
});

interface Outcome {
  id: string;
  status: string;
  amountUnits: number;
  orderId: string;
  sameAgain: boolean;
  refusal: { reason: string; requestId: string; fields: string[] };
}

/** Runs the client of one language against a target, `host:port`, and parses its output. */
type Client = (target: string, env: NodeJS.ProcessEnv) => Promise<Outcome>;

interface Language {
  canRun: boolean;
  install: string;
  build(folder: string): Promise<Client>;
}

const generate = (language: string, output: string) =>
  run('node_modules/.bin/buf', [
    ...['generate', '--template', `${examples}/buf.gen.${language}.local.yaml`, '--output', output],
  ]);

/** The output of the Go and the TypeScript examples. */
function readJson(stdout: string): Outcome {
  const { id, status, amount_units, metadata, same_again, refusal } = JSON.parse(stdout);
  return {
    id,
    status,
    amountUnits: amount_units,
    orderId: metadata.order_id,
    sameAgain: same_again,
    refusal: {
      reason: refusal.reason,
      requestId: refusal.request_id,
      fields: Object.keys(refusal.fields),
    },
  };
}

const goPath = '/usr/share/gocode';
const jars = [
  ...[
    'grpc-api',
    'grpc-context',
    'grpc-core',
    'grpc-netty',
    'grpc-protobuf',
    'grpc-protobuf-lite',
    'grpc-stub',
  ],
  ...['protobuf', 'guava', 'perfmark-api', 'geronimo-annotation-1.3-spec'],
  ...[
    'buffer',
    'codec',
    'codec-http',
    'codec-http2',
    'codec-socks',
    'common',
    'handler',
    'handler-proxy',
  ].map((name) => `netty-${name}`),
  ...['netty-resolver', 'netty-transport', 'netty-transport-native-unix-common'],
].map((name) => `/usr/share/java/${name}.jar`);
/** For programs that run for a second: without the second compiler, and with one thread for the garbage. */
const shortLived = ['-XX:TieredStopAtLevel=1', '-XX:+UseSerialGC'];
/** Debian's own, because Debian's packages are built for it. */
const python = '/usr/bin/python3';

const languages: Record<string, Language> = {
  Go: {
    canRun:
      succeeds('go', 'version') &&
      succeeds('protoc-gen-go', '--version') &&
      succeeds('protoc-gen-go-grpc', '--version') &&
      ['google.golang.org/grpc', 'google.golang.org/protobuf', 'github.com/golang/protobuf/ptypes/any'].every(
        (name) => succeeds('test', '-d', join(goPath, 'src', name)),
      ),
    install:
      'golang-go protoc-gen-go protoc-gen-go-grpc golang-google-grpc-dev golang-google-genproto-dev golang-google-protobuf-dev golang-github-golang-protobuf-1-5-dev',
    async build(folder) {
      // Debian's libraries are in a GOPATH.
      const module = join(folder, 'src/example.com/your/module');
      await mkdir(module, { recursive: true });
      await generate('go', module);
      await copyFile(`${examples}/go/main.go`, join(module, 'main.go'));
      const program = join(folder, 'client');
      const { stdout } = await run('gofmt', ['-l', 'main.go'], { cwd: module });
      expect(stdout).toBe('');
      await run('go', ['build', '-o', program, '.'], {
        cwd: module,
        env: {
          ...process.env,
          CGO_ENABLED: '0',
          GO111MODULE: 'off',
          GOFLAGS: '',
          GOPATH: `${folder}:${goPath}`,
        },
      });
      return async (target, env) => readJson((await run(program, [target], { env })).stdout);
    },
  },
  Java: {
    canRun:
      succeeds('javac', '--version') &&
      succeeds('protoc', '--version') &&
      succeeds('which', 'grpc_java_plugin') &&
      jars.every((jar) => succeeds('test', '-f', jar)),
    install:
      'openjdk-17-jdk-headless protobuf-compiler protobuf-compiler-grpc-java-plugin libgrpc-java libprotobuf-java libnetty-java libperfmark-java libgeronimo-annotation-1.3-spec-java',
    async build(folder) {
      await generate('java', folder);
      const classes = join(folder, 'classes');
      const sources = await run('find', [join(folder, 'gen'), '-name', '*.java']);
      await run('javac', [
        ...shortLived.map((option) => `-J${option}`),
        ...['-nowarn', '-d', classes, '-cp', jars.join(':')],
        ...sources.stdout.trim().split('\n'),
        `${examples}/java/CreatePaymentIntent.java`,
      ]);
      return async (target, env) => {
        const classPath = [classes, ...jars].join(':');
        const args = [...shortLived, '-cp', classPath, 'CreatePaymentIntent', target];
        const { stdout } = await run('java', args, { env });
        const value = (name: string) => new RegExp(`^${name}: (.*)$`, 'm').exec(stdout)?.[1] ?? '';
        const [, reason = '', requestId = ''] = value('refusal').split(' ');
        return {
          id: value('id'),
          status: value('status'),
          amountUnits: Number(value('amount_units')),
          orderId: value('order_id'),
          sameAgain: value('same_again') === 'true',
          refusal: {
            reason,
            requestId,
            fields: [...stdout.matchAll(/^field: (\w+):/gm)].map(([, field = '']) => field),
          },
        };
      };
    },
  },
  Python: {
    canRun: succeeds('protoc', '--version') && succeeds(python, '-c', 'import grpc, google.protobuf'),
    install: 'protobuf-compiler python3-grpcio python3-protobuf',
    async build(folder) {
      await generate('python', folder);
      return async (target, env) => {
        const { stdout } = await run(python, [`${examples}/python/client.py`, target], {
          env: { ...env, PYTHONPATH: join(folder, 'gen') },
        });
        const { intent, same_again, refusal } = JSON.parse(stdout);
        const details = refusal.details;
        return {
          id: intent.id,
          status: intent.status,
          amountUnits: Number(intent.amount_units),
          orderId: intent.metadata.order_id,
          sameAgain: same_again,
          refusal: {
            reason: details['google.rpc.ErrorInfo'].reason,
            requestId: details['google.rpc.RequestInfo'].requestId,
            fields: details['google.rpc.BadRequest'].fieldViolations
              .map(({ field }: { field: string }) => field)
              .slice(0, 1),
          },
        };
      };
    },
  },
  TypeScript: {
    canRun: true,
    install: '',
    async build(folder) {
      await generate('typescript', folder);
      await cp(`${examples}/typescript`, folder, { recursive: true });
      await symlink(resolve('node_modules'), join(folder, 'node_modules'));
      await writeFile(join(folder, 'package.json'), '{"type":"module"}');
      const options = { extends: resolve('tsconfig.json'), include: ['*.ts'], exclude: [] };
      const types = { compilerOptions: { typeRoots: [resolve('node_modules/@types')] } };
      await writeFile(join(folder, 'tsconfig.json'), JSON.stringify({ ...options, ...types }));
      await run('node_modules/.bin/tsc', ['--project', folder]);
      return async (target, env) => {
        const args = [join(folder, 'create-payment-intent.ts'), `http://${target}`];
        return readJson((await run(process.execPath, args, { env })).stdout);
      };
    },
  },
};

describe.each(Object.entries(languages))('%s', (name, { canRun, install, build }) => {
  if (!canRun) console.log(`skipped: the example in ${name} (apt-get install ${install})`);

  test.runIf(canRun)('creates, retries and reads a refusal', { timeout: 300_000 }, async () => {
    const own = join(folder, name);
    await mkdir(own);
    const client = await build(own);
    const network = await startLossyNetwork(service.server.ports.grpc);
    try {
      const outcome = await client(`127.0.0.1:${network.port}`, {
        PATH: process.env.PATH,
        PAYMENTS_API_KEY: service.merchant.keys.testnet.apiKey,
      });
      expect(outcome).toEqual({
        id: expect.stringMatching(/^pi_/),
        status: expect.stringMatching(/REQUIRES_PAYMENT$/),
        amountUnits: 12_500_000,
        orderId: expect.stringMatching(/^order-/),
        sameAgain: true,
        refusal: {
          reason: 'INVALID_BODY',
          requestId: expect.stringMatching(/^req_/),
          fields: ['amount_units'],
        },
      });
      // The lost answer belonged to this one intent.
      const rows = await service.query<{ count: number }>(
        'select count(*)::int as count from payment_intents where idempotency_key = $1',
        [outcome.orderId],
      );
      expect(rows).toEqual([{ count: 1 }]);
      expect(network.connections()).toBeGreaterThan(2);
    } finally {
      await network.close();
    }
  });
});
