// Refusals on the public door. Their constant parts are built once: a flood of refused requests has to cost little.

import { catalogue, type ErrorCode, type FieldViolation } from '../../contract/error-catalogue.ts';
import type { ServiceError } from '../../requests/errors.ts';

const beginnings = new Map(
  (Object.keys(catalogue) as ErrorCode[]).map((code) => [
    code,
    `{"error":{"code":${JSON.stringify(code)},"message":${JSON.stringify(catalogue[code].message)},"request_id":"`,
  ]),
);

/** The JSON of a refusal, the same as from `toErrorJson`. */
export function refusalJson(error: ServiceError, requestId: string, docUrl: string): string {
  const { code, message, violations, resumeAfter } = error;
  const beginning =
    message === catalogue[code].message
      ? beginnings.get(code)
      : `{"error":{"code":${JSON.stringify(code)},"message":${JSON.stringify(message)},"request_id":"`;
  return `${beginning}${requestId}","doc_url":${JSON.stringify(docUrl)}${detailsOf(violations)}${
    resumeAfter === undefined ? '' : `,"resume_after":"${resumeAfter}"`
  }}}`;
}

function detailsOf(violations: readonly FieldViolation[]): string {
  return violations.length === 0 ? '' : `,"details":${JSON.stringify(violations)}`;
}
