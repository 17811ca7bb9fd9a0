// A DNS server over UDP, whose answers the test decides.

import dgram from 'node:dgram';
import { once } from 'node:events';
import { decode, encode, type Packet } from 'dns-packet';

export interface DnsQuestion {
  name: string;
  type: 'A' | 'AAAA';
  /** How often this was queried before. */
  asked: number;
}

/** Addresses of the queried type, or the failure. */
export type DnsAnswer = readonly string[] | 'NXDOMAIN' | 'SERVFAIL' | 'no answer';

export interface DnsServer {
  /** `host:port`. */
  address: string;
  close(): Promise<void>;
}

const responseCodes = { NXDOMAIN: 3, SERVFAIL: 2 } as const;

export async function startDnsServer(answer: (question: DnsQuestion) => DnsAnswer): Promise<DnsServer> {
  const asked = new Map<string, number>();
  const socket = dgram.createSocket('udp4');
  socket.on('message', (message, { address, port }) => {
    const { id = 0, questions = [] } = decode(message);
    const [question] = questions;
    if (question === undefined || (question.type !== 'A' && question.type !== 'AAAA')) return;
    const { name, type } = question;
    const key = `${type} ${name}`;
    const before = asked.get(key) ?? 0;
    asked.set(key, before + 1);
    const result = answer({ name: name.toLowerCase(), type, asked: before });
    if (result === 'no answer') return;
    const response: Packet = {
      type: 'response',
      id,
      // Recursion is available; the lowest four bits are the code.
      flags: 0x180 | (typeof result === 'string' ? responseCodes[result] : 0),
      questions,
      answers: typeof result === 'string' ? [] : result.map((data) => ({ type, name, ttl: 0, data })),
    };
    socket.send(encode(response), port, address);
  });
  socket.bind(0, '127.0.0.1');
  await once(socket, 'listening');
  return {
    address: `127.0.0.1:${socket.address().port}`,
    async close() {
      socket.close();
      await once(socket, 'close');
    },
  };
}
