import type { Config } from '../config/config.ts';
import { localAddresses, NodeAddress } from '../kernel/addresses.ts';
import { isEligible, type NodeStatus } from '../kubernetes/node.ts';
import { type Address, addressBlock, type Cidr, cidrContains, familyOf, type IpFamily } from '../model/address.ts';
import type { NodeTopology } from '../model/endpoint.ts';
import type { Origin } from '../rules/routes.ts';
import type { NodeFacts } from '../rules/service-rules.ts';
import type { Log } from '../util/log.ts';

/** Addresses of fe80::/10. Every interface of a pod has one, and nobody can listen there without naming the link. */
const LINK_LOCAL = /^fe[89ab]/;

/** What is known of this node now: by the machine itself, and by its Node object where there is one. */
export class ThisNode {
  readonly #config: Config;
  readonly #name: string;
  readonly #addresses: Readonly<Record<IpFamily, NodeAddress>>;
  #status: NodeStatus | undefined;

  constructor(config: Config, { name, log }: { readonly name: string; readonly log: Log }) {
    this.#config = config;
    this.#name = name;
    this.#addresses = {
      IPv4: new NodeAddress({ family: 'IPv4', log }),
      IPv6: new NodeAddress({ family: 'IPv6', log }),
    };
  }

  /** What the Node object says now. */
  set(status: NodeStatus): void {
    this.#status = status;
    for (const family of ['IPv4', 'IPv6'] as const) {
      // Clusters of one family have nodes with addresses of both.
      this.#addresses[family].prefer(status.addresses, { isExpected: family === familyOf(this.#config.bindAddress) });
    }
  }

  /** Reached by the node's own connections; `undefined` while this machine has none but loopback and link-local ones. */
  address(family: IpFamily): Address | undefined {
    return this.#addresses[family].current();
  }

  /** Whether load balancers may go on sending here. While nothing is known of the node, nothing speaks against it. */
  get isEligible(): boolean {
    return this.#status === undefined || isEligible(this.#status);
  }

  get topology(): NodeTopology {
    const zone = this.#status?.zone;
    return { nodeName: this.#name, ...(zone !== undefined && { zone }) };
  }

  /** `undefined` without an address of the family. */
  facts({ family, bindAddress }: { readonly family: IpFamily; readonly bindAddress: Address }): NodeFacts | undefined {
    const { nodePortAddresses, nodePortsOnPrimary } = this.#config;
    const hostAddress = this.address(family);
    if (hostAddress === undefined) return undefined;
    const nodePortCidrs = nodePortsOnPrimary ? [...nodePortAddresses, addressBlock(hostAddress)] : nodePortAddresses;
    return { family, bindAddress, hostAddress, nodePortCidrs, pods: this.#pods() };
  }

  /** This machine's addresses of these families that serve NodePorts; `undefined` for all. */
  nodePortAddresses(families: readonly IpFamily[]): readonly Address[] | undefined {
    const { nodePortAddresses: cidrs, nodePortsOnPrimary } = this.#config;
    if (cidrs.length === 0 && !nodePortsOnPrimary) return undefined;
    return families.flatMap((family) => {
      const ofFamily = cidrs.filter(({ network }) => familyOf(network) === family);
      const primary = nodePortsOnPrimary ? this.address(family) : undefined;
      const isLimited = ofFamily.length > 0 || primary !== undefined;
      const isNamed = (address: Address) => address === primary || ofFamily.some((cidr) => cidrContains(cidr, address));
      return localAddresses(family).filter((address) => (isLimited ? isNamed(address) : !LINK_LOCAL.test(address)));
    });
  }

  /**
   * As upstream's getLocalDetectors (`cmd/kube-proxy/app/server_linux.go`), but with every block of a family, and with
   * the Node object's as they change. Upstream waits for the first of them before it serves anybody.
   */
  #pods(): readonly Origin[] {
    const { detectLocal, clusterCidrs } = this.#config;
    const within = (cidrs: readonly Cidr[]) => cidrs.map((source) => ({ source }));
    switch (detectLocal.by) {
      case 'ClusterCIDR':
        return within(clusterCidrs);
      case 'NodeCIDR':
        return within(this.#status?.podCidrs ?? []);
      case 'interface':
        return [{ inInterface: detectLocal.inInterface }];
    }
  }
}
