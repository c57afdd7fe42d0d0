/** Ports from `first` to `last`, both included; 1…65535. */
export interface PortRange {
  readonly first: number;
  readonly last: number;
}

/** From which an API server hands out NodePorts, unless `--service-node-port-range` says otherwise. */
export const DEFAULT_NODE_PORTS: PortRange = { first: 30_000, last: 32_767 };
