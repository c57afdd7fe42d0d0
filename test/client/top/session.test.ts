import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { ASCII, type Frame } from '../../../src/client/top/frame.ts';
import { Looker } from '../../../src/client/top/look.ts';
import { Session } from '../../../src/client/top/session.ts';
import type { ServiceFilter } from '../../../src/contracts/view.ts';
import { counters, FakeView } from '../../fakes/fake-view.ts';
import { ManualClock } from '../../fakes/manual-clock.ts';
import { settle } from '../../support/until.ts';
import { controlOf } from '../control-of.ts';
import { textOf } from './scenes.ts';

/** Counts a hundred connections more each time that it is looked at, and can be out of reach. */
class BusyView extends FakeView {
  looks = 0;
  /** Times that it was asked, answered or not. */
  asked = 0;
  problem: string | undefined;
  #held: Promise<void> | undefined;
  readonly filters: ServiceFilter[] = [];

  /** Answers nothing more until what this returns is called. */
  hold(): () => void {
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#held = promise;
    return resolve;
  }

  override async node() {
    this.asked++;
    await this.#held;
    if (this.problem !== undefined) throw new Error(this.problem);
    this.looks++;
    return await super.node();
  }

  override *services(filter: ServiceFilter = {}) {
    this.filters.push(filter);
    for (const service of super.services(filter)) {
      yield { ...service, counters: { ...counters(0), connections: this.looks * 100 } };
    }
  }
}

class Watched {
  readonly clock = new ManualClock();
  readonly view = new BusyView();
  readonly looker = new Looker(controlOf(this.view), this.clock);
  readonly frames: Frame[] = [];
  cleared = 0;
  ended = 0;
  session!: Session;

  async start(delayMs = 2_000): Promise<this> {
    const { looker } = this;
    this.session = new Session({
      looker,
      firstLook: await looker.look(undefined),
      screen: {
        size: () => ({ columns: 80, rows: 24 }),
        show: (frame) => this.frames.push(frame),
        clear: () => this.cleared++,
      },
      glyphs: ASCII,
      clock: this.clock,
      delayMs,
      onOver: () => this.ended++,
    });
    this.session.start();
    return this;
  }

  async advance(ms: number): Promise<void> {
    this.clock.advance(ms);
    await settle();
  }

  async type(text: string): Promise<void> {
    this.session.type(text);
    await settle();
  }

  get lines(): string[] {
    return textOf(this.frames.at(-1) ?? []).map((text) => text.trimEnd());
  }
}

describe('top', () => {
  test('draws at once, and again with rates after each look', async () => {
    const watched = await new Watched().start();
    assert.equal(watched.frames.length, 1);
    assert.match(watched.lines[4] ?? '', / new\/s 0 /);
    await watched.advance(1_999);
    assert.equal(watched.view.looks, 1);
    await watched.advance(1);
    assert.equal(watched.view.looks, 2);
    assert.match(watched.lines[4] ?? '', / new\/s 150 /);
    await watched.advance(2_000);
    assert.equal(watched.view.looks, 3);
  });

  test('asks for no endpoints but those of the Service that is open', async () => {
    const watched = await new Watched().start();
    await watched.advance(2_000);
    assert.deepEqual(watched.view.filters, [{ summary: true }, { summary: true }]);
    await watched.type('\r');
    assert.deepEqual(watched.view.filters.at(-1), { namespace: 'default', service: 'web' });
    assert.match(watched.lines[8] ?? '', /^10\.244\.0\.1:8080 /);
    await watched.advance(2_000);
    assert.deepEqual(watched.view.filters.slice(-2), [{ summary: true }, { namespace: 'default', service: 'web' }]);
  });

  test('says what is wrong, keeps what it has, and goes on', async () => {
    const watched = await new Watched().start();
    watched.view.problem = 'nobody is there';
    await watched.advance(2_000);
    assert.equal(watched.lines[6], 'Trying again: nobody is there');
    assert.match(watched.lines[0] ?? '', /^NO ANSWER /);
    assert.match(watched.lines[8] ?? '', /^default\/web:http /);
    watched.view.problem = undefined;
    await watched.advance(2_000);
    assert.equal(watched.lines[6], 'default/web:http  TCP 10.96.0.0:80');
    assert.match(watched.lines[0] ?? '', /^healthy /);
  });

  test('does not look while it is paused, yet obeys keys', async () => {
    const watched = await new Watched().start();
    await watched.type('p');
    await watched.advance(60_000);
    assert.equal(watched.view.looks, 1);
    await watched.type('\u001b[B');
    assert.equal(watched.lines[6], 'PAUSED  kube-system/dns:dns  UDP 10.96.0.1:53');
    await watched.type('p');
    await watched.advance(2_000);
    assert.equal(watched.view.looks, 2);
  });

  test('has another interval at once', async () => {
    const watched = await new Watched().start();
    await watched.type('-');
    assert.match(watched.lines[23] ?? '', /every 1s$/);
    await watched.advance(1_000);
    assert.equal(watched.view.looks, 2);
  });

  test('has one look under way at most', async () => {
    const watched = await new Watched().start();
    const answer = watched.view.hold();
    await watched.advance(2_000);
    await watched.type('-');
    await watched.advance(60_000);
    assert.equal(watched.view.asked, 2);
    answer();
    await settle();
    assert.equal(watched.view.looks, 2);
    assert.equal(watched.clock.pendingTimers, 1);
  });

  test('shows no endpoints of another Service than the one that is open', async () => {
    const watched = await new Watched().start();
    await watched.type('\r');
    assert.match(watched.lines[8] ?? '', /^10\.244\.0\.1:8080 /);
    watched.session.type('\u001b\u001b[B\r');
    assert.equal(watched.lines[8], '');
    await settle();
    assert.match(watched.lines[8] ?? '', /^10\.244\.1\.1:53 /);
  });

  test('keeps what was opened while a look was under way', async () => {
    const watched = await new Watched().start();
    const answer = watched.view.hold();
    await watched.advance(2_000);
    await watched.type('\r');
    assert.match(watched.lines[8] ?? '', /^10\.244\.0\.1:8080 /);
    answer();
    await settle();
    assert.equal(watched.view.looks, 2);
    assert.match(watched.lines[8] ?? '', /^10\.244\.0\.1:8080 /);
  });

  test('shows what was opened last, whatever is answered last', async () => {
    const watched = await new Watched().start();
    const { looker } = watched;
    const open = looker.open.bind(looker);
    const { promise, resolve } = Promise.withResolvers<void>();
    looker.open = async (key) => {
      if (key.service === 'web') await promise;
      return await open(key);
    };
    await watched.type('\r\u001b');
    await watched.type('\u001b[B\r');
    assert.match(watched.lines[6] ?? '', /^kube-system\/dns:dns /);
    resolve();
    await settle();
    assert.match(watched.lines[6] ?? '', /^kube-system\/dns:dns /);
  });

  test('filters while typing', async () => {
    const watched = await new Watched().start();
    await watched.type('/sho');
    assert.equal(watched.lines[6], 'Filter: sho_  1 match');
    assert.match(watched.lines[8] ?? '', /^shop\/empty /);
    assert.equal(watched.lines[9], '');
  });

  test('draws everything after a resize', async () => {
    const watched = await new Watched().start();
    watched.session.repaint();
    assert.equal(watched.cleared, 1);
    assert.equal(watched.frames.length, 2);
  });

  test('ends once, and then neither looks nor draws', async () => {
    const watched = await new Watched().start();
    await watched.type('qq');
    assert.equal(watched.ended, 1);
    await watched.advance(60_000);
    assert.equal(watched.view.looks, 1);
    assert.equal(watched.frames.length, 1);
    assert.equal(watched.clock.pendingTimers, 0);
  });
});
