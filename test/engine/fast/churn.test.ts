import assert from 'node:assert/strict';
import { type ChildProcess, spawn } from 'node:child_process';
import { on, once } from 'node:events';
import { join } from 'node:path';
import { type TestContext, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { type Endpoint, endpointName } from '../../../src/model/endpoint.ts';
import type { ServicePortName } from '../../../src/model/service.ts';
import { endpointAt } from '../../compliance/data-plane/harness.ts';
import { waitFor } from '../../netns/wait.ts';
import { type FastRig, fastRig, openDescriptors, openPort } from './rig.ts';

/** `scripts/test-churn` sets a million. */
const CONNECTIONS = Number(process.env['KUP_TEST_CHURN'] ?? 20_000);
const BACKENDS = 5;
const TCP_PORTS: readonly ServicePortName[] = ['churn/a', 'churn/b', 'churn/c'];
const UDP_PORT: ServicePortName = 'churn/udp';
const IDLE_PIPES = 2 * 2 * 16;

function program(t: TestContext, name: string, args: readonly (string | number)[] = []): ChildProcess {
  const file = join(import.meta.dirname, 'programs', name);
  const child = spawn(process.execPath, [file, ...args.map(String)], {
    stdio: ['ignore', 'inherit', 'inherit', 'ipc'],
  });
  t.after(() => child.kill('SIGKILL'));
  return child;
}

interface Backend {
  readonly tcp: Endpoint;
  readonly udp: Endpoint;
}

const NOTHING_SEEN = {
  done: 0,
  whole: 0,
  cut: 0,
  refused: 0,
  strangers: 0,
  datagrams: 0,
  answers: 0,
  strangeAnswers: 0,
  isOver: false,
};

/** Backends that are killed, brought back elsewhere, taken out of the set while alive and left in it while dead. */
class Chaos {
  readonly #rig: FastRig;
  readonly #child: ChildProcess;
  readonly #alive = new Map<number, Backend>();
  #dead: Backend[] = [];
  kills = 0;
  updates = 0;
  #isOver = false;

  constructor(rig: FastRig, child: ChildProcess) {
    this.#rig = rig;
    this.#child = child;
  }

  async start(i: number): Promise<void> {
    this.#child.send({ start: i });
    const [{ tcp, udp }] = await once(this.#child, 'message');
    this.#alive.set(i, { tcp: endpointAt('127.0.0.1', tcp), udp: endpointAt('127.0.0.1', udp) });
  }

  async run(): Promise<void> {
    while (!this.#isOver) {
      await sleep(20);
      const i = Math.floor(Math.random() * BACKENDS);
      const victim = this.#alive.get(i);
      if (victim === undefined) await this.start(i);
      else if (this.#alive.size > 2 && Math.random() < 0.3) {
        this.#child.send({ kill: i });
        this.#alive.delete(i);
        this.#dead = [...this.#dead, victim].slice(-2);
        this.kills++;
      }
      this.update();
      if (Math.random() < 0.3) await this.#reopen();
    }
  }

  update(): void {
    const some = [...this.#alive.values()].filter(() => Math.random() < 0.8);
    const backends = [...some, ...this.#dead.filter(() => Math.random() < 0.5)];
    const affinity = { type: 'None' } as const;
    for (const name of TCP_PORTS) this.#rig.plane.update(name, { endpoints: backends.map(({ tcp }) => tcp), affinity });
    this.#rig.plane.update(UDP_PORT, { endpoints: backends.map(({ udp }) => udp), affinity });
    this.updates++;
  }

  /** `running`: what {@link run} returned. It may be waiting for an answer, which is not this one. */
  async stop(running: Promise<void>): Promise<number> {
    this.#isOver = true;
    await running;
    this.#child.send({});
    const [{ strangers }] = await once(this.#child, 'message');
    return strangers;
  }

  /** Listeners come and go as well, and their descriptors with them. */
  async #reopen(): Promise<void> {
    await openPort(this.#rig, 'churn/passing', []);
    await this.#rig.plane.close('churn/passing');
  }
}

test(`${CONNECTIONS} connections of all kinds over dying backends: no client gets another’s bytes, nothing is left behind`, async (t) => {
  const rig = await fastRig(t, { workers: 2, spread: 'always' });
  const ports = await Promise.all(TCP_PORTS.map((name) => openPort(rig, name, [])));
  const udpPort = await openPort(rig, UDP_PORT, [], 'UDP');
  const chaos = new Chaos(rig, program(t, 'churn-backends.ts'));
  for (let i = 0; i < BACKENDS; i++) await chaos.start(i);
  chaos.update();
  const clients = program(t, 'churn-clients.ts', [CONNECTIONS, udpPort, ...ports]);
  const descriptors = openDescriptors();
  const running = chaos.run();
  // When the test fails, the data plane goes while this still runs.
  running.catch(() => {});

  let rssAtFirst = 0;
  let seen = NOTHING_SEEN;
  // Not `once` again and again: of two messages that come together it would miss one.
  for await (const [report] of on(clients, 'message')) {
    seen = report;
    if (rssAtFirst === 0 && seen.done > CONNECTIONS / 10) rssAtFirst = process.memoryUsage().rss;
    assert.equal(seen.strangers, 0, 'a client got a byte that it had not sent');
    assert.equal(seen.strangeAnswers, 0, 'a client got a datagram that answers another’s');
    if (seen.isOver) break;
  }
  const strangers = await chaos.stop(running);
  const { isOver, ...counts } = seen;
  t.diagnostic(JSON.stringify({ ...counts, kills: chaos.kills, updates: chaos.updates }));
  assert.equal(strangers, 0, 'a backend got a byte of another client');
  assert.equal(seen.done, CONNECTIONS);
  assert.equal(seen.refused, 0, 'the listeners were there all the time');
  assert.ok(seen.whole > CONNECTIONS / 2, `${seen.whole} were answered completely`);
  assert.ok(seen.answers > seen.datagrams / 2, `${seen.answers} of ${seen.datagrams} datagrams were answered`);

  rig.plane.update(UDP_PORT, { endpoints: [], affinity: { type: 'None' } });
  await waitFor('all to be over', () => [...rig.plane.stats()].every(({ counters }) => counters.active === 0));
  await waitFor('descriptors to be closed', () => openDescriptors() <= descriptors + IDLE_PIPES);
  const grownMiB = (process.memoryUsage().rss - rssAtFirst) / 2 ** 20;
  t.diagnostic(`memory grew by ${grownMiB.toFixed(1)} MiB after the first tenth`);
  assert.ok(grownMiB < 96, `${grownMiB} MiB`);
  assert.deepEqual(rig.log.lines, []);
  const known = new Set(
    [...rig.plane.stats()].flatMap(({ endpoints }) => (endpoints ?? []).map((each) => endpointName(each.endpoint))),
  );
  assert.ok(known.size <= 2 * (BACKENDS + 2), `${known.size} endpoints are remembered`);
});
