import assert from 'node:assert/strict';
import { chmodSync, writeFileSync } from 'node:fs';
import { after, before, beforeEach, describe, test } from 'node:test';
import { type Browser, chromium, type Page } from 'playwright-core';
import { Environment, NOBODY, type Served, TCP } from '../netns/harness.ts';
import { serviceObjects } from '../netns/manifests.ts';
import { POD_ADDRESSES } from '../netns/topology.ts';
import { waitFor } from '../netns/wait.ts';
import { names, openPage, PATIENCE_MS, picture, untilNames } from './pages.ts';

const URL = 'http://127.0.0.1:10249/status';
const MARKUP = '<img src=x onerror="alert(1)">';

/** A browser on the node itself, where the page is. */
function openBrowser(environment: Environment): Promise<Browser> {
  const path = environment.temporary('chromium');
  writeFileSync(path, `#!/bin/sh\nexec ip netns exec ${environment.topology.node.name} chromium "$@"\n`);
  chmodSync(path, 0o755);
  // Its sandbox does not work for root; what it shows here is our own.
  return chromium.launch({ executablePath: path, args: ['--no-sandbox'], timeout: PATIENCE_MS });
}

/** The number in a column of a Service's row, from 0, names not counted. */
async function numberIn(page: Page, service: string, column: number): Promise<number> {
  return Number(await page.locator(`[id="tr-${service}"] > td`).nth(column).textContent());
}

const TOTAL = 5;

describe('with three Services', () => {
  let environment: Environment;
  let browser: Browser;
  let web: Served;
  let refusing: Served;

  const connect = async (served: Pick<Served, 'host' | 'port'>) => {
    const { connection } = await environment.client.call('open', served);
    return connection;
  };

  before(async () => {
    environment = await Environment.create();
    await environment.startProxy();
    web = await environment.serve({
      name: 'web',
      ports: [{ name: 'http', port: 80, target: TCP.echo, nodePort: environment.nodePort() }],
      endpoints: POD_ADDRESSES,
    });
    refusing = await environment.serve({
      name: 'refusing',
      ports: [{ port: 80, target: NOBODY }],
      endpoints: POD_ADDRESSES,
    });
    const [service, endpoints] = serviceObjects({
      name: 'empty',
      clusterIP: environment.clusterIP(),
      ports: [{ port: 80, target: TCP.echo }],
      endpoints: [],
    }) as { metadata: object }[];
    const annotated = { ...service, metadata: { ...service?.metadata, annotations: { note: MARKUP } } };
    environment.manifests.write('empty.yaml', [annotated, endpoints as object]);
    await waitFor('the proxy knows the one without endpoints, too', async () => {
      const { body } = await environment.node.call('httpGet', { url: `${URL}.json` });
      return JSON.parse(body).services.length === 3;
    });
    // More than there are tests.
    for (let n = 0; n < 20; n++) await connect(web);
    browser = await openBrowser(environment);
  });

  // A Service counts as degraded for a minute, of which the browser alone may need more than that.
  beforeEach(async () => {
    await environment.client.call('finish', { connection: await connect(refusing) });
  });

  after(async () => {
    await browser?.close();
    await environment?.remove();
  });

  test('shows Services with their states, and lives', async () => {
    const page = await openPage(browser, URL);
    assert.deepEqual(await names(page), ['▸ test/empty', '▸ test/refusing', '▸ test/web:http']);
    await page.locator('[id="tr-test/refusing"] .degraded').waitFor();
    await page.locator('[id="tr-test/empty"] .empty').waitFor();
    const before = await numberIn(page, 'test/web:http', TOTAL);
    await connect(web);
    await waitFor('the row counts on', async () => (await numberIn(page, 'test/web:http', TOTAL)) > before);
    await picture(page, 'three-light');
    await page.close();
  });

  test('a row opens with its endpoints, by mouse and by keyboard, and keeps the focus while it lives', async () => {
    const page = await openPage(browser, URL);
    const link = page.locator('[id="row-test/web:http"]');
    await link.click();
    const open = page.locator('[id="open-test/web:http"]');
    await open.getByText(`${POD_ADDRESSES[0]}:${TCP.echo}`).waitFor();
    assert.equal(await open.locator('svg.share').count(), 3);
    assert.equal(await link.getAttribute('aria-expanded'), 'true');
    await link.focus();
    const before = await numberIn(page, 'test/web:http', TOTAL);
    await connect(web);
    await waitFor('the row counts on', async () => (await numberIn(page, 'test/web:http', TOTAL)) > before);
    assert.equal(await page.locator(':focus').getAttribute('id'), 'row-test/web:http');
    await picture(page, 'three-open');
    await page.keyboard.press('Space');
    await open.waitFor({ state: 'detached' });
    await page.locator('[id="row-test/refusing"]').click();
    const error = page.locator('[id="open-test/refusing"] .error').first();
    await error.filter({ hasText: /refused/i }).waitFor();
    await page.close();
  });

  test('searches, hides what is healthy, sorts, and the URL says so', async () => {
    const page = await openPage(browser, URL);
    await page.getByLabel('Search Services').fill('ref');
    await untilNames(page, 'test/refusing');
    await page.getByLabel('Search Services').fill('');
    await page.getByLabel('hide healthy').check();
    await untilNames(page, 'test/empty', 'test/refusing');
    assert.match(page.url(), /\?hide=healthy$/);
    await page.getByLabel('hide healthy').uncheck();
    await page.locator('#sort-total').click();
    await untilNames(page, 'test/web:http', 'test/refusing', 'test/empty');
    await page.locator('#sort-total').click();
    await untilNames(page, 'test/empty', 'test/refusing', 'test/web:http');
    assert.equal(await page.locator('th[aria-sort=ascending]').textContent(), 'Total');
    await page.reload();
    await untilNames(page, 'test/empty', 'test/refusing', 'test/web:http');
    await page.close();
  });

  test('works without JavaScript', async () => {
    const page = await openPage(browser, URL, { javaScriptEnabled: false });
    assert.equal((await names(page)).length, 3);
    await page.getByLabel('Search Services').fill('web');
    await page.getByRole('button', { name: 'Search' }).click();
    await page.waitForURL(/q=web/);
    assert.deepEqual(await names(page), ['▸ test/web:http']);
    await page.locator('[id="row-test/web:http"]').click();
    await page.getByText(`${POD_ADDRESSES[0]}:${TCP.echo}`).waitFor();
    assert.equal(await page.getByRole('button', { name: 'Pause' }).count(), 0);
    assert.ok((await page.locator('polyline').count()) >= 4);
    await picture(page, 'three-without-script');
    await page.close();
  });

  test('dark, and on a phone, nothing is wider than the screen', async () => {
    const dark = await openPage(browser, URL, { colorScheme: 'dark' });
    const ground = await dark.evaluate('getComputedStyle(document.body).backgroundColor');
    assert.equal(ground, 'rgb(20, 23, 26)');
    await picture(dark, 'three-dark');
    await dark.close();
    const phone = await openPage(browser, URL, {
      viewport: { width: 390, height: 800 },
      isMobile: true,
      hasTouch: true,
    });
    assert.equal(await phone.evaluate('document.documentElement.scrollWidth'), 390);
    await picture(phone, 'three-phone');
    await phone.close();
  });
});
