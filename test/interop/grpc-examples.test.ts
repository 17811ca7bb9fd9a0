// The examples of examples/grpc in four languages, built as README.md says and run against a real service, over a
// network that loses a request and an answer before it works.

import { execFile } from 'node:child_process';
import { cp, mkdir, readFile, symlink, writeFile } from 'node:fs/promises';
import net from 'node:net';
import { join, resolve } from 'node:path';
import { promisify } from 'node:util';
import { beforeAll, describe, expect, test, vi } from 'vitest';
import { createPaymentIntentsClient } from '../../client/index.ts';
import { parseIdentifier } from '../../src/database/identifiers.ts';
import { useFolder } from '../support/folder.ts';
import { startLossyNetwork } from '../support/lossy-network.ts';
import { startProgram } from '../support/program.ts';
import { succeeds } from '../support/succeeds.ts';
import { startTcpProxy } from '../support/tcp-proxy.ts';
import { useService } from '../support/use-service.ts';

const run = promisify(execFile);
const examples = 'examples/grpc';

const service = await useService();
const folder = await useFolder();

interface Outcome {
  id: string;
  status: string;
  amountUnits: number;
  orderId: string;
  sameAgain: boolean;
  refusal: { reason: string; requestId: string; fields: string[] };
}

/** An intent as the examples that retrieve print it. */
interface Retrieved {
  id: string;
  status: string;
  amountUnits: number;
  amountReceivedUnits: number;
  labels: string[];
}

/** The examples of one language. Each runs against a target, `host:port`, and its output is parsed. */
interface Examples {
  create(target: string, env: NodeJS.ProcessEnv): Promise<Outcome>;
  retrieve?(target: string, id: string, env: NodeJS.ProcessEnv): Promise<Retrieved>;
}

interface Language {
  canRun: boolean;
  install: string;
  build(folder: string): Promise<Examples>;
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
    refusal: { reason: refusal.reason, requestId: refusal.request_id, fields: Object.keys(refusal.fields) },
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
/** For programs that run for a second: without the second compiler, and with single-threaded collection. */
const shortLived = ['-XX:TieredStopAtLevel=1', '-XX:+UseSerialGC'];
/** Debian's Python, because Debian's packages are built for it. */
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
      await cp(`${examples}/go`, module, { recursive: true });
      const programs = join(folder, 'programs');
      await mkdir(programs);
      const { stdout } = await run('gofmt', ['-l', 'main.go', 'retrieve'], { cwd: module });
      expect(stdout).toBe('');
      await run('go', ['build', '-o', programs, '.', './retrieve'], {
        cwd: module,
        env: {
          ...process.env,
          CGO_ENABLED: '0',
          GO111MODULE: 'off',
          GOFLAGS: '',
          GOPATH: `${folder}:${goPath}`,
        },
      });
      return {
        create: async (target, env) =>
          readJson((await run(join(programs, 'module'), [target], { env })).stdout),
        async retrieve(target, id, env) {
          const { stdout } = await run(join(programs, 'retrieve'), [target, id], { env });
          const { status, amount_units, amount_received_units, labels } = JSON.parse(stdout);
          return {
            id: JSON.parse(stdout).id,
            status,
            amountUnits: amount_units,
            amountReceivedUnits: amount_received_units,
            labels,
          };
        },
      };
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
        `${examples}/java/RetrievePaymentIntent.java`,
      ]);
      const start = async (args: string[], env: NodeJS.ProcessEnv) => {
        const classPath = [classes, ...jars].join(':');
        const { stdout } = await run('java', [...shortLived, '-cp', classPath, ...args], { env });
        const value = (name: string) => new RegExp(`^${name}: (.*)$`, 'm').exec(stdout)?.[1] ?? '';
        return { stdout, value };
      };
      return {
        async create(target, env) {
          const { stdout, value } = await start(['CreatePaymentIntent', target], env);
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
        },
        async retrieve(target, id, env) {
          const { value } = await start(['RetrievePaymentIntent', target, id], env);
          return {
            id: value('id'),
            status: value('status'),
            amountUnits: Number(value('amount_units')),
            amountReceivedUnits: Number(value('amount_received_units')),
            labels: value('labels').split(' '),
          };
        },
      };
    },
  },
  Python: {
    canRun: succeeds('protoc', '--version') && succeeds(python, '-c', 'import grpc, google.protobuf'),
    install: 'protobuf-compiler python3-grpcio python3-protobuf',
    async build(folder) {
      await generate('python', folder);
      const start = (script: string, args: string[], env: NodeJS.ProcessEnv) =>
        run(python, [`${examples}/python/${script}`, ...args], {
          env: { ...env, PYTHONPATH: join(folder, 'gen') },
        });
      const create: Examples['create'] = async (target, env) => {
        const { stdout } = await start('client.py', [target], env);
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
      return {
        create,
        async retrieve(target, id, env) {
          const { stdout } = await start('retrieve.py', [target, id], env);
          const intent = JSON.parse(stdout);
          return {
            id: intent.id,
            status: intent.status,
            amountUnits: Number(intent.amount_units),
            amountReceivedUnits: Number(intent.amount_received_units),
            labels: intent.labels,
          };
        },
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
      return {
        async create(target, env) {
          const args = [join(folder, 'create-payment-intent.ts'), `http://${target}`];
          return readJson((await run(process.execPath, args, { env })).stdout);
        },
      };
    },
  },
};

describe.each(Object.entries(languages))('%s', (name, { canRun, install, build }) => {
  if (!canRun) console.log(`skipped: the example in ${name} (apt-get install ${install})`);

  let built: Examples;
  const env = () => ({
    PATH: process.env.PATH,
    PAYMENTS_API_KEY: service.merchant.keys.testnet.apiKey,
  });

  beforeAll(async () => {
    if (!canRun) return;
    const own = join(folder, name);
    await mkdir(own);
    built = await build(own);
  }, 300_000);

  test.runIf(canRun)('creates, retries and reads a refusal', { timeout: 60_000 }, async () => {
    const network = await startLossyNetwork(service.server.ports.grpc);
    try {
      const outcome = await built.create(`127.0.0.1:${network.port}`, env());
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
      // The lost answer was that of this one intent.
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

  test.runIf(canRun && name !== 'TypeScript')('retrieves', { timeout: 60_000 }, async () => {
    const client = createPaymentIntentsClient({
      baseUrl: service.publicUrl,
      apiKey: service.merchant.keys.testnet.apiKey,
    });
    const { id } = await client.createPaymentIntent({ amountUnits: 12_500_000 });
    await service.query(
      `update payment_intents set status = 'succeeded', amount_received_units = 12500001, succeeded_at = now(),
         labels = '{overpaid,late}' where id = $1`,
      [parseIdentifier('pi', id)],
    );
    const network = await startLossyNetwork(service.server.ports.grpc);
    try {
      const target = `127.0.0.1:${network.port}`;
      expect(await built.retrieve?.(target, id, env())).toEqual({
        id,
        status: 'PAYMENT_INTENT_STATUS_SUCCEEDED',
        amountUnits: 12_500_000,
        amountReceivedUnits: 12_500_001,
        labels: ['overpaid', 'late'],
      });
      expect(network.connections()).toBeGreaterThan(2);
      const missing = 'pi_00000000000000000000000000';
      const refusal = await built.retrieve?.(target, missing, env()).catch((reason) => reason);
      expect([refusal.code, refusal.stderr]).toEqual([1, expect.stringMatching(/not_?found/i)]);
    } finally {
      await network.close();
    }
  });
});

test.runIf(languages.Python?.canRun)(
  'the Python example watches events over connections that break, and continues after a crash',
  { timeout: 60_000 },
  async () => {
    const client = createPaymentIntentsClient({
      baseUrl: service.publicUrl,
      apiKey: service.merchant.keys.testnet.apiKey,
    });
    const cancelNew = async () => {
      const { id } = await client.createPaymentIntent({ amountUnits: 1 });
      await client.cancelPaymentIntent(id);
      return id;
    };
    const cuts = new Set<() => void>();
    const proxy = await startTcpProxy(
      () => net.connect(service.server.ports.grpc, '127.0.0.1'),
      (from, to, cut) => {
        cuts.add(cut);
        from.pipe(to).pipe(from);
      },
    );
    const positionFile = join(folder, 'position');
    const start = (apiKey = service.merchant.keys.testnet.apiKey) =>
      startProgram([python, `${examples}/python/watch.py`, `127.0.0.1:${proxy.port}`, positionFile], {
        env: { PATH: process.env.PATH, PAYMENTS_API_KEY: apiKey, PYTHONPATH: join(folder, 'Python/gen') },
      });
    const seen = ({ until }: ReturnType<typeof start>, id: string) =>
      until(new RegExp(`payment_intent\\.canceled ${id} PAYMENT_INTENT_STATUS_CANCELED\n`));
    const first = start();
    // The first message has come.
    await vi.waitFor(() => readFile(positionFile), { timeout: 15_000 });
    const ids = [await cancelNew()];
    await seen(first, ids[0] as string);
    for (const cut of cuts) cut();
    ids.push(await cancelNew());
    await seen(first, ids[1] as string);
    expect(first.printed.errors).toMatch(/again in \d/);
    expect(
      first.printed.output
        .trim()
        .split('\n')
        .map((line) => line.split(' ')[2]),
    ).toEqual(ids);
    await first.end('SIGKILL');
    const missed = await cancelNew();
    const second = start();
    await seen(second, missed);
    await second.end('SIGKILL');
    const refused = start('sk_testnet_nonsense');
    const [code] = await refused.ended;
    expect([code, refused.printed.errors]).toEqual([1, expect.stringContaining('UNAUTHENTICATED')]);
    await proxy.close();
  },
);
