import type { Address, Cidr, IpFamily } from './address.ts';
import type { OriginalDestination, StaleFlows } from './conntrack.ts';
import type { ServicePortName } from './service.ts';
import type { Destination, EndpointSetName, ProxiedProtocol, ServicePort } from './service-port.ts';
import type { Question, RuleView } from './view.ts';

/** What has the kernel send packets for Services to the proxy's local ports. */
export type CaptureMethodName = 'iptables' | 'nft';

/** A Service port and the local ports of its listeners. */
export interface Portal {
  readonly servicePort: ServicePort;
  readonly localPort: number;
  /** The listener of the endpoint set `servicePort.local`, where there is one. */
  readonly localSetPort?: number;
}

/** A name is in one of the two lists, once. */
export interface PortalDelta {
  /** New, or captured in another way than before. */
  readonly upserted: readonly Portal[];
  readonly removed: readonly ServicePortName[];
}

/** The endpoint set that a local port serves. */
export interface ServedSet {
  readonly name: ServicePortName;
  readonly set: EndpointSetName;
}

/** A local port that the kernel leads clients to, or led to recently. */
export interface InstalledPort extends ServedSet {
  readonly protocol: ProxiedProtocol;
  readonly localPort: number;
  /** For a retired port. Packets of flows in conntrack may still come to it. */
  readonly retiredForMs?: number;
}

/** Where a packet comes from. What is absent may be anything. */
export interface Origin {
  readonly source?: Cidr;
  readonly inInterface?: InterfaceMatch;
}

/** One interface, or each whose name begins with `name`. */
export interface InterfaceMatch {
  readonly name: string;
  readonly isPrefix: boolean;
}

/** What capturing must know of the node, for one address family. */
export interface NodeFacts {
  readonly family: IpFamily;
  /** Of the listeners: a wildcard (`0.0.0.0`, `::`), or one address of the node. */
  readonly bindAddress: Address;
  /** An address of the node, to which packets are sent when the listeners are on the wildcard. */
  readonly hostAddress: Address;
  /**
   * Where NodePorts answer, in both families. Without one of this family, on all of its addresses (upstream
   * `pkg/proxy/util/nodeport_addresses.go` NewNodePortAddresses).
   */
  readonly nodePortCidrs: readonly Cidr[];
  /** Of packets from pods. Blocks of the other family are ignored. */
  readonly pods: readonly Origin[];
}

/** `owner` goes without `what` ("10.96.0.1:443/TCP", "NodePort 30080/TCP"), because `holder` has it. */
export interface Conflict {
  readonly owner: ServicePortName;
  readonly holder: ServicePortName;
  readonly what: string;
}

/** Something that is left out of the kernel. It is logged once while it lasts. */
export interface Problem {
  /** Identifies it. */
  readonly key: string;
  readonly svc?: ServicePortName | undefined;
  readonly message: string;
  readonly fields: Readonly<Record<string, string | number | boolean>>;
}

/**
 * The kernel or a program has refused what capturing needs. `mayPass`: it could not tell (a lock, a deadline), so the
 * same may succeed soon.
 */
export class CaptureError extends Error {
  override readonly name: string = 'CaptureError';
  readonly mayPass: boolean;

  constructor(message: string, { mayPass, ...options }: ErrorOptions & { readonly mayPass: boolean }) {
    super(message, options);
    this.mayPass = mayPass;
  }
}

/** What a sync has done. */
export interface Synced {
  /** What conntrack would keep on another way than the one that is installed now. */
  readonly flows: readonly StaleFlows[];
  /** Of TCP, where rules were missing. */
  readonly missed: readonly OriginalDestination[];
}

/** Captures the packets for Services of one address family. */
export interface Capture {
  /** The next {@link sync} installs them. Cheap. */
  apply(delta: PortalDelta): void;
  /**
   * Cluster IPs come from these blocks, of both families. The next {@link sync} has packets dropped that go to an
   * address and port there which no Service has.
   */
  dropUnassigned(blocks: readonly Cidr[]): void;
  /**
   * Has the kernel capture for all portals, and for nothing else of ours. With `verify` it reads what the kernel has
   * first, and retries what the kernel refused. When it rejects, the next sync does the rest. Rejects with a
   * {@link CaptureError}, or when the node has no address.
   */
  sync(how: { readonly verify: boolean }): Promise<Synced>;
  /**
   * Whether the kernel captures still, as far as a look tells that costs nothing while nobody changes rules. True
   * before the first sync. Rejects with a {@link CaptureError}.
   */
  isIntact(): Promise<boolean>;
  /**
   * The local ports that the kernel leads to, or led to recently, whatever method has installed that. A Service port
   * that has an address or a NodePort there keeps it. Rejects with a {@link CaptureError}.
   */
  installedPorts(): Promise<readonly InstalledPort[]>;
  /** Whether the kernel sends this destination to that Service port, as of the last sync. */
  holds(name: ServicePortName, to: Pick<Destination, 'address' | 'port'>, protocol: ProxiedProtocol): boolean;
  /** What this Service port claims and another has. */
  conflictsOf(name: ServicePortName): readonly Conflict[];
  /** What the last sync has left out. */
  problems(): readonly Problem[];
  /** What the kernel does with a packet, with rules of other programs too. Rejects with a {@link CaptureError}. */
  follow(packet: FollowedPacket): Promise<Path>;
}

/** The first packet of a connection or flow, on its way into this machine or out of one of its programs. */
export interface FollowedPacket extends Pick<Question, 'address' | 'port' | 'protocol'> {
  readonly source: Address;
  /** From a process of this node. */
  readonly isOwn: boolean;
  /** Empty: none. `undefined`: unknown. */
  readonly inInterface: string | undefined;
  /** Of a packet of this node; empty for an incoming one. `undefined`: unknown. */
  readonly outInterface?: string | undefined;
}

/** What becomes of a packet. Texts are parts of a sentence, without its end. */
export interface Path {
  /** In the order in which the packet meets them. */
  readonly rules: readonly RuleView[];
  readonly nat: Fate;
  /** What stops it on the way that NAT gave it, unless that is of ours: "a rule drops it (…)". */
  readonly stop?: string | undefined;
  /** What else may decide, as a sentence. */
  readonly caveat?: string;
}

/** What NAT does with a packet. */
export type Fate =
  /** `missing`: what of ours should have seen it: "no rule jumps to KUBE-PORTALS-HOST". */
  | { readonly kind: 'passes'; readonly missing?: string | undefined }
  /** It is dropped, because its address is for cluster IPs alone. */
  | { readonly kind: 'unassigned' }
  /** Another program's rule decides, or may: "a rule of another program sends it to 10.0.0.1:80 (…)". */
  | { readonly kind: 'foreign'; readonly text: string }
  /** For this Service port. `closed`: it came to a local port itself. */
  | { readonly kind: 'listener'; readonly name: ServicePortName; readonly localPort: number }
  | { readonly kind: 'reject' | 'drop' | 'closed'; readonly name: ServicePortName };
