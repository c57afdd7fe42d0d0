import type { DataPlaneOptions } from '../contracts/data-plane.ts';
import type { Address } from '../model/address.ts';
import type { Cidr } from '../model/cidr.ts';
import type { PortRange } from '../model/port-range.ts';
import type { ListenAddress } from './addresses.ts';

/** `auto`: fast where it can run, else node. */
export type Engine = 'auto' | 'fast' | 'node';

export type IptablesMode = 'auto' | 'nft' | 'legacy';

export interface LogConfig {
  /** klog's: 0 is quiet, 10 says everything. */
  readonly verbosity: number;
  readonly format: 'auto' | 'text' | 'json';
}

/** Where Services come from. */
export type SourceConfig =
  | {
      readonly kind: 'manifests';
      /** Files and directories as they were given; at least one. */
      readonly paths: readonly string[];
    }
  | ({ readonly kind: 'kubernetes' } & KubernetesConfig);

/** Without kubeconfig and master, the service account of the Pod that we run in. */
export interface KubernetesConfig {
  readonly kubeconfig: string | undefined;
  readonly master: string | undefined;
  /** Requests per second in the long term; watches do not count. */
  readonly qps: number;
  readonly burst: number;
  readonly contentType: string;
}

/** What the proxy runs with: every value checked, every default filled in. */
export interface Config {
  readonly source: SourceConfig;
  /** `0.0.0.0`, or one IPv4 address of the node. */
  readonly bindAddress: Address;
  /** `undefined`: any port that the kernel has free. */
  readonly proxyPortRange: PortRange | undefined;
  /** Where NodePorts are served; empty: on every address of the node. */
  readonly nodePortAddresses: readonly Cidr[];
  /** `undefined`: the machine's host name. */
  readonly hostnameOverride: string | undefined;
  readonly engine: Engine;
  /** Threads of the fast engine; `undefined`: as fits the number of cores. */
  readonly workers: number | undefined;
  readonly dataPlane: DataPlaneOptions;
  readonly iptablesMode: IptablesMode;
  readonly iptablesSyncPeriodMs: number;
  /** At most the sync period. */
  readonly iptablesMinSyncPeriodMs: number;
  /** `undefined`: no such server. */
  readonly healthzAddress: ListenAddress | undefined;
  readonly metricsAddress: ListenAddress | undefined;
  readonly log: LogConfig;
}

/** What the command line asks for. `text` ends without a newline. */
export type CommandLine =
  | { readonly kind: 'run'; readonly config: Config }
  | { readonly kind: 'cleanup'; readonly iptablesMode: IptablesMode; readonly log: LogConfig }
  /** For stdout; exit code 0. */
  | { readonly kind: 'help' | 'version'; readonly text: string }
  /** One line for stderr; exit code 1. */
  | { readonly kind: 'error'; readonly text: string };
