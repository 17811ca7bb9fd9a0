import { BaseSequencer, type TestSpecification } from 'vitest/node';

/** Files that take long although they are short. */
const slow = 'settlement-model node-plans checkout-states shop-browser image crashes outages'.split(' ');
const isSlow = ({ moduleId }: TestSpecification) =>
  slow.some((name) => moduleId.endsWith(`/${name}.test.ts`));

/** If the durations of files are unknown, as in CI, vitest begins with the largest. These go before them. */
export class LongestFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const groupOf = ({ project }: TestSpecification) => project.config.sequence.groupOrder;
    const sorted = await super.sort(files);
    return sorted.sort((a, b) => groupOf(a) - groupOf(b) || Number(isSlow(b)) - Number(isSlow(a)));
  }
}
