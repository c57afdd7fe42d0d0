import assert from 'node:assert/strict';
import { mkdirSync } from 'node:fs';
import type { Browser, BrowserContextOptions, Page } from 'playwright-core';
import { waitFor } from '../netns/wait.ts';

/** Ends a wait in vain, and no other: a browser on a machine that does much else is slow. */
export const PATIENCE_MS = 120_000;

/** Where pictures go, for people to look at; none without it. */
const PICTURES = process.env['KUP_TEST_PICTURES'];

/** A page that is live and fails the test on anything that its console or the policy complains of. */
export async function openPage(browser: Browser, url: string, options: BrowserContextOptions = {}): Promise<Page> {
  const context = await browser.newContext({ viewport: { width: 1280, height: 900 }, ...options });
  const page = await context.newPage();
  page.setDefaultTimeout(PATIENCE_MS);
  const complaints: string[] = [];
  page.on('console', (message) => complaints.push(`${message.type()}: ${message.text()}`));
  page.on('pageerror', (error) => complaints.push(error.message));
  page.on('dialog', (dialog) => {
    complaints.push('markup ran');
    void dialog.dismiss();
  });
  page.on('close', () => assert.deepEqual(complaints, []));
  await page.goto(url);
  if (options.javaScriptEnabled !== false) await page.getByText('live', { exact: true }).waitFor();
  return page;
}

export async function picture(page: Page, name: string): Promise<void> {
  if (PICTURES === undefined) return;
  mkdirSync(PICTURES, { recursive: true });
  await page.screenshot({ path: `${PICTURES}/${name}.png` });
}

/** The names in the table, in their order. */
export function names(page: Page): Promise<string[]> {
  return page.locator('#services > .scroll > table > tbody > tr > th').allTextContents();
}

/** Whether the table shows these, be they open or not. */
export async function hasNames(page: Page, ...expected: readonly string[]): Promise<boolean> {
  return (await names(page)).map((name) => name.replace(/^\W+/, '')).join() === expected.join();
}

export async function untilNames(page: Page, ...expected: readonly string[]): Promise<void> {
  await waitFor(`the table shows ${expected.join(', ')}`, () => hasNames(page, ...expected));
}
