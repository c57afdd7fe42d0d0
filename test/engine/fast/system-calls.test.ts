import '../../support/private-netns.ts';
import assert from 'node:assert/strict';
import { execFileSync, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { type AddressInfo, connect, createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { before, type TestContext, test } from 'node:test';
import { buildNetwork, NODE_ADDRESSES } from '../../compliance/data-plane/network.ts';
import { waitFor } from '../../netns/wait.ts';
import { ChildProgram } from './child-program.ts';

const missing = spawnSync('strace', ['-V']).error === undefined ? false : 'strace is not installed';

const [NODE, CLIENT] = NODE_ADDRESSES;
const CONNECTIONS = 10;

before(() => {
  buildNetwork();
  // The kernel translates addresses where there is a rule of the table nat.
  execFileSync('iptables', ['-w', '-t', 'nat', '-A', 'POSTROUTING', '-m', 'mark', '--mark', '7', '-j', 'MASQUERADE']);
});

/** How often each system call on sockets is made for one connection. Those of the test's own channel do not count. */
async function callsPerConnection(t: TestContext, ...mode: readonly string[]): Promise<ReadonlyMap<string, number>> {
  const folder = mkdtempSync(join(tmpdir(), 'system-calls-'));
  t.after(() => rmSync(folder, { recursive: true }));
  const file = join(folder, 'trace');
  const seen: string[] = [];
  const server = createServer((socket) => {
    seen.push(socket.remoteAddress ?? '');
    socket.end('hello');
    socket.on('error', () => {}).resume();
  });
  t.after(() => server.close());
  await once(server.listen({ host: NODE, port: 0 }), 'listening');
  const plane = await ChildProgram.start<{ counters: { active: number } }>(t, 'small-plane.ts', {
    args: [(server.address() as AddressInfo).port, NODE, ...mode],
    wrapper: ['strace', '-f', '-qq', '-o', file, '-e', 'trace=%network'],
  });
  let localPort = 20_000;
  const connectOnce = async () => {
    // A port that is bound on this node, as a pod's is not, must not be one that the node gives out.
    const socket = connect({ host: NODE, port: plane.port, localAddress: CLIENT, localPort: ++localPort });
    await once(socket.resume(), 'close');
    await waitFor('the end of the connection', async () => (await plane.state()).counters.active === 0);
  };
  const counts = () => {
    const calls = [...readFileSync(file, 'latin1').matchAll(/^\d+ +(?!recvmsg|sendmsg)(\w+)\(/gm)].map(
      ([, name]) => name as string,
    );
    return Map.groupBy(calls, (name) => name);
  };
  // Its first connection makes what all share.
  await connectOnce();
  const before = counts();
  for (let i = 0; i < CONNECTIONS; i++) await connectOnce();
  assert.deepEqual(new Set(seen), new Set([mode.length > 0 ? CLIENT : NODE]));
  return new Map(
    Array.from(counts(), ([name, calls]) => [name, (calls.length - (before.get(name)?.length ?? 0)) / CONNECTIONS]),
  );
}

test('a client whose address is kept costs few system calls more', { skip: missing, timeout: 300_000 }, async (t) => {
  const plain = await callsPerConnection(t);
  const kept = await callsPerConnection(t, 'kept');
  const more = (name: string) => Math.round((kept.get(name) ?? 0) - (plain.get(name) ?? 0));
  assert.deepEqual(
    Object.fromEntries([...kept.keys()].map((name) => [name, more(name)] as const).filter(([, calls]) => calls !== 0)),
    // The request to netfilter and its answer; the client's port; how the local port is chosen (Linux 6.3).
    { bind: 1, sendto: 1, recvfrom: 1, getpeername: 1, setsockopt: 2 },
  );
});
