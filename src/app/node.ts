import { isDeepStrictEqual } from 'node:util';
import type { Config } from '../config/config.ts';
import type { HealthCheckNodePorts } from '../http/health-check-node-ports.ts';
import { localAddresses, NodeAddress, watchAddresses } from '../kernel/addresses.ts';
import { isEligible, type NodeStatus } from '../kubernetes/node.ts';
import {
  type Address,
  addressBlock,
  type Cidr,
  cidrContains,
  FAMILIES,
  familyOf,
  type IpFamily,
  needsLink,
  parseCidr,
} from '../model/address.ts';
import type { NodeFacts, Origin } from '../model/capture.ts';
import type { NodeTopology } from '../model/endpoint.ts';
import type { ControlPlane } from '../sync/control-plane.ts';
import type { FamilyBinding, ServedFamilies } from '../sync/served-families.ts';
import { LastingFault } from '../util/lasting-fault.ts';
import type { Log } from '../util/log.ts';
import { systemClock as clock } from '../util/system-clock.ts';
import { messageOf } from '../util/text.ts';
import type { ClientWatch } from './clients.ts';
import type { Pipeline } from './pipeline.ts';

const EVERYBODY: readonly Cidr[] = ['0.0.0.0/0', '::/0'].flatMap((text) => parseCidr(text) ?? []);

/** What the machine itself, and its Node object where there is one, say of this node now. */
export class ThisNode {
  readonly #config: Config;
  readonly #name: string;
  readonly #addresses: Readonly<Record<IpFamily, NodeAddress>>;
  #status: NodeStatus | undefined;

  constructor(config: Config, { name, log }: { readonly name: string; readonly log: Log }) {
    this.#config = config;
    this.#name = name;
    this.#addresses = {
      IPv4: new NodeAddress('IPv4', log),
      IPv6: new NodeAddress('IPv6', log),
    };
  }

  /** What the Node object says now. */
  set(status: NodeStatus): void {
    this.#status = status;
    for (const family of FAMILIES) {
      // Clusters of one family have nodes with addresses of both.
      this.#addresses[family].prefer(status.addresses, { isExpected: family === familyOf(this.#config.bindAddress) });
    }
  }

  /** The node's own connections reach it; `undefined` while this machine has only loopback and link-local addresses. */
  address(family: IpFamily): Address | undefined {
    return this.#addresses[family].current();
  }

  /** Whether load balancers may send here. Until the Node object is known, they may. */
  get isEligible(): boolean {
    return this.#status === undefined || isEligible(this.#status);
  }

  get topology(): NodeTopology {
    const zone = this.#status?.zone;
    return { nodeName: this.#name, ...(zone !== undefined && { zone }) };
  }

  /** `undefined` without an address of the family. */
  facts({ family, bindAddress }: FamilyBinding): NodeFacts | undefined {
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
      return localAddresses(family).filter((address) => (isLimited ? isNamed(address) : !needsLink(address)));
    });
  }

  /**
   * Where pods are, for what endpoints see of clients; `undefined`: unknown. As upstream's getLocalDetectors
   * (`cmd/kube-proxy/app/server_linux.go`), a family without a block is not told apart: all of its clients are pods.
   */
  get podCidrs(): readonly Cidr[] | undefined {
    const { detectLocal, source } = this.#config;
    // No client until it is known: connections from outside break when endpoints on other nodes answer them directly.
    if (detectLocal.by === 'NodeCIDR' && source.kind === 'kubernetes' && this.#status === undefined) return [];
    const known = this.#pods().flatMap(({ source: cidr }) => cidr ?? []);
    if (known.length === 0) return undefined;
    const families = new Set(known.map(({ network }) => familyOf(network)));
    return [...known, ...EVERYBODY.filter(({ network }) => !families.has(familyOf(network)))];
  }

  /**
   * As upstream's getLocalDetectors (`cmd/kube-proxy/app/server_linux.go`), but with every block of a family, and with
   * changes of the Node object's blocks. Upstream serves no client until it knows the first of these.
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

/** The kernel does not report which programs listen, and its reports of address changes may get lost. */
const INTERVAL_MS = 5_000;

export interface WatchedNode {
  readonly node: ThisNode;
  readonly served: ServedFamilies;
  readonly pipelines: readonly Pipeline[];
  readonly controlPlane: ControlPlane;
  readonly healthCheckNodePorts: Pick<HealthCheckNodePorts, 'listenOn'>;
  readonly clients: Pick<ClientWatch, 'look'>;
  readonly log: Log;
  readonly signal: AbortSignal;
}

/** Keeps the other parts up to date on this node: its addresses, which programs listen, which families it can serve. */
export class NodeWatch {
  readonly #options: WatchedNode;
  readonly #facts = new Map<IpFamily, NodeFacts>();
  #nodePortAddresses: readonly Address[] | undefined;
  #isActivating = false;
  readonly #addressFault: LastingFault;
  readonly #familyFault: LastingFault;

  constructor(options: WatchedNode) {
    this.#options = options;
    this.#addressFault = new LastingFault({
      log: options.log,
      begun: 'Cannot look at the addresses of this machine; trying again',
      over: 'The addresses of this machine can be seen again',
    });
    this.#familyFault = new LastingFault({
      log: options.log,
      begun: 'Cannot find out which address families can be served; trying again',
      over: 'It is known again which address families can be served',
    });
  }

  start(): void {
    this.#lookRegularly();
    void watchAddresses({ clock, onChange: () => this.look(), signal: this.#options.signal });
  }

  /** Looks at once, as something is known to have changed. */
  look(): void {
    try {
      this.#look();
      this.#addressFault.succeeded();
    } catch (error) {
      this.#addressFault.failed(messageOf(error));
    }
  }

  #lookRegularly(): void {
    const { pipelines, signal } = this.#options;
    if (signal.aborted) return;
    for (const { tracker } of pipelines) tracker.listeningChanged();
    this.look();
    clock.after(INTERVAL_MS, () => this.#lookRegularly());
  }

  #look(): void {
    const { node, pipelines, controlPlane, healthCheckNodePorts, clients } = this.#options;
    controlPlane.setTopology(node.topology);
    for (const pipeline of pipelines) {
      const { family, tracker, controller } = pipeline;
      tracker.setNodeAddresses(localAddresses(family));
      controller.trackerChanged();
      const facts = node.facts(pipeline);
      // Without an address, rules stay as they are: it may come back.
      const before = this.#facts.get(family);
      if (facts === undefined || isDeepStrictEqual(facts, before)) continue;
      this.#facts.set(family, facts);
      if (before !== undefined) controller.nodeChanged();
    }
    const addresses = node.nodePortAddresses(pipelines.map(({ family }) => family));
    if (!isDeepStrictEqual(addresses, this.#nodePortAddresses)) healthCheckNodePorts.listenOn(addresses);
    this.#nodePortAddresses = addresses;
    clients.look();
    void this.#activate();
  }

  /** Serves the families that the node has become able to serve. */
  async #activate(): Promise<void> {
    const { served, pipelines, controlPlane } = this.#options;
    if (this.#isActivating || !controlPlane.isRunning || served.active.length === pipelines.length) return;
    this.#isActivating = true;
    try {
      for (const family of await served.servable()) await controlPlane.activate(family);
      await served.report();
      this.#familyFault.succeeded();
    } catch (error) {
      this.#familyFault.failed(messageOf(error));
    }
    this.#isActivating = false;
  }
}
