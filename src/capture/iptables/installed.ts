import { parseAddress } from '../../model/address.ts';
import type { InstalledPort } from '../../model/capture.ts';
import type { ServicePortName } from '../../model/service.ts';
import { claimName } from '../claims.ts';
import { RETIRED_FOR_MS } from '../port-book.ts';
import { DROP_PORT, REJECT_PORT } from '../portal.ts';
import { isBelow, isOurs, NODEPORT_HOST, PORTALS_HOST, RETIRED_CHAIN } from './chains.ts';
import type { ChainRules } from './dump.ts';
import { retiredComment } from './rule.ts';

const LABEL = '[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?';
const NAME = new RegExp(`^${LABEL}/${LABEL}(?::${LABEL})?$`);
// Upstream's rules have REDIRECT, and conditions for external IPs (docs/adr/0016).
const CONDITION = '(?:-m (?:physdev ! --physdev-is-in|addrtype --dst-type LOCAL) )?';
const TO_PORT = '-j (?:REDIRECT --to-ports |DNAT --to-destination \\S*:)';
const FOR = '-p (tcp|udp) -m comment --comment "([^" ]+)( local)?';
const PORTAL = new RegExp(
  `^(?:-s \\S+ )?(?:-d (\\S+)/\\d+ )?(?:-i \\S+ )?${FOR}" -m \\2 --dport (\\d+) ${CONDITION}${TO_PORT}(\\d+)$`,
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
    const [, , proto, name, suffix, , port] = PORTAL.exec(spec) ?? [];
    return proto === undefined ? portOf(...(CLOSED.exec(spec) ?? []).slice(1)) : portOf(proto, name, suffix, port);
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

/** To which Service port the installed rules route each destination, by its {@link claimName}. */
export function installedHolders(nat: ChainRules): ReadonlyMap<string, ServicePortName> {
  const holders = new Map<string, ServicePortName>();
  for (const [chain, specs] of nat) {
    const isOfNodePorts = isBelow(NODEPORT_HOST, chain);
    if (!isOfNodePorts && !isBelow(PORTALS_HOST, chain)) continue;
    for (const spec of specs) {
      const [, to = '', proto, name, , port] = PORTAL.exec(spec) ?? [];
      const address = isOfNodePorts ? undefined : parseAddress(to);
      if (!isName(name) || (!isOfNodePorts && address === undefined)) continue;
      const destination = { port: Number(port), ...(address !== undefined && { address }) };
      holders.set(claimName(destination, proto === 'tcp' ? 'TCP' : 'UDP'), copy(name));
    }
  }
  return holders;
}

function isName(name: string | undefined): name is ServicePortName {
  return name !== undefined && NAME.test(name);
}

/** A slice of the dump would keep all of it in memory. */
function copy(name: ServicePortName): ServicePortName {
  return JSON.parse(JSON.stringify(name));
}

function portOf(proto?: string, name?: string, suffix?: string, port?: string): InstalledPort[] {
  const localPort = Number(port);
  const isLocalPort = localPort >= 1 && localPort <= 65535 && localPort !== REJECT_PORT && localPort !== DROP_PORT;
  if (!isName(name) || !isLocalPort) return [];
  const set = suffix === undefined ? 'own' : 'local';
  return [{ name: copy(name), set, protocol: proto === 'tcp' ? 'TCP' : 'UDP', localPort }];
}

function portId({ protocol, localPort }: Pick<InstalledPort, 'protocol' | 'localPort'>): string {
  return `${localPort}/${protocol}`;
}

/** The first of each port. */
function unique(ports: readonly InstalledPort[]): readonly InstalledPort[] {
  return [...new Map(ports.toReversed().map((port) => [portId(port), port])).values()].reverse();
}
