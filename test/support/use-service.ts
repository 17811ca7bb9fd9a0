import { afterAll, beforeAll } from 'vitest';
import { type Door, openDoors } from './doors.ts';
import { startService, type TestService } from './service.ts';

/** Provides one service and both its doors for the tests of a file or block, and closes them afterwards. */
export function useService(
  take: (service: TestService, doors: Door[]) => void,
  env: Record<string, string> = {},
): void {
  let service: TestService;
  let doors: Door[];

  beforeAll(async () => {
    service = await startService(env);
    doors = openDoors(service);
    take(service, doors);
  });

  afterAll(async () => {
    for (const door of doors) door.close();
    await service.close();
  });
}
