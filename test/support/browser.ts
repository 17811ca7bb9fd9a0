// A real browser, if one is installed.

import { existsSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type Browser, type BrowserContext, type BrowserContextOptions, chromium } from 'playwright-core';
import { afterAll, beforeAll } from 'vitest';

const installed = (...paths: string[]) => paths.find((path) => existsSync(path));
/** Paths of Chromium on Debian and other systems. */
const executable = installed('/usr/bin/chromium', '/usr/bin/chromium-browser', '/usr/bin/google-chrome');
/** It has no windows, which saves a third of the work. It does not block popups. */
const headlessShell = installed('/usr/bin/chromium-headless-shell');
export const hasBrowser = executable !== undefined;
if (!hasBrowser) console.log('skipped: no Chromium is installed (apt-get install chromium)');

export interface TestBrowser {
  context: BrowserContext;
  /** Opens another profile, like that of another person, which shares no storage with the first. */
  newContext(options?: BrowserContextOptions): Promise<BrowserContext>;
  close(): Promise<void>;
}

export interface BrowserOptions {
  javaScriptEnabled?: boolean;
  /** Blocks popups that no click has opened, as browsers do. Playwright turns that off. */
  blocksPopups?: boolean;
  /** A host name that leads to 127.0.0.1, as in a DNS rebinding attack. */
  reboundHost?: string;
}

/** Opens something before the tests of a block, and closes it after them. */
export function useOpened<T extends { close(): Promise<void> }>(open: () => Promise<T>): T {
  const opened = {} as T;
  beforeAll(async () => void Object.assign(opened, await open()));
  afterAll(() => opened.close());
  return opened;
}

/** A waiting page has a spinner, which would be drawn sixty times a second. */
const calm = { reducedMotion: 'reduce' } as const;

/** Starts Chromium with a new profile. */
export async function openBrowser({
  blocksPopups = false,
  reboundHost,
  ...options
}: BrowserOptions = {}): Promise<TestBrowser> {
  const profile = await mkdtemp(join(tmpdir(), 'pi-browser-'));
  const context = await chromium.launchPersistentContext(profile, {
    ...calm,
    ...options,
    executablePath: ((blocksPopups ? undefined : headlessShell) ?? executable) as string,
    headless: true,
    ...(blocksPopups && { ignoreDefaultArgs: ['--disable-popup-blocking'] }),
    args: [
      ...['--headless', '--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run'],
      ...['--disable-background-networking', '--disable-component-update', '--disable-sync'],
      ...(reboundHost === undefined ? [] : [`--host-resolver-rules=MAP ${reboundHost} 127.0.0.1`]),
    ],
  });
  return {
    context,
    newContext: (options) => (context.browser() as Browser).newContext({ ...calm, ...options }),
    async close() {
      await context.close();
      await rm(profile, { recursive: true, force: true });
    },
  };
}
