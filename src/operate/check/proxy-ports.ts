import { DEFAULT_NODE_PORTS, type PortRange } from '../../model/address.ts';
import { type Finding, fail, ok, warn } from './finding.ts';

const NEARLY_ALL = 0.9;

export interface LocalPortFacts {
  /** Of `--proxy-port-range`; `undefined` where the kernel's own range counts. */
  readonly chosen: PortRange | undefined;
  /** `net.ipv4.ip_local_port_range` and `ip_local_reserved_ports`. */
  readonly kernel: { readonly range: PortRange; readonly reserved: ReadonlySet<number> };
  /** That some program receives at now, over any protocol; `undefined` while a proxy runs here and has its own among them. */
  readonly taken: ReadonlySet<number> | undefined;
  /** How many Service ports there are; 0 where that is not known. */
  readonly servicePorts: number;
}

/** Whether there are local ports enough for Services, and whether others want the same. */
export function checkProxyPorts(facts: LocalPortFacts): readonly Finding[] {
  const { chosen, kernel } = facts;
  const range = chosen ?? kernel.range;
  const origin = chosen === undefined ? 'net.ipv4.ip_local_port_range' : '--proxy-port-range';
  const findings = [...room(range, origin, facts), ...nodePortOverlap(facts), ...ephemeralOverlap(facts)];
  return findings.some(({ level }) => level !== 'ok') ? findings.filter(({ level }) => level !== 'ok') : findings;
}

function room(
  { first, last }: PortRange,
  origin: string,
  { chosen, kernel, taken, servicePorts }: LocalPortFacts,
): readonly Finding[] {
  const isReserved = (port: number) => chosen === undefined && kernel.reserved.has(port);
  const what = `local ports ${first}-${last} (${origin})`;
  if (taken === undefined) return [ok(`${what}; a proxy runs here already and has its own`)];
  let free = 0;
  for (let port = first; port <= last; port++) if (!taken.has(port) && !isReserved(port)) free++;
  if (free === 0 || free < servicePorts) {
    const need = servicePorts === 0 ? '' : `, for ${servicePorts} Service ports`;
    return [fail(`${what}: ${free} are free${need}`, 'widen --proxy-port-range')];
  }
  const size = last - first + 1;
  if (taken.size > 0 && free < (1 - NEARLY_ALL) * size) {
    return [warn(`${what}: only ${free} of ${size} are free`, 'widen --proxy-port-range')];
  }
  return [ok(`${what}: ${free} of ${size} are free`)];
}

/** From the kernel's range, those of NodePorts are taken last. */
function nodePortOverlap({ chosen }: LocalPortFacts): readonly Finding[] {
  const shared = chosen && overlap(chosen, DEFAULT_NODE_PORTS);
  if (shared === undefined) return [];
  return [
    warn(
      `--proxy-port-range and NodePorts (${DEFAULT_NODE_PORTS.first}-${DEFAULT_NODE_PORTS.last} by default) have ${shared.first}-${shared.last} in common; a Service port moves when its local port becomes a NodePort, and clients are refused meanwhile`,
      'move the range, unless the API server was given another --service-node-port-range',
    ),
  ];
}

/** A port of the chosen range that the kernel has just given to an outgoing connection is not free. */
function ephemeralOverlap({ chosen, kernel }: LocalPortFacts): readonly Finding[] {
  const shared = chosen && overlap(chosen, kernel.range);
  if (shared === undefined) return [];
  for (let port = shared.first; port <= shared.last; port++) {
    if (kernel.reserved.has(port)) continue;
    return [
      warn(
        `the kernel takes ${shared.first}-${shared.last} of --proxy-port-range for outgoing connections, too`,
        `keep them for the proxy: sysctl net.ipv4.ip_local_reserved_ports=${shared.first}-${shared.last}`,
      ),
    ];
  }
  return [];
}

function overlap(a: PortRange, b: PortRange): PortRange | undefined {
  const [first, last] = [Math.max(a.first, b.first), Math.min(a.last, b.last)];
  return first > last ? undefined : { first, last };
}
