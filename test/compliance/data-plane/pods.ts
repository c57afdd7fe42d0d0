import { execFileSync, type StdioOptions, spawn } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { after, before } from 'node:test';
import { Agent } from '../../netns/agent.ts';
import { ip } from './network.ts';

/** Where pods are. */
export const POD_NETWORKS = { IPv4: '10.89.0.0/24', IPv6: 'fd00:89::/64' } as const;

/** A pod, or a host outside: a network namespace with an agent inside. */
export interface Pod {
  readonly agent: Agent;
  readonly IPv4: string;
  readonly IPv6: string;
  /** A command inside. */
  run(...command: readonly string[]): void;
}

export interface Pods {
  readonly client: Pod;
  readonly otherClient: Pod;
  readonly server: Pod;
  readonly otherServer: Pod;
  readonly outside: Pod;
}

/** Of the node, towards the pods. */
export const BRIDGE = { IPv4: '10.89.0.1', IPv6: 'fd00:89::1' } as const;

/** Of the node, towards the host outside. */
export const UPLINK = { IPv4: '10.88.0.1', IPv6: 'fd00:88::1' } as const;

/** Pods on a bridge of this namespace, which plays the node, and a host outside, for the tests of a suite. */
export function withPods(): Pods {
  const pods: Partial<Record<keyof Pods, Pod>> = {};
  before(async () => {
    // What makes the kernel track connections: any rule that asks for it.
    for (const tool of ['iptables', 'ip6tables']) {
      execFileSync(tool, ['-w', '-A', 'FORWARD', '-m', 'conntrack', '--ctstate', 'INVALID', '-j', 'DROP']);
      execFileSync(tool, [
        '-w',
        '-t',
        'nat',
        '-A',
        'POSTROUTING',
        '!',
        '-o',
        'lo',
        '-m',
        'mark',
        '--mark',
        '0x7',
        '-j',
        'MASQUERADE',
      ]);
    }
    for (const file of ['ipv4/ip_forward', 'ipv6/conf/all/forwarding']) writeFileSync(`/proc/sys/net/${file}`, '1');
    ip(...'link add cbr0 type bridge'.split(' '));
    addAddresses('cbr0', BRIDGE.IPv4, BRIDGE.IPv6);
    for (const [name, number] of [
      ['client', 20],
      ['otherClient', 21],
      ['server', 11],
      ['otherServer', 12],
    ] as const) {
      pods[name] = await addPod(name, { number, network: 89, device: `veth${number}` });
      ip('link', 'set', `veth${number}`, 'master', 'cbr0', 'up');
    }
    pods.outside = await addPod('outside', { number: 2, network: 88, device: 'uplink' });
    addAddresses('uplink', UPLINK.IPv4, UPLINK.IPv6);
  });
  after(() => {
    for (const { agent } of Object.values(pods)) agent.stop();
  });
  return pods as Pods;
}

function addAddresses(device: string, ...addresses: readonly string[]): void {
  ip('link', 'set', device, 'up');
  for (const address of addresses) {
    ip(
      'address',
      'add',
      `${address}/${address.includes(':') ? 64 : 24}`,
      'dev',
      device,
      ...(address.includes(':') ? ['nodad'] : []),
    );
  }
}

async function addPod(
  name: string,
  { number, network, device }: { readonly number: number; readonly network: number; readonly device: string },
): Promise<Pod> {
  let pid = 0;
  const agent = new Agent(
    {
      spawn: (argv, env = {}, stdio: StdioOptions = 'pipe') => {
        const child = spawn('unshare', ['--net', ...argv], { env: { ...process.env, ...env }, stdio });
        pid = child.pid ?? 0;
        return child;
      },
    },
    name,
  );
  // It answers once it is in its namespace.
  await agent.call('seen', { port: 0 });
  const [v4, v6] = [`10.${network}.0.${number}`, `fd00:${network}::${number}`];
  ip('link', 'add', device, 'type', 'veth', 'peer', 'name', 'eth0', 'netns', String(pid));
  const run = (...command: readonly string[]): void => {
    execFileSync('nsenter', ['--net', `--target=${pid}`, ...command], { stdio: ['ignore', 'ignore', 'inherit'] });
  };
  const inside = (...args: readonly string[]) => run('ip', ...args);
  inside('link', 'set', 'lo', 'up');
  inside('link', 'set', 'eth0', 'up');
  inside('address', 'add', `${v4}/24`, 'dev', 'eth0');
  inside('address', 'add', `${v6}/64`, 'dev', 'eth0', 'nodad');
  ip('link', 'set', device, 'up');
  inside('route', 'add', 'default', 'via', `10.${network}.0.1`);
  inside('-6', 'route', 'add', 'default', 'via', `fd00:${network}::1`);
  return { agent, IPv4: v4, IPv6: v6, run };
}
