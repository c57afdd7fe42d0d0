import '../../support/private-netns.ts';
import assert from 'node:assert/strict';
import { type ChildProcess, execFileSync, spawn } from 'node:child_process';
import { on, once } from 'node:events';
import { join } from 'node:path';
import { before, type TestContext, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { isDeepStrictEqual } from 'node:util';
import { endpointName, type NamedEndpoint } from '../../../src/model/endpoint.ts';
import type { ServicePortName } from '../../../src/model/service.ts';
import { endpointAt } from '../../compliance/data-plane/harness.ts';
import { PATIENCE_MS, waitFor } from '../../netns/wait.ts';
import { type FastRig, fastRig, openDescriptors, openPort } from './rig.ts';

/** `scripts/test-churn` sets a million. */
const CONNECTIONS = Number(process.env['KUP_TEST_CHURN'] ?? 20_000);
const BACKENDS = 5;
const TCP_PORTS: readonly ServicePortName[] = ['churn/a', 'churn/b', 'churn/c'];
const UDP_PORT: ServicePortName = 'churn/udp';
const IDLE_PIPES = 2 * 2 * 16;

/** Clients come to the ports here, and rules lead them to the listeners. */
const VIRTUAL = '127.96.0.1';
const BACKEND = '127.0.0.2';
/** The clients report ten times a second. */
const PATIENT_REPORTS = PATIENCE_MS / 100;

before(() => {
  execFileSync('ip', ['link', 'set', 'lo', 'up']);
  const iptables = (...args: string[]) => execFileSync('iptables', ['-w', ...args]);
  iptables('-t', 'nat', '-N', 'CHURN');
  iptables('-t', 'nat', '-A', 'OUTPUT', '-j', 'CHURN');
  // The kernel's table of connections has room for every local port of a client, not for those of two connections each.
  // Its timeouts stay as they are: it takes a FIN that is sent twice for that of the other side, and once it has
  // forgotten a connection that still waits for its answer, the client waits for ever.
  for (const side of ['-s', '-d']) iptables('-t', 'raw', '-A', 'OUTPUT', side, BACKEND, '-j', 'CT', '--notrack');
});

/** Writes all rules anew, in one transaction and another order, among as many as ten others. */
async function writeRules(ports: readonly { readonly protocol: string; readonly port: number }[]): Promise<void> {
  const own = ports.map(
    ({ protocol, port }) => `-d ${VIRTUAL} -p ${protocol} --dport ${port} -j DNAT --to 127.0.0.1:${port}`,
  );
  const others = Array.from(
    { length: Math.floor(Math.random() * 10) },
    (_, i) => `-d 10.96.1.${i} -p tcp --dport 80 -j DNAT --to 127.0.0.1:1`,
  );
  const rules = [...own, ...others].toSorted(() => Math.random() - 0.5).map((rule) => `-A CHURN ${rule}\n`);
  const restore = spawn('iptables-restore', ['-w', '--noflush'], {
    stdio: ['pipe', 'inherit', 'inherit'],
    timeout: PATIENCE_MS,
  });
  restore.stdin.end(`*nat\n-F CHURN\n${rules.join('')}COMMIT\n`);
  const [code, signal] = await once(restore, 'close');
  assert.equal(code, 0, `iptables-restore ended with ${signal ?? code}`);
}

/** `onEnd` hears of it when the program ends by itself. */
function program(
  t: TestContext,
  onEnd: (error: Error) => void,
  name: string,
  args: readonly (string | number)[],
): ChildProcess {
  const file = join(import.meta.dirname, 'programs', name);
  const child = spawn(process.execPath, [file, ...args.map(String)], {
    stdio: ['ignore', 'inherit', 'inherit', 'ipc'],
  });
  child.on('exit', (code, signal) => onEnd(new Error(`${name} ended with ${signal ?? code}`)));
  t.after(() => child.kill('SIGKILL'));
  return child;
}

/** Connections that are not over, as the kernel sees both of their ends. */
function openConnections(): string {
  const lines = execFileSync('ss', ['-Htanp', 'state', 'connected', 'exclude', 'time-wait'], { encoding: 'utf8' });
  return lines.split('\n').slice(0, 20).join('\n');
}

interface Backend {
  readonly tcp: NamedEndpoint;
  readonly udp: NamedEndpoint;
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
  readonly #writeRules: () => Promise<void>;
  readonly #alive = new Map<number, Backend>();
  #dead: Backend[] = [];
  kills = 0;
  updates = 0;
  #isOver = false;

  constructor(rig: FastRig, child: ChildProcess, writeRules: () => Promise<void>) {
    this.#rig = rig;
    this.#child = child;
    this.#writeRules = writeRules;
  }

  async start(i: number): Promise<void> {
    this.#child.send({ start: i });
    const [{ tcp, udp }] = await once(this.#child, 'message');
    this.#alive.set(i, { tcp: endpointAt(BACKEND, tcp), udp: endpointAt(BACKEND, udp) });
  }

  async run(): Promise<void> {
    while (!this.#isOver) {
      await sleep(20);
      await this.#writeRules();
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

  stop(): void {
    this.#isOver = true;
  }

  /** How often a backend got what was not for it. After {@link run}, which waits for answers as well. */
  async strangers(): Promise<number> {
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

test(`${CONNECTIONS} connections of all kinds over dying backends and changing rules: no client gets another’s bytes, nothing is left behind`, async (t) => {
  const broken = Promise.withResolvers<never>();
  // Whatever the churn waits for, the test ends when that can never come.
  await Promise.race([churn(t, broken.reject), broken.promise]);
});

async function churn(t: TestContext, onBroken: (error: Error) => void): Promise<void> {
  const rig = await fastRig(t, { workers: 2, spread: 'always' });
  const ports = await Promise.all(TCP_PORTS.map((name) => openPort(rig, name, [])));
  const udpPort = await openPort(rig, UDP_PORT, [], 'UDP');
  const tcp = ports.map((port) => ({ protocol: 'tcp', port }));
  const rules = () => writeRules([...tcp, { protocol: 'udp', port: udpPort }]);
  await rules();
  const chaos = new Chaos(rig, program(t, onBroken, 'churn-backends.ts', [BACKEND]), rules);
  t.after(() => chaos.stop());
  for (let i = 0; i < BACKENDS; i++) await chaos.start(i);
  chaos.update();
  const clients = program(t, onBroken, 'churn-clients.ts', [CONNECTIONS, VIRTUAL, udpPort, ...ports]);
  const descriptors = openDescriptors();
  const running = chaos.run();
  running.catch(onBroken);

  let rssAtFirst = 0;
  let seen = NOTHING_SEEN;
  let unchanged = 0;
  // Not `once` again and again: of two messages that come together it would miss one.
  for await (const [report] of on(clients, 'message')) {
    unchanged = isDeepStrictEqual(report, seen) ? unchanged + 1 : 0;
    if (unchanged > PATIENT_REPORTS) assert.fail(`${seen.done} are over, and no more come:\n${openConnections()}`);
    seen = report;
    if (rssAtFirst === 0 && seen.done > CONNECTIONS / 10) rssAtFirst = process.memoryUsage().rss;
    assert.equal(seen.strangers, 0, 'a client got a byte that it had not sent');
    assert.equal(seen.strangeAnswers, 0, 'a client got a datagram that answers another’s');
    if (seen.isOver) break;
  }
  chaos.stop();
  await running;
  const strangers = await chaos.strangers();
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
}
