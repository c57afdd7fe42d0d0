#!/usr/bin/env node
import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';

/*
 * A CNI plugin that connects pods as Calico and AWS do: the node's end of each pod's link has no address and is in no
 * bridge. The pod has an address without a network and reaches all else through a gateway that the node answers for, by
 * proxy ARP and with a link-local address. Addresses are given by the plugin `host-local`.
 */

interface Result {
  readonly ips: readonly { readonly address: string }[];
}

const { CNI_COMMAND, CNI_CONTAINERID = '', CNI_IFNAME = 'eth0', CNI_NETNS = '' } = process.env;
const configuration = readFileSync(0, 'utf8');
const { cniVersion } = JSON.parse(configuration) as { cniVersion: string };
const link = `cali${createHash('sha1').update(CNI_CONTAINERID).digest('hex').slice(0, 10)}`;
const GATEWAYS = { 4: '169.254.1.1', 6: 'fe80::1' } as const;

if (CNI_COMMAND === 'VERSION') {
  console.log(JSON.stringify({ cniVersion, supportedVersions: ['0.4.0', '1.0.0'] }));
} else if (CNI_COMMAND === 'ADD') {
  console.log(JSON.stringify(add()));
} else {
  hostLocal();
  if (CNI_COMMAND === 'DEL') run('sh', '-c', `ip link del ${link} 2>/dev/null || true`);
}

function add() {
  const { ips } = JSON.parse(hostLocal()) as Result;
  const addresses = ips.map(({ address }) => address.split('/')[0]!);
  const inPod = (...args: readonly string[]) => run('nsenter', `--net=${CNI_NETNS}`, 'ip', ...args);
  run('ip', 'link', 'add', link, 'type', 'veth', 'peer', 'name', 'pod-end');
  run('ip', 'link', 'set', 'pod-end', 'netns', CNI_NETNS, 'name', CNI_IFNAME);
  run('sh', '-c', `echo 1 > /proc/sys/net/ipv4/conf/${link}/proxy_arp`);
  run('ip', 'address', 'add', `${GATEWAYS[6]}/64`, 'dev', link, 'nodad');
  run('ip', 'link', 'set', link, 'up');
  inPod('link', 'set', 'lo', 'up');
  inPod('link', 'set', CNI_IFNAME, 'up');
  inPod('route', 'add', GATEWAYS[4], 'dev', CNI_IFNAME, 'scope', 'link');
  for (const address of addresses) {
    const family = address.includes(':') ? 6 : 4;
    const host = `${address}/${family === 6 ? 128 : 32}`;
    inPod('address', 'add', host, 'dev', CNI_IFNAME, ...(family === 6 ? ['nodad'] : []));
    inPod(`-${family}`, 'route', 'add', 'default', 'via', GATEWAYS[family], 'dev', CNI_IFNAME);
    run('ip', `-${family}`, 'route', 'add', host, 'dev', link);
  }
  return {
    cniVersion,
    interfaces: [{ name: link }, { name: CNI_IFNAME, sandbox: CNI_NETNS }],
    ips: addresses.map((address) => ({ address: `${address}/${address.includes(':') ? 128 : 32}`, interface: 1 })),
    routes: [{ dst: '0.0.0.0/0' }, { dst: '::/0' }],
  };
}

function hostLocal(): string {
  return execFileSync('/usr/lib/cni/host-local', { input: configuration, encoding: 'utf8' });
}

function run(file: string, ...args: readonly string[]): void {
  execFileSync(file, args, { stdio: ['ignore', 'ignore', 'inherit'] });
}
