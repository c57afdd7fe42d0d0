import type { Address, Cidr, PortRange } from '../model/address.ts';
import type { CaptureMethodName, InterfaceMatch } from '../model/capture.ts';
import type { ClientAddressPolicy } from '../model/client-address.ts';
import type { DataPlaneOptions } from '../model/data-plane.ts';
import type { HostSettings, MachineSettings } from '../model/host-settings.ts';
import type { SchedulerName } from '../model/scheduler.ts';
import type { EffectiveFields } from './configuration-file.ts';
import type { ListenAddress } from './values.ts';

/** `auto`: fast where it can run, else node. */
export type Engine = 'auto' | 'fast' | 'node';

/** `auto`: iptables where it works, else nft. */
type CaptureMode = 'auto' | CaptureMethodName;

type IptablesMode = 'auto' | 'nft' | 'legacy';

export interface LogConfig {
  /** klog's: 0 is quiet, 10 says everything. */
  readonly verbosity: number;
  readonly format: 'auto' | 'text' | 'json';
}

/** Where Services come from. */
export type SourceConfig =
  | ({ readonly kind: 'manifests' } & ManifestsConfig)
  | ({ readonly kind: 'kubernetes' } & KubernetesConfig);

export interface ManifestsConfig {
  /** Files and directories as they were given; at least one. */
  readonly paths: readonly string[];
  /** Where Services without a cluster IP get one from; at most one of each family, the default first. */
  readonly clusterIpRanges: readonly Cidr[];
  /** Endpoints may be loopback addresses of this machine. */
  readonly loopbackEndpoints: boolean;
}

/** Without kubeconfig and master, the service account of the Pod that we run in. */
export interface KubernetesConfig {
  readonly kubeconfig: string | undefined;
  readonly master: string | undefined;
  /** In order of preference; the one that the others name comes last. */
  readonly apiServers: readonly URL[];
  /** Use also those that the cluster itself names. */
  readonly apiServersFromCluster: boolean;
  /** Requests per second in the long term; watches and events do not count. */
  readonly qps: number;
  readonly burst: number;
  readonly contentType: string;
}

/** The last state on disk. */
export interface StateConfig {
  readonly directory: string;
  /** How long a start waits for the API server before it serves the state on disk. */
  readonly waitMs: number;
  /** An older one is not used; 0: none is too old. */
  readonly maxAgeMs: number;
  /** The path of the container runtime's socket. `undefined`: it is not asked. */
  readonly criSocket: string | undefined;
}

/** How packets of pods are recognized. */
export type DetectLocal =
  | { readonly by: 'ClusterCIDR' | 'NodeCIDR' }
  | { readonly by: 'interface'; readonly inInterface: InterfaceMatch };

/** What the proxy runs with: every value checked, every default filled in. */
export interface Config {
  /** The file of `--config`. A change of it ends the program, or makes it hand over. */
  readonly configFile: string | undefined;
  readonly source: SourceConfig;
  /** `undefined`: nothing is kept on disk. */
  readonly state: StateConfig | undefined;
  /** One address of the node, or a wildcard: that serves both families, and its own is the primary one. */
  readonly bindAddress: Address;
  /** `undefined`: any port that the kernel has free. */
  readonly proxyPortRange: PortRange | undefined;
  /** Where NodePorts are served; empty: on every address of the node, unless `nodePortsOnPrimary`. */
  readonly nodePortAddresses: readonly Cidr[];
  /** NodePorts are served on the addresses that the Node object names, and on `nodePortAddresses`. */
  readonly nodePortsOnPrimary: boolean;
  /** Where external IPs may be; `undefined`: anywhere; empty: nowhere. */
  readonly externalIpAllowList: readonly Cidr[] | undefined;
  /** Ports at which endpoints at this node's own addresses need no Pod; `undefined`: all. */
  readonly nodeEndpointPorts: readonly PortRange[] | undefined;
  /** Where the pods of the cluster are; may be empty. */
  readonly clusterCidrs: readonly Cidr[];
  readonly detectLocal: DetectLocal;
  readonly clientAddresses: ClientAddressPolicy;
  /** Of Services that ask for none. */
  readonly scheduler: SchedulerName;
  /** How long clients wait for an endpoint of a Service that does not say so; 0: they are refused. */
  readonly waitForEndpointsMs: number;
  /** `undefined`: the machine's host name. */
  readonly hostnameOverride: string | undefined;
  readonly engine: Engine;
  /** Threads of the fast engine; `undefined`: as fits the number of cores. */
  readonly workers: number | undefined;
  readonly dataPlane: DataPlaneOptions;
  readonly capture: CaptureMode;
  readonly iptablesMode: IptablesMode;
  readonly iptablesSyncPeriodMs: number;
  /** At most the sync period. */
  readonly iptablesMinSyncPeriodMs: number;
  /** `undefined`: no such server. */
  readonly healthzAddress: ListenAddress | undefined;
  readonly metricsAddress: ListenAddress | undefined;
  /** The program ends when it cannot listen on one of these two addresses. */
  readonly bindAddressHardFail: boolean;
  readonly profiling: boolean;
  /** Where subcommands connect. `undefined`: nowhere. */
  readonly controlSocket: string | undefined;
  /** Where a process takes over that the one that serves has not started. `undefined`: nowhere. */
  readonly handOverSocket: string | undefined;
  /** The file of the connection log. `undefined`: none. */
  readonly connectionLog: string | undefined;
  readonly host: HostSettings;
  readonly log: LogConfig;
  /** All of this in the words of a KubeProxyConfiguration. */
  readonly fields: EffectiveFields;
}

/** What the flags ask for. */
export type CommandLine =
  | { readonly kind: 'run'; readonly config: Config; readonly warnings: readonly string[] }
  /** Prepare the machine for a proxy with fewer rights. */
  | { readonly kind: 'init'; readonly machine: MachineSettings; readonly log: LogConfig }
  /** `text` is all of the file. */
  | { readonly kind: 'write-config'; readonly path: string; readonly text: string }
  | {
      readonly kind: 'cleanup';
      readonly iptablesMode: IptablesMode;
      /** Of the connections of the proxy whose traces are removed. */
      readonly connectionMark: number;
      readonly log: LogConfig;
    };
