import '../../../support/private-netns.ts';
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { afterEach, before, type TestContext, test } from 'node:test';
import { deleteKeptEntries } from '../../../../src/kernel/conntrack/kept.ts';
import { Memory } from '../../../../src/sys/memory.ts';
import { recv } from '../../../../src/sys/socket.ts';
import { EAGAIN } from '../../../../src/sys/sys-error.ts';
import { buildNetwork, ip, NODE_ADDRESSES } from '../../../compliance/data-plane/network.ts';
import { ManualClock } from '../../../fakes/manual-clock.ts';
import { RawUdpEndpoint, rawUdpClient } from '../../../support/raw-udp.ts';
import { engineRig } from './engine-rig.ts';

/*
 * Sockets of UDP flows whose endpoint sees the client, used again. As in used-sockets.test.ts, what has been sent is
 * there in the engine's next turn.
 */

const [NODE, CLIENT] = NODE_ADDRESSES;
const OTHER_CLIENT = '10.99.0.3';
const SILENCE_MS = 300;
const MARK = 8192;

before(() => {
  buildNetwork();
  ip('address', 'add', `${OTHER_CLIENT}/24`, 'dev', 'node0');
  // The kernel translates addresses where there is a rule of the table nat.
  execFileSync('iptables', [
    '-w',
    '-t',
    'nat',
    '-A',
    'POSTROUTING',
    '-m',
    'mark',
    '--mark',
    '8192',
    '-j',
    'MASQUERADE',
  ]);
});

afterEach(() => deleteKeptEntries(MARK));

function rig(t: TestContext) {
  const clock = new ManualClock();
  const silence = { udpIdleTimeoutMs: SILENCE_MS, udpFirstReplyTimeoutMs: SILENCE_MS };
  const { engine, owners, meanwhile, listen, post, command } = engineRig(
    t,
    { ...silence, connectionMark: MARK },
    { clock },
  );
  const endpoint = new RawUdpEndpoint(t, NODE);
  command({ kind: 'know-clients', facts: { families: ['IPv4'], nodeAddresses: [] } });
  const { localPort } = listen({
    ...{ protocol: 'UDP', address: NODE, endpoints: [endpoint.endpoint] },
    keptAddresses: { pods: 'all', others: 'all', clusterIPs: [] },
  });
  const turns = () => {
    for (let i = 0; i < 4; i++) engine.turn(0);
  };
  const pass = (ms: number) => {
    clock.advance(ms);
    turns();
  };
  /** A client with a port of its own asks the only endpoint. */
  const ask = ({ from = CLIENT }: { readonly from?: string } = {}) => {
    const client = rawUdpClient(t, localPort, { to: NODE, from });
    const send = () => {
      client.send('question');
      turns();
      return endpoint.question();
    };
    const read = () => recv(client.fd, new Memory(100), 0, 100);
    return { client, send, read };
  };
  /** A question and its answer. The endpoint's view of the client. */
  const exchange = (setup: { readonly from?: string } = {}) => {
    const { send, read } = ask(setup);
    const { answer, from } = send();
    answer('answer');
    turns();
    assert.equal(read(), 'answer'.length);
    return from;
  };
  const descriptors = () => owners.filter((owner) => owner === 1).length;
  return { clock, ask, exchange, pass, turns, meanwhile, post, command, descriptors };
}

/** Entries that keep a client's address. */
function entries(): readonly string[] {
  const lines = readFileSync('/proc/net/nf_conntrack', 'latin1').split('\n');
  return lines.filter((line) => line.includes(` mark=${MARK} `));
}

test("a client's next flows to an endpoint leave from the same port, those of another client from another", (t) => {
  const it = rig(t);
  const first = it.exchange();
  it.pass(SILENCE_MS + 1);
  const [entry] = entries();
  for (let i = 0; i < 3; i++) {
    assert.deepEqual(it.exchange(), first);
    it.pass(SILENCE_MS + 1);
  }
  assert.equal(entries().length, 1);
  assert.ok(entry?.includes(`src=${NODE} `));
  const other = it.exchange({ from: OTHER_CLIENT });
  assert.deepEqual([first.address, other.address], [CLIENT, OTHER_CLIENT]);
  assert.equal(entries().length, 2);
});

test('a port gets new flows for two seconds at most', (t) => {
  const it = rig(t);
  const ports = new Set<number>();
  for (let ms = 0; ms < 6_000; ms += SILENCE_MS + 1) {
    ports.add(it.exchange().port);
    it.pass(SILENCE_MS + 1);
  }
  assert.ok(ports.size >= 3 && ports.size <= 4, `${ports.size} ports`);
  assert.ok(entries().length <= 1);
});

test('what is not needed for a second is closed, with its entry; and at once when the worker freezes', (t) => {
  const it = rig(t);
  const before = it.descriptors();
  it.exchange();
  it.pass(SILENCE_MS + 1);
  assert.equal(entries().length, 1, 'it waits');
  it.pass(1001);
  assert.deepEqual(entries(), []);
  // Netfilter's socket stays.
  assert.equal(it.descriptors(), before + 1);
  it.exchange();
  it.pass(SILENCE_MS + 1);
  it.command({ kind: 'freeze', question: 1 });
  assert.deepEqual(entries(), []);
  assert.equal(it.descriptors(), before + 1);
});

test('a standstill that is longer than an entry lasts leaves no socket to the first flow after it', (t) => {
  const it = rig(t);
  const first = it.exchange();
  it.pass(SILENCE_MS + 1);
  it.clock.advance(60_000);
  assert.notDeepEqual(it.exchange(), first);
});

test('sockets that wait are given up when their local ports are needed', (t) => {
  const it = rig(t);
  const range = '/proc/sys/net/ipv4/ip_local_port_range';
  const usual = readFileSync(range, 'utf8');
  t.after(() => writeFileSync(range, usual));
  writeFileSync(range, '40000 40007');
  const clients = Array.from({ length: 8 }, () => {
    const { client, send } = it.ask();
    send().answer('answer');
    return client;
  });
  it.turns();
  for (const client of clients) client.close();
  it.pass(SILENCE_MS + 1);
  assert.equal(entries().length, 8);
  it.exchange({ from: OTHER_CLIENT });
  assert.equal(entries().length, 1);
});

for (const { what, spoil } of [
  { what: 'without an answer', spoil: ({ send }) => void send() },
  {
    what: 'of more than two questions',
    spoil: ({ send }) => {
      for (let i = 0; i < 3; i++) send().answer('answer');
    },
  },
  {
    what: 'with an answer too many',
    spoil: ({ send }) => {
      const { answer } = send();
      answer('answer');
      answer('another');
    },
  },
] satisfies readonly { what: string; spoil(asking: ReturnType<ReturnType<typeof rig>['ask']>): void }[]) {
  test(`the socket of a flow ${what} is not used again`, (t) => {
    const it = rig(t);
    spoil(it.ask());
    it.turns();
    assert.equal(entries().length, 1);
    it.pass(SILENCE_MS + 1);
    assert.deepEqual(entries(), []);
    it.exchange();
  });
}

for (const when of ['while its socket waits', 'when its socket is about to be used again'] as const) {
  test(`a late answer that comes ${when} reaches nobody`, (t) => {
    const it = rig(t);
    const { send, read } = it.ask();
    const { answer } = send();
    answer('answer');
    it.turns();
    assert.equal(read(), 'answer'.length);
    it.pass(SILENCE_MS + 1);
    if (when === 'while its socket waits') {
      answer('late');
      it.turns();
      assert.deepEqual(entries(), []);
    } else {
      // After the worker has seen what there is to do in its turn.
      it.meanwhile.push(() => answer('late'));
      it.post();
    }
    const other = it.ask();
    const question = other.send();
    assert.equal(it.meanwhile.length, 0);
    assert.equal(read(), -EAGAIN);
    assert.equal(other.read(), -EAGAIN);
    question.answer('answer');
    it.turns();
    assert.equal(other.read(), 'answer'.length);
    assert.equal(entries().length, 1, 'its own');
  });
}
