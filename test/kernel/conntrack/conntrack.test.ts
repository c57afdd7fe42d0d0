import '../../support/private-netns.ts';
import assert from 'node:assert/strict';
import { execFileSync, spawnSync } from 'node:child_process';
import { createSocket, type Socket } from 'node:dgram';
import { once } from 'node:events';
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { type AddressInfo, connect, createServer, type Socket as NetSocket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, afterEach, before, describe, type TestContext, test } from 'node:test';
import { allLocalAddresses as localAddresses } from '../../../src/kernel/addresses.ts';
import { NetlinkConntrack } from '../../../src/kernel/conntrack/conntrack.ts';
import { deleteStaleEntries, dumpRequest } from '../../../src/kernel/conntrack/ctnetlink.ts';
import { type Address, addressBytes, type IpFamily } from '../../../src/model/address.ts';
import type { UdpFlows } from '../../../src/model/conntrack.ts';
import { endpointName } from '../../../src/model/endpoint.ts';
import { dumpNetfilter } from '../../../src/sys/netlink.ts';
import { RecordingLog } from '../../fakes/recording-log.ts';
import { PATIENCE_MS, waitFor } from '../../netns/wait.ts';
import { address as ip } from '../../support/model.ts';

const FAMILIES: readonly IpFamily[] = ['IPv4', 'IPv6'];

/** The node itself, a Service's address, and a host that the node sends packets to. */
const ADDRESSES = {
  IPv4: { node: ip('192.168.50.10'), vip: ip('10.96.0.10'), foreign: ip('203.0.113.9') },
  IPv6: { node: ip('fd00:50::10'), vip: ip('fd00:96::a'), foreign: ip('2001:db8::9') },
};

function run(program: string, ...args: readonly string[]): string {
  return execFileSync(program, args, { encoding: 'utf8', stdio: ['ignore', 'pipe', 'pipe'] });
}

/** Adds a default route to a link without a peer. Call it in a private network namespace. */
function layWire(): void {
  for (const line of [
    'link set lo up',
    'link add eth0 type veth peer name eth1',
    'link set eth0 up',
    'link set eth1 up',
    'addr add 192.168.50.10/24 dev eth0',
    'addr add fd00:50::10/64 dev eth0 nodad',
    'neigh add 192.168.50.1 lladdr 02:00:00:00:00:01 dev eth0 nud permanent',
    'neigh add fd00:50::1 lladdr 02:00:00:00:00:01 dev eth0 nud permanent',
    'route add default via 192.168.50.1',
    '-6 route add default via fd00:50::1',
  ]) {
    run('ip', ...line.split(' '));
  }
}

/** The lines of the kernel's table, as it prints them itself. */
function entries(...parts: readonly string[]): string[] {
  const lines = readFileSync('/proc/net/nf_conntrack', 'latin1').split('\n').filter(Boolean);
  return lines.filter((line) => parts.every((part) => line.includes(part)));
}

/** How the kernel prints an address: IPv6 in full. */
function inFull(address: Address): string {
  if (!address.includes(':')) return address;
  const hex = Buffer.from(addressBytes(address)).toString('hex');
  return (hex.match(/.{4}/g) ?? []).join(':');
}

/** A UDP socket that is closed after the test. */
async function udpSocket(t: TestContext, family: IpFamily, port = 0): Promise<Socket> {
  const socket = createSocket({ type: family === 'IPv4' ? 'udp4' : 'udp6', sendBufferSize: 4 << 20 });
  socket.on('error', () => {});
  socket.bind(port);
  await once(socket, 'listening');
  t.after(() => socket.close());
  return socket;
}

function sendTo(socket: Socket, address: Address, port: number): Promise<void> {
  return new Promise((resolve, reject) => {
    socket.send('hello', port, address, (error) => (error === null ? resolve() : reject(error)));
  });
}

const FIXED_PORT = 12_345;
const NODE_PORT = 30_053;
const log = new RecordingLog();
const conntrack = new NetlinkConntrack({ log, localAddresses });

const NAT = ['-w', '-t', 'nat'];
const iptables = (flavour: string, family: IpFamily) => `${family === 'IPv4' ? 'iptables' : 'ip6tables'}-${flavour}`;

let temporary: string;

before(() => {
  temporary = mkdtempSync(join(tmpdir(), 'kup-conntrack-'));
  process.env['XTABLES_LOCKFILE'] = join(temporary, 'xtables.lock');
  layWire();
  // Connection tracking starts with the first rule that needs it.
  for (const family of FAMILIES) {
    run(iptables('nft', family), '-w', '-A', 'OUTPUT', '-m', 'conntrack', '--ctstate', 'INVALID', '-j', 'ACCEPT');
  }
});

after(() => rmSync(temporary, { recursive: true }));

/** A Service port's listener, and the rule that redirects the node's own packets to it. */
async function redirection(t: TestContext, flavour: string, family: IpFamily) {
  const listener = await udpSocket(t, family);
  listener.on('message', (_text, client) => listener.send('served', client.port, client.address));
  const localPort = listener.address().port;
  const tool = iptables(flavour, family);
  const target = endpointName({ address: ADDRESSES[family].node, port: localPort });
  return {
    localPort,
    install: (...match: readonly string[]) =>
      run(tool, ...NAT, '-A', 'OUTPUT', '-p', 'udp', ...match, '-j', 'DNAT', '--to-destination', target),
    uninstall: () => run(tool, ...NAT, '-F', 'OUTPUT'),
  };
}

/** Asks once. Returns whether an answer from this address and port came in time. */
async function isAnswered(client: Socket, address: string, port: number, timeoutMs: number): Promise<boolean> {
  const answer = once(client, 'message', { signal: AbortSignal.timeout(timeoutMs) }).catch(() => undefined);
  await sendTo(client, address as never, port);
  const [, from] = (await answer) ?? [];
  return from?.address === address && from.port === port;
}

async function assertServed(client: Socket, address: string, port: number): Promise<void> {
  assert.ok(await isAnswered(client, address, port, PATIENCE_MS), 'it should be served');
}

async function assertNotServed(client: Socket, address: string, port: number, why?: string): Promise<void> {
  assert.ok(!(await isAnswered(client, address, port, 150)), why);
}

const CASES = ['nft', 'legacy'].flatMap((flavour) => FAMILIES.map((family) => ({ flavour, family })));

for (const { flavour, family } of CASES) {
  describe(`deleting entries with NAT by ${iptables(flavour, family)}`, () => {
    const { node, vip, foreign } = ADDRESSES[family];

    afterEach(async () => {
      run(iptables(flavour, family), ...NAT, '-F');
      await conntrack.deleteUdp([
        { port: NODE_PORT },
        { destination: vip, port: 53 },
        { destination: foreign, port: 53 },
      ]);
    });

    test('a client with a fixed port that sent before there were rules is served afterwards', async (t) => {
      const listener = await redirection(t, flavour, family);
      const client = await udpSocket(t, family, FIXED_PORT);
      await assertNotServed(client, vip, 53);
      listener.install('-d', vip, '--dport', '53');
      await assertNotServed(client, vip, 53, 'the old entry should decide');

      const flows: UdpFlows[] = [{ destination: vip, port: 53, keepLocalPort: listener.localPort }];
      assert.equal(await conntrack.deleteUdp(flows), 1);
      await assertServed(client, vip, 53);
      assert.equal(await conntrack.deleteUdp(flows), 0, 'an entry that is right should stay');
      await assertServed(client, vip, 53);
    });

    test('no client is sent to the local port of a Service port that was removed or got another one', async (t) => {
      const before = await redirection(t, flavour, family);
      const after = await redirection(t, flavour, family);
      const client = await udpSocket(t, family, FIXED_PORT);
      before.install('-d', vip, '--dport', '53');
      await assertServed(client, vip, 53);
      before.uninstall();
      after.install('-d', vip, '--dport', '53');
      assert.equal(await conntrack.deleteUdp([{ destination: vip, port: 53, keepLocalPort: after.localPort }]), 1);
      await assertServed(client, vip, 53);
      assert.equal(entries(`dst=${inFull(vip)} `, ` sport=${after.localPort} `).length, 1);
      after.uninstall();
      assert.equal(await conntrack.deleteUdp([{ destination: vip, port: 53 }]), 1);
      await assertNotServed(client, vip, 53);
    });

    test('entries of a NodePort are deleted for addresses of the node only', async (t) => {
      const listener = await redirection(t, flavour, family);
      const client = await udpSocket(t, family, FIXED_PORT);
      await assertNotServed(client, node, NODE_PORT);
      await assertNotServed(client, foreign, NODE_PORT);
      listener.install('-m', 'addrtype', '--dst-type', 'LOCAL', '--dport', String(NODE_PORT));
      const flows: UdpFlows[] = [{ port: NODE_PORT, keepLocalPort: listener.localPort }];
      assert.equal(await conntrack.deleteUdp(flows), 1);
      assert.equal(entries('udp', ` dst=${inFull(foreign)} `, ` dport=${NODE_PORT} `).length, 1);
      await assertServed(client, node, NODE_PORT);
      assert.equal(await conntrack.deleteUdp(flows), 0);
    });

    test('only entries that NAT sends to the local port are deleted', async (t) => {
      const listener = await redirection(t, flavour, family);
      const other = await redirection(t, flavour, family);
      const client = await udpSocket(t, family, FIXED_PORT);
      listener.install('-d', vip, '--dport', '53');
      other.install('-d', vip, '--dport', '55');
      await assertServed(client, vip, 53);
      await assertServed(client, vip, 55);
      listener.uninstall();
      assert.equal(await conntrack.deleteTo('UDP', new Set([listener.localPort])), 1);
      await assertNotServed(client, vip, 53);
      assert.equal(await conntrack.deleteTo('UDP', new Set([listener.localPort])), 0);
      assert.equal(await conntrack.deleteTo('UDP', new Set([other.localPort])), 1);
    });

    test('of TCP to a local port, all but established connections are deleted', async (t) => {
      const server = createServer({ allowHalfOpen: true }).listen(0, node);
      await once(server, 'listening');
      t.after(() => server.close());
      const { port } = server.address() as AddressInfo;
      const target = endpointName({ address: node, port });
      const to = ['-p', 'tcp', '-d', vip, '--dport', '80', '-j', 'DNAT', '--to-destination', target];
      run(iptables(flavour, family), ...NAT, '-A', 'OUTPUT', ...to);
      const accepted: NetSocket[] = [];
      server.on('connection', (socket) => accepted.push(socket.on('error', () => {})));
      const clients = Array.from({ length: 2 }, () => connect({ host: vip, port: 80, allowHalfOpen: true }));
      t.after(() => {
        for (const socket of [...clients, ...accepted]) socket.destroy();
      });
      const states = () =>
        entries('tcp', ` dst=${inFull(vip)} `, ' dport=80 ', ` sport=${port} `).map(
          (line) => / ([A-Z_]+) src=/.exec(line)?.[1],
        );
      await waitFor('both are connected', () => accepted.length === 2 && states().length === 2);
      clients[0]?.end();
      await waitFor('one is closed in one direction', () => states().includes('CLOSE_WAIT'));
      assert.equal(await conntrack.deleteTo('TCP', new Set([port + 1]), [family]), 0);
      assert.equal(await conntrack.deleteTo('TCP', new Set([port]), [family === 'IPv4' ? 'IPv6' : 'IPv4']), 0);
      assert.equal(await conntrack.deleteTo('UDP', new Set([port])), 0);
      assert.equal(await conntrack.deleteTo('TCP', new Set([port]), [family]), 1);
      assert.deepEqual(states(), ['ESTABLISHED']);
    });

    test('TCP, other ports and other destinations are left alone', async (t) => {
      const client = await udpSocket(t, family, FIXED_PORT);
      const tcp = connect({ host: vip, port: 53, localPort: FIXED_PORT }).on('error', () => {});
      t.after(() => tcp.destroy());
      await sendTo(client, vip, 54);
      await sendTo(client, foreign, 53);
      const mine = () => [
        entries('tcp', ` dst=${inFull(vip)} `, ' dport=53 ').length,
        entries('udp', ` dst=${inFull(vip)} `, ' dport=54 ').length,
        entries('udp', ` dst=${inFull(foreign)} `, ' dport=53 ').length,
      ];
      await waitFor('all entries are there', () => mine().every((count) => count === 1));
      assert.equal(await conntrack.deleteUdp([{ destination: vip, port: 53 }, { port: 54 }]), 0);
      assert.deepEqual(mine(), [1, 1, 1]);
    });
  });
}

test('of many entries, only the stale ones are deleted', async (t) => {
  const client = await udpSocket(t, 'IPv4', FIXED_PORT);
  const COUNT = 10_000;
  const flows: UdpFlows[] = [];
  for (let i = 0; i < COUNT; i++) {
    const destination = `10.97.${i >> 8}.${i & 255}` as UdpFlows['destination'] & string;
    await sendTo(client, destination, 53);
    if (i % 2 === 0) flows.push({ destination, port: 53 });
  }
  const count = () => entries('udp', ' dst=10.97.').length;
  assert.equal(count(), COUNT);

  const open = () => readdirSync('/proc/self/fd').length;
  const before = open();
  assert.equal(await conntrack.deleteUdp(flows), COUNT / 2);
  assert.equal(count(), COUNT / 2);
  assert.equal(open(), before, 'no descriptor is left behind');
});

test('the kernel searches its table on another thread than the event loop', async () => {
  let isSettled = false;
  const dump = dumpNetfilter(dumpRequest('IPv4', { protocol: 'UDP', port: 53 }), () => {}).finally(() => {
    isSettled = true;
  });
  for (let i = 0; i < 20; i++) await undefined;
  assert.equal(isSettled, false);
  await dump;
});

test('an entry that is gone already is not counted, and others are not touched', async (t) => {
  const client = await udpSocket(t, 'IPv4', FIXED_PORT);
  await sendTo(client, ADDRESSES.IPv4.vip, 55);
  await sendTo(client, ADDRESSES.IPv4.vip, 56);
  const isStale = () => {
    // Whatever is found is gone a moment later.
    run('conntrack', '-D', '-p', 'udp', '--orig-port-dst', '55');
    return true;
  };
  assert.equal(await deleteStaleEntries('IPv4', { protocol: 'UDP', port: 55 }, isStale), 0);
  assert.equal(entries('udp', ' dport=56 ').length, 1);
});

test('without CAP_NET_ADMIN, the error names it, and no descriptor is left behind', () => {
  const source = new URL('../../../src/', import.meta.url);
  const script = `
    import { readdirSync } from 'node:fs';
    const { NetlinkConntrack } = await import('${new URL('kernel/conntrack/conntrack.ts', source)}');
    const open = () => readdirSync('/proc/self/fd').length;
    await import('${new URL('kernel/conntrack/ctnetlink.ts', source)}');
    const before = open();
    const conntrack = new NetlinkConntrack({ log: undefined, localAddresses: () => [] });
    const error = await conntrack.deleteUdp([{ port: 53 }]).catch((error) => error);
    console.log(error.message, open() - before);`;
  const { stdout, stderr } = spawnSync(
    'setpriv',
    ['--bounding-set', '-net_admin', '--inh-caps', '-net_admin', process.execPath, '--input-type=module', '-e', script],
    { cwd: import.meta.dirname, encoding: 'utf8' },
  );
  assert.match(
    stdout + stderr,
    /^cannot read or change the connection tracking table: EPERM .*; give this program CAP_NET_ADMIN 0$/m,
  );
});

test("where koffi's addon cannot be loaded, nothing is deleted, and one warning says so", () => {
  const script = `
    import { registerHooks } from 'node:module';
    registerHooks({
      resolve(specifier, context, next) {
        if (specifier === 'koffi') throw new Error('koffi cannot be loaded');
        return next(specifier, context);
      },
    });
    const { NetlinkConntrack } = await import('${new URL('../../../src/kernel/conntrack/conntrack.ts', import.meta.url)}');
    const log = { warn: (message, { err }) => console.log(err) };
    const conntrack = new NetlinkConntrack({ log, localAddresses: () => [] });
    console.log(await conntrack.deleteUdp([{ port: 53 }]), await conntrack.deleteTo('UDP', new Set([53])));`;
  const { stdout, stderr } = spawnSync(process.execPath, ['--input-type=module', '--eval', script], {
    encoding: 'utf8',
  });
  assert.equal(stdout, 'koffi cannot be loaded\n0 0\n', stderr);
});
