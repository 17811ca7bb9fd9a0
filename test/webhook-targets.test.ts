// Webhooks can only reach public addresses, however the URL is written and whatever its name resolves to.

import https from 'node:https';
import net from 'node:net';
import tls from 'node:tls';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { parseAllowedTargets } from '../src/config/allowed-targets.ts';
import { loadConfig } from '../src/config/config.ts';
import { StartupError } from '../src/config/startup-error.ts';
import { type AddressPolicy, createAddressPolicy } from '../src/webhooks/address-policy.ts';
import { createSender, type Sender } from '../src/webhooks/sender.ts';
import { doors } from './support/call.ts';
import { makeCertificate } from './support/certificates.ts';
import { type DnsAnswer, type DnsServer, startDnsServer } from './support/dns-server.ts';
import { type Receiver, startReceiver } from './support/receiver.ts';
import { startService, type TestService } from './support/service.ts';
import { newSecrets } from './support/test-environment.ts';
import { policyWithPublic } from './support/webhook-worker.ts';

/** The policy of a service that permits only the internet. */
const strict = createAddressPolicy({ hosts: [], networks: [] });

/** An environment with an external database, which makes every secret required. */
const external = { DATABASE_URL: 'postgresql://payments@localhost/payments', ...newSecrets() };

const noUrl = /^must be a URL, such as https:\/\/shop\.example\/webhooks$/;
const noAddress = /^must have a name as its host, not an IP address$/;
const notReachable = /^must have a host that is reachable from the internet$/;
const noHttps = /^must begin with https:\/\/$/;
const noPassword = /^must not contain a user name or password/;
const noFragment = /^must not have a fragment/;
const noSpaces = /^must not contain spaces or control characters$/;

const refusedUrls: readonly (readonly [string, RegExp])[] = [
  // This machine, in every spelling that a URL allows.
  ...[
    '127.0.0.1',
    '127.1',
    '127.0.1',
    '2130706433',
    '0x7f000001',
    '0x7F.0.0.1',
    '017700000001',
    '0177.0.0.01',
    '127.0.0.1.',
    '127.0.0.1:8443',
    '%31%32%37.0.0.1',
    '\uff11\uff12\uff17.0.0.1',
    '\u2460\u2461\u2466.0.0.1',
    '127\u30020\u30020\u30021',
    '0',
    '[::1]',
    '[0:0:0:0:0:0:0:1]',
    '[::]',
    '[::ffff:127.0.0.1]',
    '[::ffff:7f00:1]',
    '[64:ff9b::127.0.0.1]',
    // Other addresses, even public ones: a name can be moved to another address, and has a certificate.
    '10.0.0.1',
    '169.254.169.254',
    '168.63.129.16',
    '[fd00:ec2::254]',
    '[fe80::1]',
    '8.8.8.8',
    '[2606:4700::1111]',
  ].map((host) => [`https://${host}/`, noAddress] as const),
  // Names that only have a meaning in this network.
  ...[
    'localhost',
    'LOCALHOST',
    'localhost.',
    '\uff4c\uff4f\uff43\uff41\uff4c\uff48\uff4f\uff53\uff54',
    'shop.localhost',
    'shop.localhost.',
    'printer.local',
    'metadata.google.internal',
    'metadata.google.internal.',
    'host.docker.internal',
    'router.home.arpa',
    'intranet',
    'intranet.',
    'x--y',
    'a..b',
    '.example',
    'shop.local..',
    'shop.example..',
    '*.example',
    'shop.example,other.example',
    `${'a'.repeat(64)}.example`,
    `${'a.'.repeat(130)}example`,
  ].map((host) => [`https://${host}/`, notReachable] as const),
  ['http://shop.example/', noHttps],
  ['http://127.0.0.1/', noHttps],
  ['ftp://shop.example/', noHttps],
  ['ws://shop.example/', noHttps],
  ['wss://shop.example/', noHttps],
  ['file:///etc/passwd', noHttps],
  ['gopher://127.0.0.1:6379/_INFO', noHttps],
  ['javascript:alert(1)', noHttps],
  ['data:text/plain,x', noHttps],
  ['unix:/var/run/docker.sock', noHttps],
  ['https://ada@shop.example/', noPassword],
  ['https://ada:secret@shop.example/', noPassword],
  ['https://:secret@shop.example/', noPassword],
  ['https://shop.example@127.0.0.1/', noPassword],
  ['https://shop.example/#top', noFragment],
  ['//shop.example/', noUrl],
  ['shop.example', noUrl],
  ['https://', noUrl],
  ['https://shop.example:65536/', noUrl],
  ['https://shop.example:x/', noUrl],
  ['https://[::1/', noUrl],
  ['https://1.2.3.256/', noUrl],
  ['https://shop.example%2f.other.example/', noUrl],
  ['https://shop\u00ad\u2028.example/', noSpaces],
  [' https://shop.example/', noSpaces],
  ['https://shop.example/ ', noSpaces],
  ['https://shop.example/a b', noSpaces],
  ['https://shop.example/\n', noSpaces],
  ['ht\ttps://shop.example/', noSpaces],
  ['https://127.0\t.0.1/', noSpaces],
  ['https://shop.example/\0', noSpaces],
  ['https://shop.example/\u007f', noSpaces],
  ['https://shop.example/\u00a0', noSpaces],
];

const acceptedUrls = [
  'https://shop.example/webhooks',
  'https://shop.example',
  'HTTPS://SHOP.EXAMPLE/',
  'https://shop.example:8443/webhooks?shop=7&x=%20',
  'https://shop.example./',
  'https://b\u00fccher.example/',
  'https://xn--bcher-kva.example/',
  'https://my_shop.example/',
  'https://local.example/',
  'https://mylocalhost.example/',
  'https://internal.shop.example/',
  'https://127.0.0.1.shop.example/',
  `https://shop.example/${'x'.repeat(2_048 - 21)}`,
];

describe('a URL of an endpoint', () => {
  let service: TestService;
  let apiKey: string;
  let id: string;

  beforeAll(async () => {
    service = await startService({ ROLES: 'api', ...external });
    apiKey = service.merchant.keys.testnet.apiKey;
    const { json } = await service.call(
      'createWebhookEndpoint',
      { url: 'https://shop.example/' },
      { apiKey },
    );
    id = json.id;
  });

  afterAll(async () => {
    await service.close();
  });

  test.each(refusedUrls.map(([url, says]) => [JSON.stringify(url), url, says] as const))(
    '%s is refused',
    async (_, url, says) => {
      for (const door of doors) {
        for (const method of ['createWebhookEndpoint', 'updateWebhookEndpoint'] as const) {
          const request = method === 'createWebhookEndpoint' ? { url } : { id, url };
          const { code, details } = await service.call(method, request, { door, apiKey });
          expect([door, method, code, details]).toEqual([
            ...[door, method, 'invalid_body'],
            [{ field: 'url', message: expect.stringMatching(says) }],
          ]);
        }
      }
    },
  );

  test.each(acceptedUrls)('%s is accepted, and stored unchanged', async (url) => {
    for (const door of doors) {
      const { code, json } = await service.call('updateWebhookEndpoint', { id, url }, { door, apiKey });
      expect([code, json.url]).toEqual(['ok', url]);
    }
  });

  test('with more than 2,048 characters is refused', async () => {
    const url = `https://shop.example/${'x'.repeat(2_048 - 20)}`;
    for (const door of doors) {
      const { code, details } = await service.call('createWebhookEndpoint', { url }, { door, apiKey });
      expect([code, details]).toEqual([
        'invalid_body',
        [{ field: 'url', message: 'must have at most 2048 characters' }],
      ]);
    }
  });
});

/** Addresses that nothing is sent to, and the reason. */
const privateAddresses: readonly (readonly [string, string])[] = [
  ['0.0.0.0', 'this network'],
  ['0.1.2.3', 'this network'],
  ['10.0.0.1', 'private'],
  ['100.64.0.1', 'carrier NAT'],
  ['100.127.255.255', 'carrier NAT'],
  ['127.0.0.1', 'loopback'],
  ['127.255.255.254', 'loopback'],
  ['169.254.169.254', 'metadata of a cloud'],
  ['168.63.129.16', 'the platform of Azure'],
  ['172.16.0.1', 'private'],
  ['172.31.255.255', 'private'],
  ['192.0.0.1', 'special'],
  ['192.0.2.1', 'documentation'],
  ['192.88.99.1', '6to4 relay'],
  ['192.168.1.1', 'private'],
  ['198.18.0.1', 'benchmarks'],
  ['198.19.255.255', 'benchmarks'],
  ['198.51.100.1', 'documentation'],
  ['203.0.113.1', 'documentation'],
  ['224.0.0.1', 'multicast'],
  ['240.0.0.1', 'reserved'],
  ['255.255.255.255', 'broadcast'],
  ['::', 'unspecified'],
  ['::1', 'loopback'],
  ['::127.0.0.1', 'IPv4-compatible'],
  ['::ffff:127.0.0.1', 'IPv4-mapped loopback'],
  ['::ffff:a9fe:a9fe', 'IPv4-mapped metadata'],
  ['::ffff:168.63.129.16', 'IPv4-mapped platform'],
  ['::ffff:0:127.0.0.1', 'IPv4-translated'],
  ['64:ff9b::7f00:1', 'NAT64 of loopback'],
  ['64:ff9b::a00:1', 'NAT64 of a private address'],
  ['64:ff9b::a83f:8110', 'NAT64 of the platform'],
  ['64:ff9b:1::1', 'local NAT64'],
  ['64:ff9b:1::808:808', 'local NAT64 of a public address'],
  ['100::1', 'discard'],
  ['2001::1', 'Teredo'],
  ['2001:0:7f00:1::', 'Teredo'],
  ['2001:2::1', 'benchmarks'],
  ['2001:10::1', 'ORCHID'],
  ['2001:20::1', 'ORCHIDv2'],
  ['2001:db8::1', 'documentation'],
  ['2002:7f00:1::', '6to4 of loopback'],
  ['2002:808:808::1', '6to4 of a public address'],
  ['3fff::1', 'documentation'],
  ['4000::1', 'not assigned'],
  ['5f00::1', 'segment routing'],
  ['fc00::1', 'unique local'],
  ['fd00:ec2::254', 'metadata of a cloud'],
  ['fe80::1', 'link-local'],
  ['fec0::1', 'site-local'],
  ['ff02::1', 'multicast'],
];

test.each([
  ...'1.1.1.1 8.8.8.8 100.63.255.255 100.128.0.1 126.255.255.255 172.15.0.1 172.32.0.1'.split(' '),
  ...'168.63.129.17 198.20.0.1 223.255.255.255 ::ffff:8.8.8.8 64:ff9b::808:808 2606:4700::1111'.split(' '),
  ...'2a00:1450:4001::200e'.split(' '),
])('%s is public', (address) => {
  expect(strict.reachOf(address)).toBe('public');
});

describe('a name', () => {
  let dns: DnsServer;
  let receiver: Receiver;
  /** A receiver on an address of this machine that counts as private. */
  let privateReceiver: Receiver;
  const answers = new Map<string, (type: 'A' | 'AAAA', asked: number) => DnsAnswer>();
  const senders: Sender[] = [];
  const trustedBefore = tls.getCACertificates('default');

  beforeAll(async () => {
    const certificate = await makeCertificate('shop.example', '*.shop.example');
    tls.setDefaultCACertificates([...trustedBefore, certificate.cert]);
    dns = await startDnsServer(({ name, type, asked }) => answers.get(name)?.(type, asked) ?? 'NXDOMAIN');
    receiver = await startReceiver(undefined, https.createServer(certificate));
    privateReceiver = await startReceiver(undefined, https.createServer(certificate), '127.0.0.2');
  });

  afterAll(async () => {
    tls.setDefaultCACertificates(trustedBefore);
    await Promise.all(senders.map((sender) => sender.close()));
    await dns.close();
    await receiver.close();
    await privateReceiver.close();
  });

  let names = 0;
  /** Returns a new name that resolves to these addresses, IPv4 in A records and IPv6 in AAAA records. */
  const nameOf = (addressesOf: (asked: number) => readonly string[]): string => {
    const name = `n${names++}.shop.example`;
    answers.set(name, (type, asked) =>
      addressesOf(asked).filter((address) => net.isIPv6(address) === (type === 'AAAA')),
    );
    return name;
  };

  const openSender = (policy: AddressPolicy): Sender => {
    const sender = createSender(policy, [dns.address]);
    senders.push(sender);
    return sender;
  };

  /** The policy of production, except that one address of this machine counts as public. */
  const withPublic = (): AddressPolicy => ({
    ...policyWithPublic('127.0.0.1'),
    urlProblem: strict.urlProblem,
  });
  const sendTo = (sender: Sender, name: string, { port } = receiver) =>
    sender.send(`https://${name}:${port}/`, {}, '{}');

  test('that resolves to a public address is reached if the certificate is for this name', async () => {
    const sender = openSender(withPublic());
    const name = nameOf(() => ['127.0.0.1']);
    expect(await sendTo(sender, name)).toMatchObject({ statusCode: 204, error: undefined });
    const foreign = `${name.replaceAll('.', '-')}.other.example`;
    answers.set(foreign, (type) => (type === 'A' ? ['127.0.0.1'] : []));
    expect(await sendTo(sender, foreign)).toMatchObject({
      statusCode: undefined,
      error: 'the TLS certificate or handshake is not acceptable (ERR_TLS_CERT_ALTNAME_INVALID)',
    });
  });

  test('is reached even if its name server does not answer for the other address family', async () => {
    const sender = openSender(withPublic());
    const name = nameOf(() => ['127.0.0.1']);
    const answer = answers.get(name);
    answers.set(name, (type, asked) => (type === 'AAAA' ? 'no answer' : (answer?.(type, asked) ?? [])));
    const { statusCode, durationMs } = await sendTo(sender, name);
    expect(statusCode).toBe(204);
    // The query for the other family takes four seconds to fail.
    expect(durationMs).toBeLessThan(3_000);
  });

  test.each(privateAddresses)('that resolves to %s (%s) is not reached', async (address) => {
    expect(strict.reachOf(address)).toBeUndefined();
    const name = nameOf(() => [address]);
    expect(await sendTo(openSender(strict), name)).toMatchObject({
      statusCode: undefined,
      error: `not sent: ${name} resolves to an address that is not public`,
      response: undefined,
    });
  });

  test.each([
    [['127.0.0.1', '127.0.0.2']],
    [['127.0.0.2', '127.0.0.1']],
    [['127.0.0.1', '::1']],
    [['127.0.0.1', '::ffff:10.0.0.1']],
    [['127.0.0.1', '127.0.0.1', '127.0.0.1', '10.0.0.1']],
  ])('that resolves to %j, public and private, is not reached at all', async (addresses) => {
    const before = receiver.connections();
    const name = nameOf(() => addresses);
    expect(await sendTo(openSender(withPublic()), name)).toMatchObject({
      error: `not sent: ${name} resolves to an address that is not public`,
    });
    expect([receiver.connections() - before, privateReceiver.connections()]).toEqual([0, 0]);
  });

  test('is checked again for each connection, because it may resolve to another address', async () => {
    // The connection uses the address that was looked up, without a second query.
    const name = nameOf((asked) => (asked === 0 ? ['127.0.0.1'] : ['127.0.0.2']));
    const sender = openSender(withPublic());
    const before = receiver.requests.length;
    expect(await sendTo(sender, name, privateReceiver)).toMatchObject({
      error: 'the connection was refused',
    });
    expect(await sendTo(sender, name, privateReceiver)).toMatchObject({
      error: `not sent: ${name} resolves to an address that is not public`,
    });
    expect([receiver.requests.length - before, privateReceiver.connections()]).toEqual([0, 0]);
  });

  test('is checked by the address of the actual connection', async () => {
    let checks = 0;
    const policy = withPublic();
    const sender = openSender({ ...policy, reachOf: () => (checks++ === 0 ? 'public' : undefined) });
    const before = receiver.requests.length;
    expect(
      await sendTo(
        sender,
        nameOf(() => ['127.0.0.1']),
      ),
    ).toMatchObject({ statusCode: undefined, error: 'not sent: the address is not public' });
    expect([checks, receiver.requests.length]).toEqual([2, before]);
  });

  test('that answers with a redirect is not followed', async () => {
    const redirecting = await startReceiver((request, response) => {
      response.writeHead(307, { location: decodeURIComponent(request.path.slice(1)) }).end();
    });
    const sender = openSender(policyWithPublic('127.0.0.1'));
    for (const location of [
      `https://127.0.0.2:${privateReceiver.port}/`,
      `https://${nameOf(() => ['127.0.0.2'])}:${privateReceiver.port}/`,
      `//127.0.0.2:${privateReceiver.port}/`,
      'http://169.254.169.254/latest/meta-data/',
      'file:///etc/passwd',
      '/again',
    ]) {
      expect(await sender.send(`${redirecting.url}/${encodeURIComponent(location)}`, {}, '{}')).toMatchObject(
        { statusCode: 307, error: 'answered 307: redirects are not followed' },
      );
    }
    expect([redirecting.requests.length, privateReceiver.connections()]).toEqual([6, 0]);
    await redirecting.close();
  });

  test.each<[string, DnsAnswer, string]>([
    ['does not exist', 'NXDOMAIN', 'the name of the host does not resolve'],
    ['has no address', [], 'the name of the host does not resolve'],
    ['has a server that fails', 'SERVFAIL', 'the name of the host does not resolve'],
    ['has a server that does not answer', 'no answer', 'the name of the host could not be resolved in time'],
  ])('that %s is reported', async (_, answer, error) => {
    const name = nameOf(() => []);
    answers.set(name, () => answer);
    const result = await sendTo(openSender(strict), name);
    expect(result).toMatchObject({ statusCode: undefined, error, response: undefined });
    expect(result.durationMs).toBeLessThan(10_500);
  });

  test('needs only A or only AAAA records', async () => {
    for (const missing of ['NXDOMAIN', 'SERVFAIL'] as const) {
      const name = nameOf(() => []);
      answers.set(name, (type) => (type === 'A' ? ['127.0.0.1'] : missing));
      expect(await sendTo(openSender(withPublic()), name)).toMatchObject({ statusCode: 204 });
    }
  });

  test.each(refusedUrls)('an existing endpoint with the URL %s is not sent to', async (url, says) => {
    const { error, statusCode } = await openSender(strict).send(url, {}, '{}');
    expect([statusCode, error]).toEqual([undefined, expect.stringMatching(/^not sent: the URL must /)]);
    expect(error?.slice('not sent: the URL '.length)).toMatch(says);
  });

  describe('that the operator permits', () => {
    const permitting = (text: string) => openSender(createAddressPolicy(parseAllowedTargets(text)));

    test('may resolve to an address of a permitted network, and to no other', async () => {
      const sender = permitting('127.0.0.2,10.0.0.0/8');
      expect(
        await sendTo(
          sender,
          nameOf(() => ['127.0.0.2']),
          privateReceiver,
        ),
      ).toMatchObject({ statusCode: 204 });
      for (const addresses of [['127.0.0.1'], ['127.0.0.2', '127.0.0.1'], ['127.0.0.2', '::1']]) {
        expect(
          (
            await sendTo(
              sender,
              nameOf(() => addresses),
              privateReceiver,
            )
          ).error,
        ).toMatch(/^not sent: /);
      }
      expect(await sender.send(`http://127.0.0.1:${receiver.port}/`, {}, '{}')).toMatchObject({
        error: 'not sent: the URL must begin with https://',
      });
    });

    test('by name is reached wherever it resolves to, also over http', async () => {
      const plain = await startReceiver();
      const url = `http://localhost:${plain.port}/`;
      expect(await permitting('localhost').send(url, {}, '{}')).toMatchObject({ statusCode: 204 });
      expect(await permitting('127.0.0.0/8').send(url, {}, '{}')).toMatchObject({
        error: 'not sent: the URL must begin with https://',
      });
      expect(await permitting('127.0.0.0/8').send(plain.url, {}, '{}')).toMatchObject({ statusCode: 204 });
      expect(plain.requests).toHaveLength(2);
      await plain.close();
    });
  });
});

describe('WEBHOOK_ALLOW', () => {
  const policyOf = (text: string) =>
    createAddressPolicy(loadConfig({ ...external, WEBHOOK_ALLOW: text }).webhookAllow);

  test('permits hosts, addresses and networks, with http', () => {
    const policy = policyOf(' receiver , Hooks.Internal,10.0.0.0/8,192.168.1.7,fd00::/8,::1');
    for (const url of [
      ...['http://receiver/', 'https://receiver:8443/', 'http://RECEIVER:3000/x', 'http://hooks.internal/'],
      ...['http://10.1.2.3/', 'https://10.255.255.255/', 'http://192.168.1.7/', 'http://[fd12::1]:80/'],
      ...['http://[::1]/', 'http://[::ffff:10.0.0.1]/', 'http://0xa000001/'],
      'https://shop.example/',
    ]) {
      expect([url, policy.urlProblem(url)]).toEqual([url, undefined]);
    }
    for (const [url, says] of [
      ['http://shop.example/', noHttps],
      ['http://11.0.0.1/', noHttps],
      ['https://11.0.0.1/', noAddress],
      ['https://192.168.1.8/', noAddress],
      ['https://[fe80::1]/', noAddress],
      ['https://127.0.0.1/', noAddress],
      ['https://localhost/', notReachable],
      ['https://x.receiver/', undefined],
      ['http://x.receiver/', noHttps],
      ['https://internal/', notReachable],
      ['http://ada@receiver/', noPassword],
      ['http://receiver/#x', noFragment],
      ['ftp://receiver/', noHttps],
      ['http://receiver/a b', noSpaces],
    ] as const) {
      expect([url, policy.urlProblem(url)]).toEqual([url, says && expect.stringMatching(says)]);
    }
    for (const [address, reach] of [
      ['10.0.0.1', 'permitted'],
      ['::ffff:10.0.0.1', 'permitted'],
      ['64:ff9b::a00:1', 'permitted'],
      ['192.168.1.7', 'permitted'],
      ['fd00::1', 'permitted'],
      ['8.8.8.8', 'public'],
      ['192.168.1.8', undefined],
      ['127.0.0.1', undefined],
      ['fe80::1', undefined],
    ]) {
      expect([address, policy.reachOf(address as string)]).toEqual([address, reach]);
    }
    expect([policy.permitsHost('receiver'), policy.permitsHost('x.receiver')]).toEqual([true, false]);
  });

  test.each([
    'a,,b',
    ',receiver',
    '10.0.0.0/33',
    '10.0.0.0/',
    '10.0.0.0/x',
    '10.0.0.0/-1',
    '10.0.0.0/8/9',
    '::1/129',
    '[::1]',
    'receiver:8080',
    'http://receiver',
    'receiver/8',
    '*.internal',
    'receiver.',
    '-receiver',
    'a b',
    // A URL never has these as its host, because it turns them into 1.2.0.3 and 127.0.0.1.
    '1.2.3',
    '127.1',
    '0x7f.1',
    '2130706433',
    '10.0.0.256',
    'a'.repeat(254),
  ])('does not accept "%s"', (text) => {
    const load = () => loadConfig({ ...external, WEBHOOK_ALLOW: text });
    expect(load).toThrow(StartupError);
    expect(load).toThrow(
      /WEBHOOK_ALLOW must be a list like receiver\.internal,10\.0\.0\.0\/8: ".*" is no host name/,
    );
  });

  test('needs no entry for this machine in embedded mode, but does with an external database', () => {
    const urls = [
      'http://127.0.0.1:3000/',
      'http://localhost:3000/',
      'http://[::1]:3000/',
      'http://receiver/',
    ];
    const permittedBy = (env: Record<string, string>) => {
      const policy = createAddressPolicy(loadConfig(env).webhookAllow);
      return urls.filter((url) => policy.urlProblem(url) === undefined);
    };
    expect(permittedBy({})).toEqual(urls.slice(0, 3));
    expect(permittedBy({ WEBHOOK_ALLOW: 'receiver' })).toEqual(urls);
    expect(permittedBy(external)).toEqual([]);
    expect(permittedBy({ ...external, WEBHOOK_ALLOW: 'receiver' })).toEqual(urls.slice(3));
    // No other address of this network, even in embedded mode.
    const embedded = createAddressPolicy(loadConfig({}).webhookAllow);
    for (const address of ['10.0.0.1', '169.254.169.254', '0.0.0.0', 'fe80::1']) {
      expect([address, embedded.reachOf(address)]).toEqual([address, undefined]);
    }
  });
});
