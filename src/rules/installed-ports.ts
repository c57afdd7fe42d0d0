import type { ServicePortName } from '../model/service.ts';
import type { ProxiedProtocol } from '../model/service-port.ts';
import { isOurs, RETIRED_CHAIN } from './chains.ts';
import { DROP, REFUSE } from './doors.ts';
import type { ChainRules } from './dump.ts';
import { retiredComment, type ServedSet } from './port-comment.ts';

/** A local port that rules in the kernel lead to, or have led to not long ago. */
export interface InstalledPort extends ServedSet {
  readonly protocol: ProxiedProtocol;
  readonly localPort: number;
  /** For a port whose Service port went: how long ago; what conntrack remembers may still come to it. */
  readonly retiredForMs?: number;
}

/**
 * How long a local port is kept from other Services. A connection or flow that conntrack knows goes on to the old local
 * port, whatever the rules say. Flows of UDP are known for 120 s after their last packet (`nf_conntrack_udp_timeout_stream`),
 * closed connections for at most 120 s (`nf_conntrack_tcp_timeout_time_wait`); an open one that nobody answers for
 * sends, within 300 s (`nf_conntrack_tcp_timeout_max_retrans`), or is answered with a reset by the port it comes to.
 */
export const RETIRED_FOR_MS = 300_000;

const NAME = /^[a-z0-9][a-z0-9.-]*\/[a-z0-9][a-z0-9.-]*(?::[a-z0-9][a-z0-9-]*)?$/;
// REDIRECT, and the conditions of external IPs, are in rules of upstream and of versions before docs/adr/0016.
const PORTAL =
  /^(?:-s \S+ )?(?:-d \S+ )?(?:-i \S+ )?-p (tcp|udp) -m comment --comment "([^" ]+)( local)?" -m \1 --dport \d+ (?:-m (?:physdev ! --physdev-is-in|addrtype --dst-type LOCAL) )?-j (?:REDIRECT --to-ports |DNAT --to-destination \S*:)(\d+)$/;
const CLOSED =
  /^(?:-d \S+ )?-p (tcp|udp) -m comment --comment "([^" ]+)( local)? proxy port" -m \1 --dport (\d+) -j (?:REDIRECT --to-ports |DNAT --to-destination \S*:)1$/;
const RETIRED =
  /^-p (tcp|udp) -m comment --comment "([^" ]+)( local)? retired at (\d{1,12})" -m \1 --dport (\d+) -j RETURN$/;

/** The rule that remembers a retired port, for {@link RETIRED_CHAIN}. `at`: wall clock, milliseconds since 1970. */
export function retiredSpec(port: InstalledPort, at: number): string {
  const { protocol, localPort } = port;
  const proto = protocol.toLowerCase();
  const comment = retiredComment(port, Math.floor(at / 1000));
  return `-p ${proto} -m comment --comment "${comment}" -m ${proto} --dport ${localPort} -j RETURN`;
}

/**
 * The ports that rules of Service ports lead to, or close to others. Rules that no proxy of Services has written are
 * passed over.
 */
export function livePorts(specs: Iterable<string>): readonly InstalledPort[] {
  return unique([...specs].flatMap(readLive));
}

/** The retired ports that are remembered, the oldest first. A time that is yet to come counts as now. */
export function retiredPorts(specs: Iterable<string>, now: number): readonly InstalledPort[] {
  const ports = [...specs].flatMap((spec): InstalledPort[] => {
    const [, proto, name, suffix, at, port] = RETIRED.exec(spec) ?? [];
    const read = portOf(proto, name, suffix, port);
    return read === undefined ? [] : [{ ...read, retiredForMs: Math.max(0, now - Number(at) * 1000) }];
  });
  // A port that retired twice counts from the last time.
  return unique(ports.reverse())
    .filter((port) => (port.retiredForMs ?? 0) < RETIRED_FOR_MS)
    .reverse();
}

/**
 * All that our chains of the nat table tell of local ports; one that carries a Service now is not retired. `now`: wall
 * clock, milliseconds since 1970.
 */
export function installedPorts(nat: ChainRules, now: number): readonly InstalledPort[] {
  const specs = [...nat].filter(([chain]) => isOurs('nat', chain)).flatMap(([, rules]) => rules);
  return unique([...livePorts(specs), ...retiredPorts(nat.get(RETIRED_CHAIN) ?? [], now)]);
}

/** What tells local ports apart: those of TCP and of UDP have nothing to do with each other. */
export function portId({ protocol, localPort }: Pick<InstalledPort, 'protocol' | 'localPort'>): string {
  return `${localPort}/${protocol}`;
}

function readLive(spec: string): InstalledPort[] {
  const [, proto, name, suffix, port] = PORTAL.exec(spec) ?? CLOSED.exec(spec) ?? [];
  const read = portOf(proto, name, suffix, port);
  return read === undefined ? [] : [read];
}

function portOf(
  proto: string | undefined,
  name: string | undefined,
  suffix: string | undefined,
  port: string | undefined,
): InstalledPort | undefined {
  const localPort = Number(port);
  if (name === undefined || !NAME.test(name) || !isLocalPort(localPort)) return undefined;
  return {
    name: detached(name) as ServicePortName,
    set: suffix === undefined ? 'own' : 'local',
    protocol: proto === 'tcp' ? 'TCP' : 'UDP',
    localPort,
  };
}

function isLocalPort(port: number): boolean {
  return port >= 1 && port <= 65535 && port !== REFUSE && port !== DROP;
}

/** A copy: a part of a dump would keep all of it in memory for as long as the name is. */
function detached(text: string): string {
  return JSON.parse(JSON.stringify(text));
}

/** The first that is told of each port. */
function unique(ports: readonly InstalledPort[]): readonly InstalledPort[] {
  return [...new Map(ports.toReversed().map((port) => [portId(port), port])).values()].reverse();
}
