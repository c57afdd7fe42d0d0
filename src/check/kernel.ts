import { cpus } from 'node:os';
import type { Config } from '../config/config.ts';
import { descriptorLimit } from '../kernel/descriptor-limit.ts';
import { conntrackNumbers, TW_REUSE } from '../kernel/host-settings.ts';
import { parseLocalPorts } from '../kernel/local-ports.ts';
import type { IpFamily } from '../model/address.ts';
import { type Finding, fail, ok, warn } from './finding.ts';
import { type Machine, numberIn } from './machine.ts';

type Files = Pick<Machine, 'read' | 'isWritable'>;

/** Bits of `linux/capability.h`. */
const NEEDED = { CAP_NET_ADMIN: 12, CAP_NET_RAW: 13 } as const;
const BIND_SERVICE = 10;

const RIGHTS =
  'run it as root with CAP_NET_ADMIN and CAP_NET_RAW (capabilities of the Pod, CapabilityBoundingSet= of the unit)';

/** Whether this process has the rights that the proxy needs. */
export function checkPrivileges(
  machine: Files,
  config: Pick<Config, 'healthzAddress' | 'metricsAddress' | 'proxyPortRange'>,
): readonly Finding[] {
  const status = machine.read('/proc/self/status') ?? '';
  const effective = BigInt(`0x${/^CapEff:\s*([0-9a-f]+)$/m.exec(status)?.[1] ?? '0'}`);
  const has = (bit: number) => ((effective >> BigInt(bit)) & 1n) === 1n;
  const findings: Finding[] = [];
  const missing = Object.entries(NEEDED).flatMap(([name, bit]) => (has(bit) ? [] : [name]));
  if (missing.length > 0) {
    findings.push(fail(`this process lacks ${missing.join(' and ')}, which iptables needs`, RIGHTS));
  }
  const [, uid = '?'] = /^Uid:\s*\d+\s+(\d+)/m.exec(status) ?? [];
  // iptables itself asks for root, whatever the capabilities.
  if (uid !== '0') findings.push(fail(`this process runs as user ${uid}, and iptables needs root`, RIGHTS));
  const unprivilegedFrom = numberIn(machine, '/proc/sys/net/ipv4/ip_unprivileged_port_start') ?? 1024;
  const ports = [config.healthzAddress?.port, config.metricsAddress?.port, config.proxyPortRange?.first];
  const low = ports.find((port = 0) => port > 0 && port < unprivilegedFrom);
  if (low !== undefined && !has(BIND_SERVICE)) {
    const found = `this process lacks CAP_NET_BIND_SERVICE, which listening on port ${low} needs`;
    findings.push(fail(found, `add it, or choose ports from ${unprivilegedFrom} on`));
  }
  return findings.length === 0 ? [ok('root with CAP_NET_ADMIN and CAP_NET_RAW')] : findings;
}

/** With fewer, Services and connections to a busy endpoint run out of ports. */
const FEW_PORTS = 10_000;

/** How long the kernel keeps the port of a closed connection, unless it may reuse it. */
const TIME_WAIT_S = 60;

const FORWARDING: Readonly<Record<IpFamily, string>> = {
  IPv4: '/proc/sys/net/ipv4/ip_forward',
  IPv6: '/proc/sys/net/ipv6/conf/all/forwarding',
};

/**
 * The sysctls that the proxy relies on. Not `route_localnet`, which kube-proxy's other modes need: rules send NodePorts
 * at 127.0.0.1 to an address of the node. `bridge-nf-call-iptables` matters for clients' addresses alone, which have a
 * check of their own.
 */
export function checkKernelSettings(
  machine: Files,
  families: readonly IpFamily[],
  { host }: { readonly host: Pick<Config['host'], 'tcpTwReuse'> },
): readonly Finding[] {
  const findings: Finding[] = [];
  for (const family of families) {
    if (numberIn(machine, FORWARDING[family]) !== 0) continue;
    const found = `this node does not forward ${family}: pods reach Services, but not pods on other nodes`;
    findings.push(warn(found, `echo 1 > ${FORWARDING[family]}, unless no pod of this node has ${family}`));
  }
  const { range } = parseLocalPorts(machine.read('/proc/sys/net/ipv4/ip_local_port_range'), undefined);
  const count = range.last - range.first + 1;
  if (count < FEW_PORTS) {
    const found = `net.ipv4.ip_local_port_range has only ${count} ports, for Services and for connections to endpoints`;
    findings.push(warn(found, 'widen it, for example to 32768 60999'));
  }
  findings.push(...portReuse(machine, count, host.tcpTwReuse), ...strictPaths(machine));
  return findings.length === 0 ? [ok('the settings that the proxy relies on are right')] : findings;
}

/** Whether the kernel gives local ports back faster than after TIME_WAIT. */
function portReuse(machine: Files, ports: number, isWanted: boolean): readonly Finding[] {
  const rate = Math.floor(ports / TIME_WAIT_S);
  const effect = `one endpoint gets at most ${rate} connections a second from clients that close first`;
  if (numberIn(machine, '/proc/sys/net/ipv4/tcp_timestamps') === 0) {
    return [warn(`net.ipv4.tcp_timestamps is 0: ${effect}`, 'sysctl net.ipv4.tcp_timestamps=1, on every node')];
  }
  const reuse = numberIn(machine, TW_REUSE);
  if (reuse === undefined || reuse === 1 || (isWanted && machine.isWritable(TW_REUSE))) return [];
  const why = isWanted ? 'cannot be set from here' : 'stays so (--tcp-tw-reuse=false)';
  const advice = 'sysctl net.ipv4.tcp_tw_reuse=1 on the host, or run --init-only as root';
  return [warn(`net.ipv4.tcp_tw_reuse is ${reuse} and ${why}: ${effect}`, advice)];
}

/** Strict reverse path filtering drops clients whose way back is through another interface. */
function strictPaths(machine: Files): readonly Finding[] {
  const routes = (machine.read('/proc/net/route') ?? '').split('\n').map((line) => line.split('\t'));
  const isDefault = (to?: string, mask?: string) => to === '00000000' && mask === '00000000';
  const defaults = new Set(routes.flatMap(([name = '', to, , , , , , mask]) => (isDefault(to, mask) ? [name] : [])));
  const mode = (name: string) => numberIn(machine, `/proc/sys/net/ipv4/conf/${name}/rp_filter`) ?? 0;
  const strict = [...defaults].filter((name) => Math.max(mode('all'), mode(name)) === 1);
  if (defaults.size < 2 || strict.length === 0) return [];
  const found = `rp_filter is strict on ${strict.join(', ')}, and there are several default routes`;
  return [
    warn(`${found}: clients whose way back is another one are dropped`, 'set net.ipv4.conf.all.rp_filter to 2 (loose)'),
  ];
}

const MIB = 1 << 20;
/** Enough for a few hundred Services; 10,000 take 210 MB (docs/performance.md). */
const NEEDED_MIB = 256;

/** Besides the descriptors of UDP flows: two for each TCP connection, one for each Service port. */
const SPARE_DESCRIPTORS = 4_096;

const CROWDED = 0.9;
const LOW_BACKLOG = 1_024;

/** Open files, connection tracking, queues for new connections, and the memory of a container. */
export function checkLimits(machine: Files, config: Pick<Config, 'dataPlane' | 'host'>): readonly Finding[] {
  return [
    ...descriptors(machine, config.dataPlane.udpMaxFlows),
    ...conntrack(machine, config.host.conntrack),
    ...backlog(machine),
    ...memory(machine),
  ];
}

function descriptors({ read }: Files, udpMaxFlows: number): readonly Finding[] {
  const limit = descriptorLimit(read('/proc/self/limits') ?? '');
  const needed = udpMaxFlows + SPARE_DESCRIPTORS;
  if (limit === undefined || limit >= needed) return [ok(`${limit ?? 'any number of'} open files`)];
  return [
    warn(
      `only ${limit} open files, with up to ${udpMaxFlows} UDP flows and two for each TCP connection`,
      `raise the limit to ${needed} or more (LimitNOFILE= of the unit, ulimit -n), or lower --udp-max-flows`,
    ),
  ];
}

function conntrack(machine: Files, settings: Config['host']['conntrack']): readonly Finding[] {
  const max = numberIn(machine, '/proc/sys/net/netfilter/nf_conntrack_max');
  const count = numberIn(machine, '/proc/sys/net/netfilter/nf_conntrack_count') ?? 0;
  if (max === undefined) return [ok('connection tracking is not loaded yet; the first rule loads it')];
  const used = `connection tracking has ${count} entries of at most ${max}`;
  const advice = 'raise net.netfilter.nf_conntrack_max, or --conntrack-max-per-core';
  const isCrowded = count >= CROWDED * max;
  const findings = [isCrowded ? warn(`${used}; when it is full, new connections are dropped`, advice) : ok(used)];
  const refused = conntrackNumbers(settings, cpus().length).filter(({ path, value, isFloor }) => {
    const current = numberIn(machine, path);
    const isThere = current === value || (isFloor === true && current !== undefined && current > value);
    return !isThere && !machine.isWritable(path);
  });
  if (refused.length > 0) {
    const numbers = refused.map(({ path, value }) => `${path}=${value}`).join(', ');
    const way = 'set them on the host, run --init-only as root, or set the flags to 0 (--conntrack-max-per-core)';
    findings.push(warn(`these cannot be set from here: ${numbers}`, way));
  }
  return findings;
}

function backlog(machine: Files): readonly Finding[] {
  const most = numberIn(machine, '/proc/sys/net/core/somaxconn');
  if (most === undefined || most >= LOW_BACKLOG) return [];
  const found = `net.core.somaxconn is ${most}: when more clients of a Service connect at once, some are dropped`;
  return [warn(found, 'raise it to 4096')];
}

function memory(machine: Files): readonly Finding[] {
  // Of a container that sees its own cgroup as the root; "max" without a limit.
  const limit = (numberIn(machine, '/sys/fs/cgroup/memory.max') ?? Number.NaN) / MIB;
  if (!(limit < NEEDED_MIB)) return [];
  const advice = `allow ${NEEDED_MIB} MiB, more with thousands of Services, and twice as much for upgrades in place`;
  return [warn(`the memory limit of this container is ${Math.round(limit)} MiB`, advice)];
}
