import assert from 'node:assert/strict';
import { mkdirSync } from 'node:fs';
import { after, before, type TestContext, test } from 'node:test';
import { type Browser, type BrowserContextOptions, chromium, type Page } from 'playwright-core';
import { statusRoutes } from '../../src/http/page/routes.ts';
import type { NodeView, ServiceView } from '../../src/model/view.ts';
import { counters, FakeView } from '../fakes/fake-view.ts';
import { ManualClock } from '../fakes/manual-clock.ts';
import { serve } from '../http/serve.ts';
import { waitFor } from '../netns/wait.ts';
import { address } from '../support/model.ts';

const WEB = 'default/web:http';
const DNS = 'kube-system/dns:dns';
const EMPTY = 'shop/empty';

/** A view that tests change while the page shows it. */
class ChangingView extends FakeView {
  readonly hidden = new Set<string>();
  readonly active = new Map<string, number>();
  /** Answers wait for it. */
  gate: Promise<void> | undefined;

  override async node(): Promise<NodeView> {
    await this.gate;
    return super.node();
  }

  override *services(...args: Parameters<FakeView['services']>): Iterable<ServiceView> {
    for (const service of super.services(...args)) if (!this.hidden.has(service.name)) yield this.#changed(service);
  }

  override service(...args: Parameters<FakeView['service']>): ServiceView | undefined {
    const service = super.service(...args);
    return service && this.#changed(service);
  }

  #changed(service: ServiceView): ServiceView {
    const { name, counters } = service;
    return { ...service, counters: { ...counters, active: this.active.get(name) ?? 0 } };
  }
}

/** Long: a browser on a busy machine is slow. */
const PATIENCE_MS = 120_000;

/** A folder for pictures, for people to look at; without it there are none. */
const PICTURES = process.env['KUP_TEST_PICTURES'];

/** Opens a page. The test fails on any message of its console or its policy. */
async function openPage(url: string, options: BrowserContextOptions = {}): Promise<Page> {
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

async function picture(page: Page, name: string): Promise<void> {
  if (PICTURES === undefined) return;
  mkdirSync(PICTURES, { recursive: true });
  await page.screenshot({ path: `${PICTURES}/${name}.png` });
}

/** The names in the table, in order. */
function names(page: Page): Promise<string[]> {
  return page.locator('#services > .scroll > table > tbody > tr > th').allTextContents();
}

/** Whether the table shows these, open or not. */
async function hasNames(page: Page, ...expected: readonly string[]): Promise<boolean> {
  return (await names(page)).map((name) => name.replace(/^\W+/, '')).join() === expected.join();
}

async function untilNames(page: Page, ...expected: readonly string[]): Promise<void> {
  await waitFor(`the table shows ${expected.join(', ')}`, () => hasNames(page, ...expected));
}

let browser: Browser;

before(async () => {
  // Its sandbox does not work for root, and the page is our own.
  const args = ['--no-sandbox'];
  browser = await chromium.launch({ executablePath: '/usr/bin/chromium', args, timeout: PATIENCE_MS });
});

after(async () => {
  await browser?.close();
});

/** Serves the page without the program. Its next update comes when the test advances the clock. */
async function setUp(t: TestContext) {
  const view = new ChangingView();
  const clock = new ManualClock();
  const { address } = await serve(t, new Map(statusRoutes(view, clock)), { maxConnections: 32 });
  return { view, clock, url: `http://127.0.0.1:${address.port}/status` };
}

/** Advances the clock until the page shows these. */
async function untilNextNames(page: Page, clock: ManualClock, ...expected: readonly string[]): Promise<void> {
  await waitFor(`the next answers show ${expected.join(', ')}`, () => {
    clock.advance(2_000);
    return hasNames(page, ...expected);
  });
}

/** Opens the maximum of eight streams. */
async function lookers(t: TestContext, url: string): Promise<void> {
  const answers = await Promise.all(Array.from({ length: 8 }, () => fetch(`${url}/live`)));
  assert.deepEqual(new Set(answers.map(({ status }) => status)), new Set([200]));
  // The reference keeps the answers from garbage collection, which would close them.
  t.after(() => Promise.allSettled(answers.map(({ body }) => body?.cancel())));
}

test('a row opens with its endpoints by mouse, and closes by keyboard', async (t) => {
  const { url } = await setUp(t);
  const page = await openPage(url);
  assert.deepEqual(await names(page), [`▸ ${EMPTY}`, `▸ ${WEB}`, `▸ ${DNS}`]);
  await page.locator(`[id="tr-${EMPTY}"] .empty`).waitFor();
  const link = page.locator(`[id="row-${WEB}"]`);
  await link.click();
  const open = page.locator(`[id="open-${WEB}"]`);
  await open.getByText('10.244.0.1:8080').waitFor();
  assert.equal(await open.locator('svg.share').count(), 3);
  assert.equal(await link.getAttribute('aria-expanded'), 'true');
  await link.focus();
  await page.keyboard.press('Space');
  await open.waitFor({ state: 'detached' });
  await picture(page, 'light');
  await page.close();
});

test('search, order and hiding of healthy Services are in the URL', async (t) => {
  const { url } = await setUp(t);
  const page = await openPage(url);
  await page.getByLabel('Search Services').fill('dns');
  await untilNames(page, DNS);
  await page.getByLabel('Search Services').fill('');
  await page.getByLabel('hide healthy').check();
  await untilNames(page, EMPTY);
  assert.match(page.url(), /\?hide=healthy$/);
  await page.getByLabel('hide healthy').uncheck();
  await page.locator('#sort-total').click();
  await untilNames(page, EMPTY, DNS, WEB);
  await page.locator('#sort-total').click();
  await untilNames(page, WEB, DNS, EMPTY);
  assert.equal(await page.locator('th[aria-sort=ascending]').textContent(), 'Total');
  await page.reload();
  await untilNames(page, WEB, DNS, EMPTY);
  await page.close();
});

test('the page works without JavaScript', async (t) => {
  const page = await openPage((await setUp(t)).url, { javaScriptEnabled: false });
  assert.equal((await names(page)).length, 3);
  await page.getByLabel('Search Services').fill('web');
  await page.getByRole('button', { name: 'Search' }).click();
  await page.waitForURL(/q=web/);
  assert.deepEqual(await names(page), [`▸ ${WEB}`]);
  await page.locator(`[id="row-${WEB}"]`).click();
  await page.getByText('10.244.0.1:8080').waitFor();
  assert.equal(await page.getByRole('button', { name: 'Pause' }).count(), 0);
  assert.ok((await page.locator('polyline').count()) >= 4);
  await picture(page, 'without-script');
  await page.close();
});

test('the page can be dark, and is not wider than a phone', async (t) => {
  const { url } = await setUp(t);
  const dark = await openPage(url, { colorScheme: 'dark' });
  assert.equal(await dark.evaluate('getComputedStyle(document.body).backgroundColor'), 'rgb(20, 23, 26)');
  await picture(dark, 'dark');
  await dark.close();
  const phone = await openPage(url, { viewport: { width: 390, height: 800 }, isMobile: true, hasTouch: true });
  assert.equal(await phone.evaluate('document.documentElement.scrollWidth'), 390);
  await picture(phone, 'phone');
  await phone.close();
});

test('a paused page shows what its user asks for, and stays paused until the user resumes it', async (t) => {
  const { url } = await setUp(t);
  const page = await openPage(url);
  await page.getByRole('button', { name: 'Pause' }).click();
  await page.getByText('paused', { exact: true }).waitFor();
  await page.locator(`[id="row-${WEB}"]`).click();
  await page.locator(`[id="open-${WEB}"]`).getByText('10.244.0.1:8080').waitFor();
  await page.locator('#sort-name').click();
  await untilNames(page, WEB, DNS, EMPTY);
  await page.getByLabel('Search Services').fill('web');
  await untilNames(page, WEB);
  assert.equal(await page.getByLabel('Search Services').inputValue(), 'web');
  assert.equal(await page.locator('#live').textContent(), 'paused');
  await picture(page, 'paused');
  await page.getByRole('button', { name: 'Pause' }).click();
  await page.getByText('live', { exact: true }).waitFor();
  await page.close();
});

test('the ninth page gets no stream, and shows what its user asks for', async (t) => {
  const { url } = await setUp(t);
  await lookers(t, url);
  const page = await (await browser.newContext()).newPage();
  page.setDefaultTimeout(PATIENCE_MS);
  await page.goto(url);
  await page.getByText('connection lost, trying again').waitFor();
  await page.locator(`[id="row-${WEB}"]`).click();
  await page.locator(`[id="open-${WEB}"]`).getByText('10.244.0.1:8080').waitFor();
  await page.getByLabel('Search Services').fill('dns');
  await untilNames(page, DNS);
  await page.close();
});

test('a choice before the answer to the last one is added to it', async (t) => {
  const { url, view } = await setUp(t);
  const page = await openPage(`${url}?sort=total&page=2`);
  let answer = () => {};
  view.gate = new Promise((resolve) => {
    answer = resolve;
  });
  const untilSearch = (search: string) =>
    waitFor(`the URL says ${search}`, () => decodeURIComponent(new URL(page.url()).search) === search);
  await page.locator('#sort-active').click();
  await page.getByLabel('Search Services').fill('http');
  await untilSearch('?sort=active&q=http');
  await page.locator(`[id="row-${DNS}"]`).click();
  await page.locator(`[id="row-${WEB}"]`).click();
  await untilSearch(`?sort=active&q=http&open=${DNS}&open=${WEB}`);
  answer();
  await untilNames(page, WEB);
  await page.locator(`[id="open-${WEB}"]`).waitFor();
  await page.locator(`[id="row-${WEB}"]`).click();
  await untilSearch(`?sort=active&q=http&open=${DNS}`);
  await page.close();
});

test('a row keeps the focus, without a blur, when rows above it come and go', async (t) => {
  const { url, view, clock } = await setUp(t);
  const page = await openPage(`${url}?sort=name`);
  await page.locator(`[id="row-${EMPTY}"]`).focus();
  await page.evaluate(`
    globalThis.blurs = 0;
    document.activeElement.addEventListener('blur', () => globalThis.blurs++);
  `);
  view.hidden.add(WEB);
  await untilNextNames(page, clock, DNS, EMPTY);
  view.hidden.clear();
  await untilNextNames(page, clock, WEB, DNS, EMPTY);
  assert.equal(await page.locator(':focus').getAttribute('id'), `row-${EMPTY}`);
  assert.equal(await page.evaluate('globalThis.blurs'), 0);
  await page.close();
});

test('a row keeps the focus when the order changes', async (t) => {
  const { url, view, clock } = await setUp(t);
  const page = await openPage(`${url}?sort=active`);
  await page.locator(`[id="row-${EMPTY}"]`).focus();
  view.active.set(EMPTY, 2).set(DNS, 1);
  await untilNextNames(page, clock, EMPTY, DNS, WEB);
  assert.equal(await page.locator(':focus').getAttribute('id'), `row-${EMPTY}`);
  view.active.clear();
  await untilNextNames(page, clock, WEB, DNS, EMPTY);
  assert.equal(await page.locator(':focus').getAttribute('id'), `row-${EMPTY}`);
  await page.close();
});

/** Names and addresses as long as they can be, and large numbers. */
class LongView extends FakeView {
  readonly name = `${'n'.repeat(63)}/${'s'.repeat(63)}:${'p'.repeat(63)}` as const;

  override *services(...args: Parameters<FakeView['services']>): Iterable<ServiceView> {
    for (const service of super.services(...args)) yield this.#long(service);
  }

  override service(...args: Parameters<FakeView['service']>): ServiceView | undefined {
    const [service] = super.services(args[2]);
    return service && this.#long(service);
  }

  #long(service: ServiceView): ServiceView {
    const clusterIPs = [address('fd00:1111:2222:3333:4444:5555:6666:7777')];
    const many = { ...counters(123_456_789_012), failedRefused: 1_234_567, retries: 1_234_567 };
    return {
      ...service,
      name: this.name,
      state: 'degraded',
      port: 65_535,
      nodePort: 30_080,
      clusterIPs,
      counters: many,
    };
  }
}

test('at 1280 pixels, failures are in view beside the longest name, which is cut and there as a whole', async (t) => {
  const view = new LongView({ services: 1 });
  const { address } = await serve(t, new Map(statusRoutes(view, new ManualClock())), { maxConnections: 32 });
  const page = await openPage(`http://127.0.0.1:${address.port}/status`);
  const right = async (selector: string) => {
    const box = await page.locator(selector).boundingBox();
    return (box?.x ?? Number.NaN) + (box?.width ?? Number.NaN);
  };
  assert.ok((await right('#sort-failures')) < 1_280);
  assert.ok((await right('#services .failed')) < 1_280);
  const name = page.locator(`[id="row-${view.name}"]`);
  assert.equal(await name.getAttribute('title'), view.name);
  const element = `document.getElementById('row-${view.name}')`;
  assert.equal(await page.evaluate(`${element}.scrollWidth > ${element}.clientWidth`), true, 'it is cut');
  assert.equal(await page.locator('#mark a').textContent(), '1 needs attention');
  await page.locator('#mark a').click();
  assert.equal(new URL(page.url()).hash, '#services');
  await picture(page, 'long');
  await page.close();
});

/** Thirty Services, of which three need attention. */
class TypicalView extends FakeView {
  constructor() {
    super({ services: 30 });
  }

  override *services(...args: Parameters<FakeView['services']>): Iterable<ServiceView> {
    for (const service of super.services(...args)) yield typical(service);
  }

  override service(...args: Parameters<FakeView['service']>): ServiceView | undefined {
    const service = super.service(...args);
    return service && typical(service);
  }
}

function typical(service: ServiceView): ServiceView {
  const { name, counters: counted } = service;
  if (name === WEB) {
    const reason = 'connections to an endpoint failed during the last minute';
    return { ...service, state: 'degraded', reason, counters: { ...counted, failedRefused: 14, retries: 14 } };
  }
  if (!name.includes('svc-00007')) return service;
  const reason = 'no endpoint has answered since its last failure';
  return { ...service, state: 'down', reason, counters: { ...counted, failedTimeout: 212, exhausted: 71 } };
}

test('the picture of the documents shows what needs attention first, with an open row', async (t) => {
  const { address } = await serve(t, new Map(statusRoutes(new TypicalView(), new ManualClock())));
  const url = `http://127.0.0.1:${address.port}/status?open=${encodeURIComponent(WEB)}`;
  const page = await openPage(url, { viewport: { width: 1280, height: 860 }, timezoneId: 'UTC' });
  await page.locator(`[id="open-${WEB}"]`).getByText('10.244.0.1:8080').waitFor();
  assert.deepEqual((await names(page)).slice(0, 3), ['▸ team-07/svc-00007:http', `▸ ${EMPTY}`, `▾ ${WEB}`]);
  await picture(page, 'status-page');
  await page.close();
});

test('on a phone, Services come first, and their failures are in sight', async (t) => {
  const { url } = await setUp(t);
  const page = await openPage(url, { viewport: { width: 390, height: 800 }, isMobile: true, hasTouch: true });
  const boxOf = async (selector: string) =>
    (await page.locator(selector).first().boundingBox()) ?? assert.fail(selector);
  const table = await boxOf('#services table');
  assert.ok(table.y < 400, `the table begins at ${table.y}`);
  assert.ok(table.y < (await boxOf('#overview')).y, 'the cards are below it');
  const failures = await boxOf('#sort-failures');
  assert.ok(failures.x + failures.width <= 390, `failures end at ${failures.x + failures.width}`);
  await picture(page, 'phone');
  await page.close();
});

test('times are those of the reader', async (t) => {
  const { url } = await setUp(t);
  const page = await openPage(url, { timezoneId: 'Asia/Kolkata', locale: 'en-GB' });
  // 1,700,000,000,000 less a minute.
  await page.locator('#events time').first().getByText('15/11/2023, 03:42:20').waitFor();
  assert.equal(await page.locator('#events thead th').first().textContent(), 'Time');
  await page.close();
});

test('a card keeps its height whatever its note says', async (t) => {
  const { url, view, clock } = await setUp(t);
  const page = await openPage(url);
  const height = async () => (await page.locator('#overview .tiles').boundingBox())?.height;
  const before = await height();
  const [family] = (await view.node()).families;
  const lastSync = { at: 1_699_999_000_000, durationMs: 12_345 };
  view.nodeChanges = { families: [{ ...family!, pending: 12_345, lastSync }] };
  await waitFor('the note is long', async () => {
    clock.advance(2_000);
    return ((await page.locator('#overview').textContent()) ?? '').includes('12,345 Services wait');
  });
  assert.equal(await height(), before);
  await page.close();
});
