// Full load on the public door, with the service's memory measured every few seconds.

import { setTimeout as sleep } from 'node:timers/promises';
import { loadByH2load, requireTools } from './load.ts';
import { median, onThisMachine, prepareDatabase, publish, startOurs, table, withSetting } from './setting.ts';

const secondsBetweenSamples = 5;

export async function soak({ minutes }: { minutes: number }): Promise<void> {
  await requireTools(['h2load']);
  await withSetting(async ({ folder, postgres }) => {
    const database = await prepareDatabase(postgres);
    const server = await startOurs(database.environment, 'HTTP_PORT');
    const target = { port: server.port, apiKey: database.apiKey, inFlight: 64 };
    const perMinute: { perSecond: number; p99Ms: number; residentMb: number }[] = [];
    for (let minute = 1; minute <= minutes; minute++) {
      let isLoading = true;
      const loading = loadByH2load(folder, 'http', { ...target, seconds: 60 }).finally(() => {
        isLoading = false;
      });
      const samplesMb: number[] = [];
      while (isLoading) {
        await Promise.race([loading, sleep(secondsBetweenSamples * 1000)]);
        samplesMb.push((await server.residentMb()).now);
      }
      const { perSecond, p99Ms } = await loading;
      perMinute.push({ perSecond, p99Ms, residentMb: median(samplesMb) });
      console.error(
        `minute ${minute}: ${Math.round(perSecond)}/s, p99 ${p99Ms} ms, ${Math.round(median(samplesMb))} MB`,
      );
    }
    const { peak } = await server.residentMb();
    await server.stop();
    const [counted] = await database.orm.em.execute<{ count: string }[]>(
      'select count(*) from payment_intents',
    );
    await database.orm.close();

    const half = Math.ceil(minutes / 2);
    const average = (values: number[]) => values.reduce((sum, value) => sum + value, 0) / values.length;
    const memory = perMinute.map(({ residentMb }) => residentMb);
    const growth = average(memory.slice(half)) / average(memory.slice(0, half));
    await publish(
      'results-soak.md',
      `# Memory under full load

\`npm run bench -- --soak\` ${onThisMachine()}; public door, 64 in flight for ${minutes} minutes, ${Number(counted?.count).toLocaleString('en')} intents made. Resident memory at its peak: **${Math.round(peak)} MB** (target: at most 200). Second half against the first: **${growth.toFixed(2)}** (target: flat).

${table(
  ['minute', 'creates/s', 'p99 ms', 'resident MB, median'],
  perMinute.map((m, i) => [i + 1, Math.round(m.perSecond), m.p99Ms.toFixed(2), Math.round(m.residentMb)]),
)}
`,
    );
  });
}
