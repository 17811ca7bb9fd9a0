// Each example in the OpenAPI document is an answer that the service could return.

import { Ajv2020 } from 'ajv/dist/2020.js';
import addFormats from 'ajv-formats';
import { expect, test } from 'vitest';
import { eventTypes } from '../src/contract/event-types.ts';
import document from '../src/contract/gen/openapi.json' with { type: 'json' };

const ajv = new Ajv2020({ strict: true, allowUnionTypes: true });
addFormats.default(ajv);
for (const keyword of ['x-default', 'x-extensible-enum', 'components']) ajv.addKeyword(keyword);

interface Content {
  'application/json': { schema: { $ref: string }; example?: unknown };
}

const { webhooks, components } = document;
const operations = Object.values(document.paths).flatMap((path) => Object.values(path));
const answers = operations.flatMap(({ operationId, responses }) =>
  Object.entries(responses as Record<string, { content?: Content }>).flatMap(([status, { content }]) =>
    content?.['application/json'].example === undefined
      ? []
      : [[`${operationId} ${status}`, content['application/json']] as const],
  ),
);
const events = Object.entries(webhooks).map(
  ([type, { post }]) => [type, post.requestBody.content['application/json']] as const,
);

test.each([...answers, ...events])('%s: its example matches its schema', (_, { schema, example }) => {
  const validate = ajv.compile({ ...schema, components });
  validate(example);
  expect(validate.errors).toBeNull();
});

test.each(events)('the example of %s has the resource of its name', (type, { example }) => {
  const { data, ...event } = example as { type: string; sequence?: number; data: object };
  const [resource] = type.split('.');
  expect([event.type, Object.keys(data)]).toEqual([type, [resource]]);
  // Only events of an intent or a refund have a sequence.
  expect('sequence' in event).toBe(resource === 'payment_intent' || resource === 'refund');
});

test('every type of event has an example', () => {
  expect(Object.keys(webhooks)).toEqual(eventTypes);
});

test('a transfer in an example has an intent if and only if it is attributed', () => {
  const transfers: { status: string; payment_intent?: string }[] = [];
  JSON.stringify([answers, events], (_, value) => {
    if (String(value?.id).startsWith('tr_')) transfers.push(value);
    return value;
  });
  const statuses = transfers.map(({ status, payment_intent }) => [status, payment_intent !== undefined]);
  expect(statuses).toEqual([
    ['unattributed', false],
    ['unattributed', false],
    ['attributed', true],
    // The answer to a detachment, and its event.
    ['unattributed', false],
    ['unattributed', false],
  ]);
});
