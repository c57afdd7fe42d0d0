import type { Config } from '../config/config.ts';
import { parseLocalPorts } from '../kernel/local-ports.ts';
import { type Address, DEFAULT_NODE_PORTS, type PortRange } from '../model/address.ts';
import { endpointName } from '../model/endpoint.ts';
import type { Service } from '../model/service.ts';
import type { ProxiedProtocol } from '../model/service-port.ts';
import { counted, listed } from '../util/text.ts';
import { type Finding, fail, ok, warn } from './finding.ts';
import type { Machine, SocketPort } from './machine.ts';

type Servers = Pick<Config, 'healthzAddress' | 'metricsAddress' | 'bindAddressHardFail'>;

/** Whether the HTTP servers can listen. */
export async function checkListenAddresses(machine: Machine, config: Servers): Promise<readonly Finding[]> {
  const findings: Finding[] = [];
  // Without the flag, the proxy serves Services all the same, and retries.
  const bad = config.bindAddressHardFail ? fail : warn;
  for (const [server, at] of Object.entries({ healthz: config.healthzAddress, metrics: config.metricsAddress })) {
    if (at === undefined) continue;
    const what = `the ${server} address ${endpointName(at)}`;
    const err = await machine.tryToBind(at);
    if (err === undefined) {
      findings.push(ok(`${what} is free`));
    } else if (err === 'EADDRINUSE' && (await machine.servingProxy()) !== undefined) {
      findings.push(ok(`${what} is in use, and a proxy of this program runs here`));
    } else {
      const port: SocketPort = `${at.port}/TCP`;
      const owner = () => machine.ownersOf(new Set([port])).get(port) ?? 'another program';
      const why = err === 'EADDRINUSE' ? `is taken by ${owner()}` : `cannot be listened on: ${err}`;
      findings.push(bad(`${what} ${why}`, `stop that program (ss -lntp), or change --${server}-bind-address`));
    }
  }
  return findings;
}

/** When others have more than this share of the range, there is a warning. */
const NEARLY_ALL = 0.9;

/** Whether there are enough local ports for Services, and whether others use the same. */
export async function checkLocalPorts(
  machine: Machine,
  { proxyPortRange: chosen }: Pick<Config, 'proxyPortRange'>,
  services: readonly Service[],
): Promise<readonly Finding[]> {
  const kernel = parseLocalPorts(
    machine.read('/proc/sys/net/ipv4/ip_local_port_range'),
    machine.read('/proc/sys/net/ipv4/ip_local_reserved_ports'),
  );
  const { first, last } = chosen ?? kernel.range;
  const what = `local ports ${first}-${last} (${chosen ? '--proxy-port-range' : 'net.ipv4.ip_local_port_range'})`;
  const findings: Finding[] = [];
  // A running proxy itself holds ports of this range.
  if ((await machine.servingProxy()) === undefined) {
    const reserved = chosen === undefined ? kernel.reserved : new Set<number>();
    const taken = machine.listeners();
    const isFree = (port: number) => !reserved.has(port) && !taken.has(`${port}/TCP`) && !taken.has(`${port}/UDP`);
    const size = last - first + 1;
    const free = Array.from({ length: size }, (_, index) => first + index).filter(isFree).length;
    const needed = services.reduce((sum, { ports }) => sum + ports.length, 0);
    const found = `${what}: ${free} of ${size} are free, for ${needed} Service ports`;
    if (free === 0 || free < needed) findings.push(fail(found, 'widen --proxy-port-range'));
    else if (taken.size > 0 && free < (1 - NEARLY_ALL) * size) findings.push(warn(found, 'widen --proxy-port-range'));
    else findings.push(ok(found));
  }
  const withNodePorts = chosen && overlap(chosen, DEFAULT_NODE_PORTS);
  if (withNodePorts !== undefined) {
    findings.push(
      warn(
        `--proxy-port-range shares ${withNodePorts} with NodePorts: a local port may become a NodePort`,
        'move the range, unless the API server has another --service-node-port-range',
      ),
    );
  }
  const withKernel = chosen && overlap(chosen, kernel.range, kernel.reserved);
  if (withKernel !== undefined) {
    findings.push(
      warn(
        `the kernel uses ${withKernel} of --proxy-port-range for outgoing connections, too`,
        `reserve them for the proxy: sysctl net.ipv4.ip_local_reserved_ports=${withKernel}`,
      ),
    );
  }
  return findings.length > 0 ? findings : [ok(`${what}; a proxy that runs here has its own`)];
}

/** `40000-40010`. `undefined` when the ranges have no port in common outside of `except`. */
function overlap(a: PortRange, b: PortRange, except: ReadonlySet<number> = new Set()): string | undefined {
  const [first, last] = [Math.max(a.first, b.first), Math.min(a.last, b.last)];
  for (let port = first; port <= last; port++) if (!except.has(port)) return `${first}-${last}`;
  return undefined;
}

/** A port of this node that belongs to a Service. */
interface Claim {
  /** "30080/TCP, the NodePort of shop/web" */
  readonly what: string;
  /** Absent: all of this node. */
  readonly addresses?: readonly Address[] | undefined;
  readonly port: number;
  readonly protocol: ProxiedProtocol;
  /** What happens when another program listens there. */
  readonly effect: string;
  /** The proxy itself listens there. */
  readonly isOfProxy?: true;
  /** At one of its own HTTP ports, which is refused. */
  readonly isHttp?: boolean;
}

interface PortsOfNode {
  /** All addresses of this node. */
  readonly all: readonly Address[];
  /** Those that serve NodePorts; `undefined`: all. */
  readonly nodePorts: readonly Address[] | undefined;
  /** Of the proxy's own HTTP servers. */
  readonly http: ReadonlySet<number>;
}

/** Of a list in one line. */
const NAMED = 3;

/** Some kube-proxies hold every NodePort open. */
const SHOWN = 10;

/** Ports of this node that belong to Services, and at which another program listens. */
export async function checkNodePorts(
  machine: Pick<Machine, 'listeners' | 'ownersOf' | 'isListening' | 'servingProxy'>,
  node: PortsOfNode,
  services: readonly Service[],
): Promise<readonly Finding[]> {
  const listeners = machine.listeners();
  const isServed = (await machine.servingProxy()) !== undefined;
  const all = services.flatMap((service) => [...claimsOf(service, node, isServed)]);
  const [own, claims] = [all.filter(({ isHttp }) => isHttp), all.filter(({ isHttp }) => !isHttp)];
  const refused = own.map(({ what }) =>
    warn(`${what}, is an HTTP port of the proxy's own, so the Service is not served there`, 'choose another port'),
  );
  const ofNode = clusterIPsOf(node, services);
  const clashes = claims.filter(({ addresses, port, protocol, isOfProxy }) => {
    // The cheap test first: thousands of Services and addresses, but few listeners.
    if (!listeners.has(`${port}/${protocol}`) || (isOfProxy && isServed)) return false;
    return addresses === undefined || addresses.some((address) => machine.isListening(address, port, protocol));
  });
  if (clashes.length === 0) {
    return claims.length === 0
      ? refused
      : [...ofNode, ...refused, ok(`no other program listens at ${counted(claims.length, 'port')} of Services`)];
  }
  const portOf = ({ port, protocol }: Claim): SocketPort => `${port}/${protocol}`;
  const shown = clashes.slice(0, SHOWN);
  const owners = machine.ownersOf(new Set(shown.map(portOf)));
  const programs = shown.map((claim) => {
    const owner = owners.get(portOf(claim)) ?? 'a program';
    return warn(`${owner} listens at ${claim.what}: ${claim.effect}`, 'give one of the two another port');
  });
  const findings = [...ofNode, ...refused, ...programs];
  const more = clashes.length - SHOWN;
  if (more <= 0) return findings;
  return [...findings, warn(`programs listen at ${counted(more, 'more port')} of Services`, 'resolve these first')];
}

function clusterIPsOf({ all }: PortsOfNode, services: readonly Service[]): readonly Finding[] {
  const found = services.flatMap(({ key, clusterIPs }) =>
    clusterIPs.filter((address) => all.includes(address)).map((address) => `${address} of ${key}`),
  );
  if (found.length === 0) return [];
  const what = `cluster IPs are addresses of this node (${listed(found, NAMED)})`;
  const effect = 'a program that begins to listen there at the port of a Service gets no clients';
  return [warn(`${what}: ${effect}`, 'give those Services addresses that nothing else has')];
}

function* claimsOf(service: Service, node: PortsOfNode, isServed: boolean): Generator<Claim> {
  const { key, ports, clusterIPs, externalIPs, loadBalancerIPs, healthCheckNodePort } = service;
  const taken = 'the rules take its packets, so its clients get the Service instead';
  const kept = 'it keeps its clients, and the Service is not served there';
  // As KnownAddresses.programRefusal decides.
  const keptOrHeld = isServed ? `${kept}, unless the Service had the port first` : kept;
  for (const { port, nodePort, protocol } of ports) {
    if (protocol === 'SCTP') continue;
    if (nodePort !== 0) {
      const what = `${nodePort}/${protocol}, the NodePort of ${key}`;
      const isHttp = protocol === 'TCP' && node.http.has(nodePort);
      yield { what, addresses: node.nodePorts, port: nodePort, protocol, effect: keptOrHeld, isHttp };
    }
    for (const [kind, addresses, effect] of [
      ['the cluster IP', clusterIPs, keptOrHeld],
      ['a load balancer IP', loadBalancerIPs, taken],
      ['an external IP', externalIPs, kept],
    ] as const) {
      for (const address of addresses.filter((each) => node.all.includes(each))) {
        const what = `${port}/${protocol} of ${address}, ${kind} of ${key}`;
        yield { what, addresses: [address], port, protocol, effect };
      }
    }
  }
  if (healthCheckNodePort === undefined) return;
  yield {
    what: `${healthCheckNodePort}/TCP, the health check node port of ${key}`,
    addresses: node.nodePorts,
    port: healthCheckNodePort,
    protocol: 'TCP',
    effect: 'load balancers get its answers, or take this node for unhealthy',
    isOfProxy: true,
  };
}
