import { type Finding, fail, ok } from './finding.ts';

/** Bits of `linux/capability.h`. */
const NEEDED = { CAP_NET_ADMIN: 12, CAP_NET_RAW: 13 } as const;
const BIND_SERVICE = 10;

const ADVICE =
  'run it as root, with CAP_NET_ADMIN and CAP_NET_RAW (securityContext.capabilities of the Pod, CapabilityBoundingSet= of the unit)';

/**
 * Whether this process may do what the proxy does, from the text of `/proc/self/status`. `lowestPort` is the first port
 * that it is to listen on by its flags; `unprivilegedFrom` that of `net.ipv4.ip_unprivileged_port_start`.
 */
export function checkPrivileges(
  status: string,
  {
    lowestPort,
    unprivilegedFrom = 1024,
  }: { readonly lowestPort: number; readonly unprivilegedFrom?: number | undefined },
): readonly Finding[] {
  const effective = BigInt(`0x${/^CapEff:\s*([0-9a-f]+)$/m.exec(status)?.[1] ?? '0'}`);
  const has = (bit: number) => ((effective >> BigInt(bit)) & 1n) === 1n;
  const [, uid] = /^Uid:\s*\d+\s+(\d+)/m.exec(status) ?? [];
  const missing = Object.entries(NEEDED).flatMap(([name, bit]) => (has(bit) ? [] : [name]));
  const findings: Finding[] = [];
  if (missing.length > 0)
    findings.push(fail(`this process lacks ${missing.join(' and ')}, without which iptables does nothing`, ADVICE));
  // iptables itself asks for it, whatever the capabilities.
  if (uid !== '0') findings.push(fail(`this process runs as user ${uid ?? '?'}, and iptables insists on root`, ADVICE));
  if (lowestPort > 0 && lowestPort < unprivilegedFrom && !has(BIND_SERVICE)) {
    findings.push(
      fail(
        `this process lacks CAP_NET_BIND_SERVICE, and is to listen on port ${lowestPort}`,
        `add it, or choose ports from ${unprivilegedFrom} on (--proxy-port-range, --healthz-bind-address, --metrics-bind-address)`,
      ),
    );
  }
  return findings.length === 0 ? [ok('root with CAP_NET_ADMIN and CAP_NET_RAW')] : findings;
}
