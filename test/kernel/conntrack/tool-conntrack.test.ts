import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createConntrack } from '../../../src/kernel/conntrack/create.ts';
import { NetlinkConntrack } from '../../../src/kernel/conntrack/netlink-conntrack.ts';
import { NoConntrack } from '../../../src/kernel/conntrack/no-conntrack.ts';
import { hasConntrackTool, ToolConntrack } from '../../../src/kernel/conntrack/tool-conntrack.ts';
import type { ExecResult } from '../../../src/kernel/iptables/exec.ts';
import type { Address } from '../../../src/model/address.ts';
import type { UdpFlows } from '../../../src/model/conntrack.ts';
import { systemClock as clock } from '../../../src/util/system-clock.ts';
import { RecordingLog } from '../../fakes/recording-log.ts';

const VIP = '10.96.0.10' as Address;
const NODE = '192.168.50.10' as Address;

/** As conntrack 1.4 prints: not redirected; redirected to 4000, as asked and otherwise; to a host elsewhere; zoned; TCP. */
const LISTED = `\
udp      17 29 src=10.244.1.20 dst=10.96.0.10 sport=40000 dport=53 [UNREPLIED] src=10.96.0.10 dst=10.244.1.20 sport=53 dport=40000 mark=0 use=1
udp      17 29 src=10.244.1.21 dst=10.96.0.10 sport=40000 dport=53 [UNREPLIED] src=10.96.0.10 dst=10.244.1.21 sport=53 dport=40000 mark=0 use=1
udp      17 170 src=10.244.1.22 dst=10.96.0.10 sport=40001 dport=53 src=192.168.50.10 dst=10.244.1.22 sport=4000 dport=40001 [ASSURED] mark=0 use=1
udp      17 170 src=10.244.1.23 dst=10.96.0.10 sport=40001 dport=53 src=192.168.50.10 dst=10.244.1.23 sport=4001 dport=40001 [ASSURED] mark=0 secctx=null use=1
udp      17 20 src=10.244.1.20 dst=203.0.113.9 sport=40000 dport=53 [UNREPLIED] src=203.0.113.9 dst=192.168.50.10 sport=53 dport=40000 mark=0 use=1
udp      17 20 src=10.244.1.20 dst=192.168.50.10 sport=40000 dport=30053 [UNREPLIED] src=192.168.50.10 dst=10.244.1.20 sport=30053 dport=40000 mark=0 use=1
udp      17 20 src=10.244.1.29 dst=10.96.0.10 sport=40000 dport=53 [UNREPLIED] src=192.0.2.7 dst=10.244.1.29 sport=5353 dport=40000 mark=0 zone=7 use=1
tcp      6 100 SYN_SENT src=10.244.1.20 dst=10.96.0.10 sport=40000 dport=53 [UNREPLIED] src=10.96.0.9 dst=10.244.1.20 sport=53 dport=40000 mark=0 use=1
`;

function tool(answers: Partial<Record<'-L' | '-D', ExecResult>> = {}, listed = LISTED) {
  const commands: string[] = [];
  const exec = async ({ program, args }: { program: string; args: readonly string[] }): Promise<ExecResult> => {
    commands.push([program, ...args].join(' '));
    const answer = answers[args[0] as '-L' | '-D'];
    if (answer !== undefined) return answer;
    const list = args[0] === '-L';
    const stderr = `conntrack v1.4.7 (conntrack-tools): ${list ? '8 flow entries have been shown.' : '2 flow entries have been deleted.'}\n`;
    return { outcome: 'exited', code: 0, stdout: list ? listed : '', stderr };
  };
  const conntrack = new ToolConntrack({ clock, exec, localAddresses: () => [NODE] });
  return { commands, deleteUdp: (flows: readonly UdpFlows[]) => conntrack.deleteUdp(flows) };
}

test('what is stale is deleted by where it comes from and leads to; what is right, zoned or foreign stays', async () => {
  const { commands, deleteUdp } = tool();
  assert.equal(await deleteUdp([{ destination: VIP, port: 53, keepLocalPort: 4000 }]), 4);
  assert.deepEqual(commands, [
    'conntrack -L -f ipv4 -p udp',
    'conntrack -D -f ipv4 -p udp --orig-dst 10.96.0.10 --orig-port-dst 53 --reply-src 10.96.0.10 --reply-port-src 53',
    'conntrack -D -f ipv4 -p udp --orig-dst 10.96.0.10 --orig-port-dst 53 --reply-src 192.168.50.10 --reply-port-src 4001',
  ]);
});

test('NodePorts are looked for in both families', async () => {
  const { commands, deleteUdp } = tool();
  await deleteUdp([{ port: 30_053 }]);
  const path = '--orig-dst 192.168.50.10 --orig-port-dst 30053 --reply-src 192.168.50.10 --reply-port-src 30053';
  assert.deepEqual(commands, [
    'conntrack -L -f ipv4 -p udp',
    `conntrack -D -f ipv4 -p udp ${path}`,
    'conntrack -L -f ipv6 -p udp',
    `conntrack -D -f ipv6 -p udp ${path}`,
  ]);
});

test('an entry that NAT leads to another port of the same address is redirected', async () => {
  const line =
    'udp      17 20 src=10.244.1.20 dst=192.168.50.10 sport=40000 dport=30053 src=192.168.50.10 dst=10.244.1.20 sport=4000 dport=40000 mark=0 use=1\n';
  const { commands, deleteUdp } = tool({}, line);
  await deleteUdp([{ port: 30_053, keepLocalPort: 4000 }]);
  assert.deepEqual(commands, ['conntrack -L -f ipv4 -p udp', 'conntrack -L -f ipv6 -p udp']);
});

test('an IPv6 entry goes by the canonical address', async () => {
  const { commands, deleteUdp } = tool(
    {},
    'udp      17 29 src=fd00::20 dst=fd00:96::a sport=40000 dport=53 [UNREPLIED] src=fd00:96::a dst=fd00::20 sport=53 dport=40000 mark=0 use=1\n',
  );
  await deleteUdp([{ destination: 'fd00:96::a' as Address, port: 53 }]);
  assert.equal(
    commands[1],
    'conntrack -D -f ipv6 -p udp --orig-dst fd00:96::a --orig-port-dst 53 --reply-src fd00:96::a --reply-port-src 53',
  );
});

test('entries that went by themselves meanwhile are no error', async () => {
  const stderr = 'conntrack v1.4.7 (conntrack-tools): 0 flow entries have been deleted.\n';
  const { deleteUdp } = tool({ '-D': { outcome: 'exited', code: 1, stdout: '', stderr } });
  assert.equal(await deleteUdp([{ destination: VIP, port: 53 }]), 0);
});

test('a failure says which command failed and how', async () => {
  const stderr = 'conntrack v1.4.7 (conntrack-tools): Operation failed: you must be root\n';
  const cases: readonly (readonly [ExecResult, RegExp])[] = [
    [{ outcome: 'exited', code: 1, stdout: '', stderr }, /^"conntrack -L -f ipv4 -p udp" failed: .* you must be root$/],
    [{ outcome: 'missing' }, /not installed any more$/],
    [{ outcome: 'timeout', timeoutMs: 30_000 }, /more than 30000 ms$/],
    [{ outcome: 'failed', err: 'EMFILE' }, /EMFILE$/],
  ];
  for (const [result, message] of cases) {
    await assert.rejects(tool({ '-L': result }).deleteUdp([{ destination: VIP, port: 53 }]), { message });
  }
});

test('the program is looked for by starting it', async () => {
  const exited: ExecResult = { outcome: 'exited', code: 0, stdout: 'conntrack v1.4.7', stderr: '' };
  assert.equal(await hasConntrackTool(async () => exited), true);
  assert.equal(await hasConntrackTool(async () => ({ outcome: 'missing' })), false);
});

test('where system calls can be made, no program is started', async () => {
  const exec = async () => assert.fail('started');
  const conntrack = await createConntrack({ clock, log: new RecordingLog(), exec, localAddresses: () => [] });
  assert.ok(conntrack instanceof NetlinkConntrack);
});

test('without any means, the log says once what happens and what to do', async () => {
  const log = new RecordingLog();
  const none = new NoConntrack(log, 'koffi does not load');
  assert.equal(await none.deleteUdp(), 0);
  assert.equal(await none.deleteUdp(), 0);
  assert.equal(log.lines.length, 1);
  assert.match(log.lines[0]!.message, /install the program conntrack$/);
});
