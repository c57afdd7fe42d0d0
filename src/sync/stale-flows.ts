import type { IpFamily } from '../model/address.ts';
import type { UdpFlows } from '../model/conntrack.ts';
import type { ServicePortName } from '../model/service.ts';
import { type EndpointSet, type ServicePort, verdictOf } from '../model/service-port.ts';
import type { Portal, PortalDelta } from '../rules/portal.ts';
import { sameList } from '../util/same-list.ts';

type Destination = Omit<UdpFlows, 'keepLocalPort'>;

/** What a Service port's rules do with what is sent to one destination. */
interface Claim {
  readonly destination: Destination;
  /** Where they may lead; none while everybody is refused. */
  readonly localPorts: readonly number[];
  /** What decides between those: who has a local port by another policy has a wrong one. */
  readonly policy: string;
}

interface Change {
  readonly destination: Destination;
  /** Whether what leads to a port that some rule leads to is right. */
  readonly keeps: boolean;
}

/**
 * Which UDP entries of connection tracking a change of rules makes wrong: those to a destination that came, that went, or
 * that leads elsewhere than before, or nowhere. In proportion to the change. For one address family.
 */
export class StaleFlows {
  readonly #family: IpFamily;
  readonly #claims = new Map<ServicePortName, ReadonlyMap<string, Claim>>();
  /** By destination. More than one where Service ports claim the same, and one of them goes without. */
  readonly #claimants = new Map<string, Map<ServicePortName, Claim>>();
  readonly #changed = new Map<string, Change>();

  constructor(family: IpFamily) {
    this.#family = family;
  }

  note({ upserted, removed }: PortalDelta): void {
    for (const name of removed) this.#replace(name, []);
    for (const portal of upserted) this.#replace(portal.servicePort.name, claimsOf(portal, this.#family));
  }

  /** Rules lead to another address than before: whatever any entry says is wrong. */
  noteAll(): void {
    for (const claims of this.#claims.values()) {
      for (const { destination } of claims.values()) this.#change(destination, false);
    }
  }

  /** What to delete as soon as the rules are installed, each told once. What could not be deleted can be put back. */
  take(): readonly UdpFlows[] {
    const flows = [...this.#changed].flatMap(([key, { destination, keeps }]): readonly UdpFlows[] => {
      const claims = [...(this.#claimants.get(key)?.values() ?? [])];
      const localPorts = claims.flatMap((claim) => claim.localPorts);
      if (!keeps || localPorts.length === 0) return [destination];
      return localPorts.map((keepLocalPort) => ({ ...destination, keepLocalPort }));
    });
    this.#changed.clear();
    return flows;
  }

  putBack(flows: readonly UdpFlows[]): void {
    for (const { keepLocalPort, ...destination } of flows) this.#change(destination, keepLocalPort !== undefined);
  }

  #replace(name: ServicePortName, claims: readonly Claim[]): void {
    const before = this.#claims.get(name) ?? new Map<string, Claim>();
    const after = new Map(claims.map((claim) => [keyOf(claim.destination), claim]));
    for (const [key, { destination }] of before) {
      if (after.has(key)) continue;
      const claimants = this.#claimants.get(key);
      claimants?.delete(name);
      if (claimants?.size === 0) this.#claimants.delete(key);
      this.#change(destination, true);
    }
    for (const [key, claim] of after) {
      const old = before.get(key);
      const claimants = this.#claimants.get(key) ?? new Map<ServicePortName, Claim>();
      this.#claimants.set(key, claimants.set(name, claim));
      const isSamePolicy = old === undefined || old.policy === claim.policy;
      if (old === undefined || !isSamePolicy || !sameList(old.localPorts, claim.localPorts)) {
        this.#change(claim.destination, isSamePolicy);
      }
    }
    if (after.size === 0) this.#claims.delete(name);
    else this.#claims.set(name, after);
  }

  #change(destination: Destination, keeps: boolean): void {
    const key = keyOf(destination);
    this.#changed.set(key, { destination, keeps: keeps && this.#changed.get(key)?.keeps !== false });
  }
}

function claimsOf(portal: Portal, family: IpFamily): readonly Claim[] {
  const { servicePort } = portal;
  const { protocol, port, nodePort, clusterIPs, externalIPs, loadBalancerIPs, local } = servicePort;
  if (protocol !== 'UDP') return [];
  const own = portsOf(servicePort, portal.localPort);
  const localSet = local === undefined ? own : portsOf(local, portal.localSetPort);
  const internal = { localPorts: local?.internal ? localSet : own, policy: '' };
  // The node's own clients, and pods where they are known, go to the Service port's own set.
  const external = { localPorts: local?.external ? [...own, ...localSet] : own, policy: externalPolicy(servicePort) };
  const limited = { ...external, policy: `${external.policy} ${rangesOf(servicePort)}` };
  const nodePorts: readonly Claim[] = nodePort === 0 ? [] : [{ destination: { family, port: nodePort }, ...external }];
  return [
    ...clusterIPs.map((destination) => ({ destination: { destination, port }, ...internal })),
    ...externalIPs.map((destination) => ({ destination: { destination, port }, ...external })),
    ...loadBalancerIPs.map((destination) => ({ destination: { destination, port }, ...limited })),
    ...nodePorts,
  ];
}

function portsOf(set: EndpointSet, localPort: number | undefined): readonly number[] {
  return verdictOf(set) === 'proxy' && localPort !== undefined ? [localPort] : [];
}

function externalPolicy({ local, namedEndpoints = [] }: ServicePort): string {
  return [...(local?.external ? ['local'] : []), ...namedEndpoints].join(' ');
}

function rangesOf({ loadBalancerSourceRanges: ranges }: ServicePort): string {
  return ranges === undefined ? '' : `[${ranges.map(({ network, prefixLength }) => `${network}/${prefixLength}`)}]`;
}

function keyOf({ destination, port }: Destination): string {
  return `${destination ?? ''} ${port}`;
}
