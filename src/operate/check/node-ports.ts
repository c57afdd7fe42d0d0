import type { Address } from '../../model/address.ts';
import type { Service } from '../../model/service.ts';
import type { ProxiedProtocol } from '../../model/service-port.ts';
import { counted } from './counted.ts';
import { type Finding, ok, warn } from './finding.ts';
import { type HostProcess, isThisProgram, type SocketPort } from './host-process.ts';

export interface NodePortFacts {
  readonly services: readonly Service[];
  /** Of this node. */
  readonly addresses: readonly Address[];
  /** Those that serve NodePorts. */
  readonly nodePortAddresses: readonly Address[];
  readonly isListening: (address: Address, port: number, protocol: ProxiedProtocol) => boolean;
  /** At which somebody listens, at whatever address: mostly few, while Services and addresses may be many. */
  readonly taken: ReadonlySet<SocketPort>;
  /** Who listens there; nothing of those that cannot be seen from here. */
  readonly holdersOf: (ports: ReadonlySet<SocketPort>) => ReadonlyMap<SocketPort, HostProcess>;
}

/** Something of a Service that is a port of this node. */
interface Claim {
  /** "30080/TCP, the NodePort of shop/web" */
  readonly what: string;
  readonly addresses: readonly Address[];
  readonly port: number;
  readonly protocol: ProxiedProtocol;
  /** What it means that another program listens there. */
  readonly effect: string;
  readonly advice: string;
}

/** There may be thousands: some kube-proxies hold every NodePort open. */
const SHOWN = 10;

/** Ports of this node that Services have, and at which another program listens. */
export function checkNodePorts(facts: NodePortFacts): readonly Finding[] {
  const claims = facts.services.flatMap((service) => [...claimsOf(service, facts)]);
  const taken = claims.filter((claim) => isTaken(claim, facts));
  const holders = taken.length === 0 ? new Map() : facts.holdersOf(new Set(taken.map(portOf)));
  const clashes = taken.flatMap((claim) => {
    const holder: HostProcess | undefined = holders.get(portOf(claim));
    // A proxy that runs already answers health checks itself.
    return holder !== undefined && isThisProgram(holder) ? [] : [{ claim, holder }];
  });
  if (clashes.length === 0) {
    return claims.length === 0 ? [] : [ok(`nobody else listens at ${counted(claims.length, 'port')} of Services`)];
  }
  const findings = clashes.slice(0, SHOWN).map(({ claim, holder }) => {
    const who = holder === undefined ? 'a program' : `${holder.name} (process ${holder.pid})`;
    return warn(`${who} listens at ${claim.what}: ${claim.effect}`, claim.advice);
  });
  const more = clashes.length - SHOWN;
  if (more <= 0) return findings;
  return [...findings, warn(`programs listen at ${counted(more, 'more port')} of Services`, 'see to these first')];
}

function* claimsOf(service: Service, { addresses, nodePortAddresses }: NodePortFacts): Generator<Claim> {
  const { key, ports, externalIPs, loadBalancerIPs, healthCheckNodePort } = service;
  const isLocal = (address: Address) => addresses.includes(address);
  const taking = {
    effect: 'the rules take its packets, so its clients get the Service instead',
    advice: 'give one of the two another port',
  };
  for (const { port, nodePort, protocol } of ports) {
    if (protocol === 'SCTP') continue;
    if (nodePort !== 0) {
      const what = `${nodePort}/${protocol}, the NodePort of ${key}`;
      yield { what, addresses: nodePortAddresses, port: nodePort, protocol, ...taking };
    }
    for (const address of loadBalancerIPs.filter(isLocal)) {
      const what = `${port}/${protocol} of ${address}, a load balancer IP of ${key}`;
      yield { what, addresses: [address], port, protocol, ...taking };
    }
    for (const address of externalIPs.filter(isLocal)) {
      yield {
        what: `${port}/${protocol} of ${address}, an external IP of ${key}`,
        addresses: [address],
        ...{ port, protocol },
        effect: 'it keeps its clients, and the Service is not served there',
        advice: 'give one of the two another port, or take the address out of externalIPs',
      };
    }
  }
  if (healthCheckNodePort !== undefined) {
    yield {
      what: `${healthCheckNodePort}/TCP, the health check node port of ${key}`,
      addresses: nodePortAddresses,
      port: healthCheckNodePort,
      protocol: 'TCP',
      effect: 'load balancers take this node for unhealthy, or go by what that answers',
      advice: 'have the program listen elsewhere',
    };
  }
}

function isTaken(claim: Claim, { taken, isListening }: NodePortFacts): boolean {
  const { addresses, port, protocol } = claim;
  return taken.has(portOf(claim)) && addresses.some((address) => isListening(address, port, protocol));
}

function portOf({ port, protocol }: Pick<Claim, 'port' | 'protocol'>): SocketPort {
  return `${port}/${protocol}`;
}
