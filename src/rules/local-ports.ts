import type { ServicePortName } from '../model/service.ts';
import type { ProxiedProtocol } from '../model/service-port.ts';
import { sameList } from '../util/same-list.ts';
import { DROP_PORT, isOurs, REJECT_PORT, RETIRED_CHAIN } from './chains.ts';
import type { ChainRules } from './dump.ts';
import { localPortsOf, type Portal } from './portal.ts';
import { retiredComment, type ServedSet, unsafeReason } from './rule.ts';

/** A local port that rules in the kernel use, or used recently. */
export interface InstalledPort extends ServedSet {
  readonly protocol: ProxiedProtocol;
  readonly localPort: number;
  /** For a retired port. Packets of flows in conntrack may still come to it. */
  readonly retiredForMs?: number;
}

/**
 * How long other Services do not get a retired local port. Conntrack keeps UDP flows 120 s after their last packet
 * (`nf_conntrack_udp_timeout_stream`), and closed connections for at most 120 s (`nf_conntrack_tcp_timeout_time_wait`).
 * An open connection without a peer sends within 300 s (`nf_conntrack_tcp_timeout_max_retrans`) or the port resets it.
 */
export const RETIRED_FOR_MS = 300_000;

/** Enough for 13 Services that go every second. Costs less than 2 MB of kernel memory. */
export const MAX_RETIRED = 4096;

const LABEL = '[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?';
const NAME = new RegExp(`^${LABEL}/${LABEL}(?::${LABEL})?$`);
// Upstream's rules have REDIRECT, and conditions for external IPs (docs/adr/0016).
const CONDITION = '(?:-m (?:physdev ! --physdev-is-in|addrtype --dst-type LOCAL) )?';
const TO_PORT = '-j (?:REDIRECT --to-ports |DNAT --to-destination \\S*:)';
const FOR = '-p (tcp|udp) -m comment --comment "([^" ]+)( local)?';
const PORTAL = new RegExp(
  `^(?:-s \\S+ )?(?:-d \\S+ )?(?:-i \\S+ )?${FOR}" -m \\1 --dport \\d+ ${CONDITION}${TO_PORT}(\\d+)$`,
);
const CLOSED = new RegExp(`^(?:-d \\S+ )?${FOR} proxy port" -m \\1 --dport (\\d+) ${TO_PORT}1$`);
const RETIRED =
  /^-p (tcp|udp) -m comment --comment "([^" ]+)( local)? retired at (\d{1,12})" -m \1 --dport (\d+) -j RETURN$/;

/** The rule that remembers a retired port, for {@link RETIRED_CHAIN}. `at`: wall clock, milliseconds since 1970. */
export function retiredSpec(port: InstalledPort, at: number): string {
  const { protocol, localPort } = port;
  const proto = protocol.toLowerCase();
  const comment = retiredComment(port, Math.floor(at / 1000));
  return `-p ${proto} -m comment --comment "${comment}" -m ${proto} --dport ${localPort} -j RETURN`;
}

/** The ports that rules of Service ports send to, or close to other clients. Ignores other rules. */
export function livePorts(specs: Iterable<string>): readonly InstalledPort[] {
  const ports = [...specs].flatMap((spec) => {
    const [, proto, name, suffix, port] = PORTAL.exec(spec) ?? CLOSED.exec(spec) ?? [];
    return portOf(proto, name, suffix, port);
  });
  return unique(ports);
}

/** The oldest first. A time in the future counts as now. */
export function retiredPorts(specs: Iterable<string>, now: number): readonly InstalledPort[] {
  const ports = [...specs].flatMap((spec) => {
    const [, proto, name, suffix, at, port] = RETIRED.exec(spec) ?? [];
    const retiredForMs = Math.max(0, now - Number(at) * 1000);
    return portOf(proto, name, suffix, port).map((read): InstalledPort => ({ ...read, retiredForMs }));
  });
  // A port that retired twice counts from the last time.
  return unique(ports.reverse())
    .filter((port) => (port.retiredForMs ?? 0) < RETIRED_FOR_MS)
    .reverse();
}

/** All local ports in our chains of the nat table. A port that serves a Service now is not listed as retired. */
export function installedPorts(nat: ChainRules, now: number): readonly InstalledPort[] {
  const specs = [...nat].filter(([chain]) => isOurs('nat', chain)).flatMap(([, rules]) => rules);
  return unique([...livePorts(specs), ...retiredPorts(nat.get(RETIRED_CHAIN) ?? [], now)]);
}

function portOf(proto?: string, name?: string, suffix?: string, port?: string): InstalledPort[] {
  const localPort = Number(port);
  const isLocalPort = localPort >= 1 && localPort <= 65535 && localPort !== REJECT_PORT && localPort !== DROP_PORT;
  if (name === undefined || !NAME.test(name) || !isLocalPort) return [];
  const set = suffix === undefined ? 'own' : 'local';
  // A copy of the name: a slice of the dump would keep all of it in memory.
  return [{ name: JSON.parse(JSON.stringify(name)), set, protocol: proto === 'tcp' ? 'TCP' : 'UDP', localPort }];
}

function portId({ protocol, localPort }: Pick<InstalledPort, 'protocol' | 'localPort'>): string {
  return `${localPort}/${protocol}`;
}

/** The first of each port. */
function unique(ports: readonly InstalledPort[]): readonly InstalledPort[] {
  return [...new Map(ports.toReversed().map((port) => [portId(port), port])).values()].reverse();
}

/** The first `length` of `specs`. While `specs` is the same object, a later log only appends to it. */
export interface RetiredLog {
  readonly specs: readonly string[];
  readonly length: number;
}

/**
 * The local ports that served a Service port less than {@link RETIRED_FOR_MS} ago, for a chain that no packet enters:
 * like conntrack's entries, rules outlive this process and go with the network namespace. Times are milliseconds since
 * 1970, because only the wall clock outlives the process.
 */
export class RetiredPorts {
  readonly #live = new Map<ServicePortName, readonly InstalledPort[]>();
  /** Which Service port has it now, by {@link portId}. */
  readonly #owners = new Map<string, ServicePortName>();
  /** By {@link portId}, the oldest first. */
  readonly #retired = new Map<string, { readonly port: InstalledPort; readonly at: number }>();
  #log: string[] = [];

  /** Retires the other ports that the portal had before. */
  serve(portal: Portal, now: number): void {
    const { name, protocol } = portal.servicePort;
    const ports = localPortsOf(portal).map(
      ({ port, set }): InstalledPort => ({ name, set, protocol, localPort: port }),
    );
    const before = this.#live.get(name) ?? [];
    this.#live.set(name, ports);
    for (const port of ports) {
      this.#owners.set(portId(port), name);
      this.#retired.delete(portId(port));
    }
    const kept = new Set(ports.map(portId));
    for (const port of before) if (!kept.has(portId(port))) this.#leave(port, now);
  }

  remove(name: ServicePortName, now: number): void {
    const ports = this.#live.get(name) ?? [];
    this.#live.delete(name);
    for (const port of ports) this.#leave(port, now);
  }

  /** The kernel has or had rules for this port. */
  found(port: InstalledPort, now: number): void {
    if (this.#owners.has(portId(port)) || this.#retired.has(portId(port))) return;
    this.#retire(port, now - (port.retiredForMs ?? 0));
  }

  /** The contents of the chain; appends ports that retired since. At most twice {@link MAX_RETIRED}. */
  log(now: number): RetiredLog {
    return this.#log.length > 2 * MAX_RETIRED ? this.compactLog(now) : { specs: this.#log, length: this.#log.length };
  }

  /** The same without ports that have expired or serve again. */
  compactLog(now: number): RetiredLog {
    for (const [id, { at }] of this.#retired) {
      if (now - at >= RETIRED_FOR_MS) this.#retired.delete(id);
    }
    const specs = [...this.#retired.values()].map(({ port, at }) => retiredSpec(port, at));
    if (!sameList(specs, this.#log)) this.#log = specs;
    return { specs: this.#log, length: this.#log.length };
  }

  #leave(port: InstalledPort, now: number): void {
    if (this.#owners.get(portId(port)) !== port.name) return;
    this.#owners.delete(portId(port));
    this.#retire(port, now);
  }

  #retire(port: InstalledPort, at: number): void {
    const spec = retiredSpec(port, at);
    if (unsafeReason(spec) !== undefined) return;
    this.#retired.set(portId(port), { port, at });
    for (const oldest of this.#retired.keys()) {
      if (this.#retired.size <= MAX_RETIRED) break;
      this.#retired.delete(oldest);
    }
    this.#log.push(spec);
  }
}
