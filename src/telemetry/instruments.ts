import { Counter, Gauge, Histogram, type Registry } from 'prom-client';

/** In seconds, up to the default statement timeout. Most creates end in the first five buckets. */
export const durationBuckets = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10];

export type Instruments = ReturnType<typeof createInstruments>;

/** The kinds of metrics. The name of each begins with `payment_intents_`. */
export function createInstruments(registry: Registry) {
  const named = <Label extends string = never>(name: string, help: string, labelNames: Label[] = []) => ({
    ...{ name: `payment_intents_${name}`, help, labelNames, registers: [registry] },
  });
  return {
    /** The options that every metric has, for those that are read at each scrape. */
    named,
    counter: <Label extends string = never>(name: string, help: string, labels?: Label[]) =>
      new Counter(named(name, help, labels)),
    gauge: <Label extends string = never>(name: string, help: string, labels?: Label[]) =>
      new Gauge(named(name, help, labels)),
    /** Has no value, rather than 0, until it is measured. */
    measured(name: string, help: string): Gauge {
      const gauge = new Gauge(named(name, help));
      gauge.remove();
      return gauge;
    },
    /** Is read at each scrape. */
    read: (name: string, help: string, value: () => number | Promise<number>) =>
      new Gauge({
        ...named(name, help),
        async collect() {
          this.set(await value());
        },
      }),
    histogram: <Label extends string = never>(
      name: string,
      help: string,
      buckets: number[],
      labels?: Label[],
    ) => new Histogram({ ...named(name, help, labels), buckets }),
  };
}
