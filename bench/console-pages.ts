// The console in Chromium: time to first paint, time to another view, and whether many rows scroll smoothly.

import type { Page } from 'playwright-core';
import { openBrowser } from '../test/support/browser.ts';
import { median, percentile } from './setting.ts';

const rowsOfPage = 50;
const wantedRows = 1_000;
const scrollMs = 4_000;

export interface PageTimes {
  firstPaintMs: number;
  figuresMs: number;
  /** From the click until the rows or figures of the other view are drawn. */
  changeMs: { p50: number; max: number };
  /** Between frames while a thousand rows are scrolled. */
  frameMs: { p50: number; p99: number };
}

/** `newLink` creates a link that opens the console once. */
export async function measurePages(newLink: () => Promise<string>, rounds: number): Promise<PageTimes> {
  const paints: number[] = [];
  const figures: number[] = [];
  const changes: number[] = [];
  const frames: number[] = [];
  for (let round = 0; round < rounds; round++) {
    const browser = await openBrowser();
    const page = await browser.context.newPage();
    await page.goto(await newLink());
    await page.waitForSelector('.figures dd');
    // The time to the figures, and the time to the first paint, since the address was opened.
    figures.push(await page.evaluate(() => performance.now()));
    paints.push(
      await page.evaluate(() => performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? 0),
    );
    for (let i = 0; i < 5; i++) {
      changes.push(await changeTo(page, 'Payments', 'tbody tr'));
      changes.push(await changeTo(page, 'Home', '.figures dd'));
    }
    await changeTo(page, 'Payments', 'tbody tr');
    for (let rows = rowsOfPage; rows < wantedRows; rows += rowsOfPage) {
      await page.getByRole('button', { name: 'Show more' }).click();
      await page
        .locator('tbody tr')
        .nth(rows + rowsOfPage - 1)
        .waitFor();
    }
    frames.push(...(await page.evaluate<number[]>(scroll)));
    await browser.close();
  }
  return {
    firstPaintMs: median(paints),
    figuresMs: median(figures),
    changeMs: { p50: median(changes), max: Math.max(...changes) },
    frameMs: { p50: median(frames), p99: percentile(frames, 0.99) },
  };
}

/** Milliseconds from the click on a view's link until a frame with its content, by the page's own clock. */
function changeTo(page: Page, link: string, shown: string): Promise<number> {
  return page.evaluate(`new Promise((resolve) => {
    const beganAtMs = performance.now();
    const isShown = () =>
      document.querySelector('h1').textContent === '${link}' && document.querySelector('${shown}') !== null;
    // What is there before a frame is drawn is seen with that frame, and the time ends with the next one.
    const look = () => requestAnimationFrame(() => (isShown() ? requestAnimationFrame(end) : look()));
    const end = () => resolve(performance.now() - beganAtMs);
    for (const found of document.querySelectorAll('nav a')) {
      if (found.textContent.trim() === '${link}') found.click();
    }
    look();
  })`);
}

/** Scrolls down and up again, and resolves with the times between frames. Runs in the page. */
const scroll = `new Promise((resolve) => {
  const times = [];
  const beganAtMs = performance.now();
  const height = document.documentElement.scrollHeight - innerHeight;
  let before = beganAtMs;
  const draw = (nowMs) => {
    times.push(nowMs - before);
    before = nowMs;
    const part = (nowMs - beganAtMs) / ${scrollMs};
    scrollTo(0, height * (1 - Math.abs(1 - 2 * part)));
    if (part < 1) requestAnimationFrame(draw);
    else resolve(times.slice(1));
  };
  requestAnimationFrame(draw);
})`;
