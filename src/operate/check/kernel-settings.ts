import type { IpFamily } from '../../model/address.ts';
import { type Finding, ok, warn } from './finding.ts';
import { numberIn, type ReadFile } from './kernel-files.ts';

/** With fewer, Services and connections to a busy endpoint run out of ports. */
const FEW_PORTS = 10_000;

/** For so long the kernel keeps the port of a connection that has ended, unless it may be used again. */
const TIME_WAIT_S = 60;

/** What is to become of `net.ipv4.tcp_tw_reuse`. */
export interface ReuseFacts {
  readonly path: string;
  /** The proxy is to set it. */
  readonly isWanted: boolean;
  readonly isWritable: boolean;
}

const FORWARDING: Readonly<Record<IpFamily, string>> = {
  IPv4: '/proc/sys/net/ipv4/ip_forward',
  IPv6: '/proc/sys/net/ipv6/conf/all/forwarding',
};

/**
 * Settings of the kernel that matter here. Others that kube-proxy's other modes depend on do not: what is carried ends at
 * a socket of this node and begins at another, so no packet with a translated destination is ever forwarded
 * (`bridge-nf-call-iptables`), and NodePorts at 127.0.0.1 lead to an address of the node (`route_localnet`).
 */
export function checkKernelSettings(
  read: ReadFile,
  families: readonly IpFamily[],
  reuse: ReuseFacts,
): readonly Finding[] {
  const findings = [
    ...families.flatMap((family) => forwarding(read, family)),
    ...localPortRange(read),
    ...portReuse(read, reuse),
    ...strictPaths(read),
  ];
  return findings.length === 0 ? [ok('settings that matter here are as they should be')] : findings;
}

function forwarding(read: ReadFile, family: IpFamily): readonly Finding[] {
  const path = FORWARDING[family];
  if (numberIn(read, path) !== 0) return [];
  return [
    warn(
      `this node does not forward ${family}: pods reach Services, for the proxy carries these, but not pods on other nodes by themselves`,
      `echo 1 > ${path}, unless no pod of this node has ${family}`,
    ),
  ];
}

function localPortRange(read: ReadFile): readonly Finding[] {
  const count = localPortCount(read);
  if (count === undefined || count >= FEW_PORTS) return [];
  return [
    warn(
      `net.ipv4.ip_local_port_range has only ${count} ports, for Services and for connections to each endpoint`,
      'widen it, such as to 32768 60999',
    ),
  ];
}

/** `undefined` where that cannot be read. */
function localPortCount(read: ReadFile): number | undefined {
  const [first, last] = (read('/proc/sys/net/ipv4/ip_local_port_range') ?? '').trim().split(/\s+/).map(Number);
  if (first === undefined || last === undefined || Number.isNaN(last - first)) return undefined;
  return last - first + 1;
}

/** Whether connections to one endpoint may follow each other faster than TIME_WAIT gives their ports back. */
function portReuse(read: ReadFile, { path, isWanted, isWritable }: ReuseFacts): readonly Finding[] {
  const reuse = numberIn(read, path);
  const timestamps = numberIn(read, '/proc/sys/net/ipv4/tcp_timestamps');
  const rate = Math.floor((localPortCount(read) ?? 0) / TIME_WAIT_S);
  const effect = `one endpoint gets at most ${rate} connections a second from clients that close first`;
  if (timestamps === 0) {
    return [warn(`net.ipv4.tcp_timestamps is 0: ${effect}`, 'sysctl net.ipv4.tcp_timestamps=1, on every node')];
  }
  if (reuse === undefined || reuse === 1 || (isWanted && isWritable)) return [];
  const why = isWanted ? 'cannot be set from here' : 'stays so (--tcp-tw-reuse=false)';
  const advice = 'sysctl net.ipv4.tcp_tw_reuse=1 on the host, or run --init-only with the rights';
  return [warn(`net.ipv4.tcp_tw_reuse is ${reuse} and ${why}: ${effect}`, advice)];
}

/** Strict reverse path filtering drops clients whose way back is by another interface, whatever the rules say. */
function strictPaths(read: ReadFile): readonly Finding[] {
  const routes = (read('/proc/net/route') ?? '').split('\n').slice(1);
  const defaults = new Set(
    routes
      .map((line) => line.split('\t'))
      .flatMap(([name, to, , , , , , mask]) => (to === '00000000' && mask === '00000000' ? (name ?? []) : [])),
  );
  if (defaults.size < 2) return [];
  const mode = (name: string) => numberIn(read, `/proc/sys/net/ipv4/conf/${name}/rp_filter`) ?? 0;
  const strict = [...defaults].filter((name) => Math.max(mode('all'), mode(name)) === 1);
  if (strict.length === 0) return [];
  return [
    warn(
      `rp_filter is strict on ${strict.join(', ')}, and default routes leave by several interfaces: clients that come in by one while the way back to them is by another are dropped`,
      'set net.ipv4.conf.all.rp_filter to 2 (loose)',
    ),
  ];
}
