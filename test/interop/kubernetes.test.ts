// ops/kubernetes.yaml against Kubernetes' schemas.

import { readFile } from 'node:fs/promises';
import { expect, test } from 'vitest';
import { parseAllDocuments } from 'yaml';

const validatorOf = async (schema: string): Promise<Validator> =>
  (await import(/* @vite-ignore */ `kubernetes-models/_schemas/${schema}`)).validate;
const validators: Record<string, Validator> = {
  Deployment: await validatorOf('IoK8sApiAppsV1Deployment'),
  PodDisruptionBudget: await validatorOf('IoK8sApiPolicyV1PodDisruptionBudget'),
  Service: await validatorOf('IoK8sApiCoreV1Service'),
};

const documents = parseAllDocuments(await readFile('ops/kubernetes.yaml', 'utf8')).map(
  (document) => document.toJS({ maxAliasCount: 100 }) as { kind: string; spec: object },
);

test.each(documents.map((document) => [document.kind, document] as const))(
  '%s is valid by Kubernetes’ schema, without unknown names',
  (kind, document) => {
    expect(check(validators[kind] as Validator, document)).toEqual([]);
  },
);

type Validator = ((data: unknown) => boolean) & { errors: { instancePath: string; message?: string }[] };

/**
 * Returns the faults that a schema's validator reports, and unknown names. The validator reads every property of the
 * schema, so a name that it never reads is not in the schema.
 */
function check(validate: Validator, document: object): string[] {
  const asked = new Set<object | string>();
  const watch = (value: unknown, path: string): unknown => {
    if (value === null || typeof value !== 'object') return value;
    return new Proxy(value, {
      get(target, key) {
        if (typeof key === 'symbol') return Reflect.get(target, key);
        asked.add(`${path}.${key}`);
        return watch(Reflect.get(target, key), `${path}.${key}`);
      },
    });
  };
  const isValid = validate(watch(document, ''));
  const faults = isValid ? [] : validate.errors.map((error) => JSON.stringify(error));
  const visit = (value: unknown, path: string) => {
    if (value === null || typeof value !== 'object') return;
    for (const [name, inner] of Object.entries(value)) {
      if (asked.has(`${path}.${name}`)) visit(inner, `${path}.${name}`);
      else faults.push(`no such name: ${path}.${name}`);
    }
  };
  visit(document, '');
  return faults;
}
