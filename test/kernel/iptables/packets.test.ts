import '../../support/private-netns.ts';
import assert from 'node:assert/strict';
import { type ChildProcess, execFile, execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { createServer, type Server, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { promisify } from 'node:util';
import { createExec } from '../../../src/kernel/iptables/exec.ts';
import { createIptables } from '../../../src/kernel/iptables/iptables.ts';
import type { Portal } from '../../../src/rules/portal.ts';
import { RuleSync } from '../../../src/sync/rule-sync.ts';
import { systemClock } from '../../../src/util/system-clock.ts';
import { RecordingLog } from '../../fakes/recording-log.ts';
import { address, nodeFacts, portal } from '../../rules/fixtures.ts';

const NODE = '10.0.0.1';
const CLIENT = '10.0.0.2';
/** No Service, but an address of the node, with a server behind it. */
const NOT_A_SERVICE = '10.96.200.200';
const NOBODYS_NODE_PORT = 30_999;

/** Those with a server: the first, one in the middle, the last. */
const SERVED = [0, 333, 999] as const;

let temporary: string;
let client: ChildProcess;
let servers: readonly Server[];
let portals: readonly Portal[];
let direct: Server;

before(async () => {
  temporary = mkdtempSync(join(tmpdir(), 'kup-packets-'));
  process.env['XTABLES_LOCKFILE'] = join(temporary, 'xtables.lock');
  client = spawn('unshare', ['--net', 'sh', '-c', 'echo ready; exec sleep 3600'], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  await once(client.stdout ?? assert.fail(), 'data');
  run('ip link set lo up');
  run(`ip link add node type veth peer name client netns ${client.pid}`);
  run(`ip addr add ${NODE}/24 dev node`);
  run(`ip addr add ${NOT_A_SERVICE}/32 dev lo`);
  run('ip link set node up');
  run(`ip route add default via ${CLIENT}`);
  inClient(`ip addr add ${CLIENT}/24 dev client`);
  inClient('ip link set client up');
  inClient(`ip route add default via ${NODE}`);

  // Each says its own port, that is: which Service it stands for.
  servers = await Promise.all(Array.from({ length: 3 }, () => listen(0)));
  direct = await listen(80);
  const localPorts = new Map(SERVED.map((i, index) => [i as number, servers[index]] as const));
  portals = Array.from({ length: 1_000 }, (_, i) => {
    const server = localPorts.get(i);
    // The others lead to where nobody listens: a packet astray would be refused.
    const localPort = server === undefined ? 1_000 + i : portOf(server);
    return portal({ name: `ns/svc-${i}`, clusterIPs: [clusterIP(i)], nodePort: nodePort(i), localPort });
  });
});

after(() => {
  for (const server of [...servers, direct]) server.close();
  client.kill();
  rmSync(temporary, { recursive: true, force: true });
});

for (const flavour of ['nft', 'legacy'] as const) {
  describe(`with 1,000 Services in buckets of iptables-${flavour}`, () => {
    before(async () => {
      const exec = createExec({ clock: systemClock });
      const rules = new RuleSync({
        iptables: await createIptables({ flavour, exec, log: new RecordingLog() }),
        clock: systemClock,
        log: new RecordingLog(),
        metrics: { changesQueued: () => {}, syncDone: () => {}, restoreFailed: () => {}, rulesInstalled: () => {} },
        family: 'IPv4',
        node: () => nodeFacts({ hostAddress: address(NODE) }),
      });
      rules.apply({ upserted: portals, removed: [] });
      await rules.sync({ verify: false });
      // Only what a rule lets in reaches the node: so the accepting rules are seen to work, too.
      run(`iptables-${flavour} -w -P INPUT DROP`);
      run(`iptables-${flavour} -w -A INPUT -m state --state ESTABLISHED,RELATED -j ACCEPT`);
      run(`iptables-${flavour} -w -A INPUT -i lo -j ACCEPT`);
      run(`iptables-${flavour} -w -A INPUT -p tcp -d ${NOT_A_SERVICE} -j ACCEPT`);
    });

    after(() => {
      run(`iptables-${flavour} -w -P INPUT ACCEPT`);
      for (const table of ['nat', 'filter']) {
        run(`iptables-${flavour} -w -t ${table} -F`);
        run(`iptables-${flavour} -w -t ${table} -X`);
      }
    });

    test('the first, one in the middle and the last are reached, by both addresses, from the node and from outside', async () => {
      for (const [index, i] of SERVED.entries()) {
        const expected = String(portOf(servers[index] ?? assert.fail()));
        assert.equal(await said(clusterIP(i), 80), expected);
        assert.equal(await said('127.0.0.1', nodePort(i)), expected);
        assert.equal(await saidToClient(clusterIP(i), 80), expected);
        assert.equal(await saidToClient(NODE, nodePort(i)), expected);
      }
    });

    test('what is for no Service reaches whom it is for', async () => {
      assert.equal(await said(NOT_A_SERVICE, 80), '80');
      assert.equal(await saidToClient(NOT_A_SERVICE, 80), '80');
      await assert.rejects(said(NODE, NOBODYS_NODE_PORT), /refused/);
    });
  });
}

function clusterIP(i: number): string {
  return `10.96.${i >> 8}.${i & 255}`;
}

function nodePort(i: number): number {
  return 31_000 + i;
}

function listen(port: number): Promise<Server> {
  const server = createServer((socket: Socket) => socket.on('error', () => {}).end(String(portOf(server))));
  return new Promise((resolve) => server.listen(port, '0.0.0.0', () => resolve(server)));
}

function portOf(server: Server): number {
  const bound = server.address();
  assert.ok(typeof bound === 'object' && bound !== null);
  return bound.port;
}

/** What the server says, to a client among the node's own processes. */
function said(host: string, port: number): Promise<string> {
  return read([], host, port);
}

function saidToClient(host: string, port: number): Promise<string> {
  return read(['nsenter', '--net', '--target', String(client.pid)], host, port);
}

async function read(wrapper: readonly string[], host: string, port: number): Promise<string> {
  const [program = '', ...args] = [...wrapper, 'timeout', '60', 'bash', '-c', `cat < /dev/tcp/${host}/${port}`];
  const { stdout } = await promisify(execFile)(program, args);
  return stdout;
}

function run(command: string): void {
  const [program = '', ...args] = command.split(' ');
  execFileSync(program, args, { stdio: ['ignore', 'pipe', 'pipe'] });
}

function inClient(command: string): void {
  run(`nsenter --net --target ${client.pid} ${command}`);
}
